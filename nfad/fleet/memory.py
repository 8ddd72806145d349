"""What a task will take of a machine's memory, told to Ray before it starts: from the config, not from a guess.

Measured by `benchmarks/memory.py`, whose table says how far each fit stayed below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from PIL import Image

from nfad.config import PLACED, Config
from nfad.fitting.crossfit import FOLDS, MOST
from nfad.hosts.training import ROOM
from nfad.paper.plan import student_pass
from nfad.reference.placed import places_a_side, regions_a_side
from nfad.vision.caching import CAPACITY
from nfad.vision.teacher import load_teacher
from nfad.vision.tiles import AT_ONCE
from nfad.vision.weights import EMBEDDED_ARCHITECTURE, UNTRAINED

BASE = 0.9e9  # Python, torch and Ray's worker before any work
MARGIN = 1.5  # for what is not counted, and for what an allocator holds back
PASS = 400  # bytes a pixel of the view that a pass of the network holds at once: 330 were seen of the embedded CNN
PHOTO = 24  # bytes a pixel of a photo that is opened and shrunk
PIXELS = 4_000_000  # of a photo that nobody has looked at
HALF, FLOAT, DOUBLE = 2, 4, 8
COPIES = 8  # of a view seen in tiles and of its tokens, while it is looked at
SHOWN = 3  # maps of a prediction
WIDE, DEEP, TRAINED = 384, 8, 3  # of hosts: channels and layers at the most, passes whose values a step holds


@dataclass(frozen=True)
class Network:
    """What of a teacher decides the size of everything after it."""

    channels: tuple[int, ...]
    grid: int
    weights: int  # bytes

    @property
    def token_bytes(self) -> int:
        """Of an image, as the cache keeps them."""
        return self.grid**2 * (HALF * sum(self.channels) + FLOAT)


def fit_memory(config: Config, photos: int, pixels: int = PIXELS, threads: int = 1) -> int:
    """Bytes that a fit on so many photos of so many pixels takes at its peak, at the most. Several looks are fitted one
    after the other, and their networks stay."""
    if config.beside:
        each = [fit_memory(look, photos, pixels, threads) for look in config.looks]
        weights = sorted(_network_of(look).weights for look in config.looks)
        return max(each) + round(MARGIN * sum(weights[:-1]))
    network = _network_of(config)
    views = min(max(config.acquisitions, photos), MOST * photos) if config.acquisitions else 0
    stores = photos * network.token_bytes, views * network.token_bytes, 6 * photos * config.size**2
    kept = sum(store if config.room is None else min(store, config.room) for store in stores)
    taken = _pass(config, network) + threads * PHOTO * pixels + kept
    taken += _folds(network, photos + views) if views else 0
    if config.reference == "nearest":
        taken += 2 * FLOAT * photos * network.grid**2 * sum(network.channels)  # all tokens, while a bank is chosen
    if config.reference == "student":
        taken += student_pass(config).memory
    return round(BASE + MARGIN * taken)


def judge_memory(config: Config, photos: int, pixels: int = PIXELS) -> int:
    """The same of a model that judges so many photos and gives their maps back."""
    if config.beside:
        each = [judge_memory(look, photos, pixels) for look in config.looks]
        return sum(each) - round(BASE) * (len(each) - 1)
    network = _network_of(config)
    model = sum(c * c * FLOAT for c in network.channels) * (2 + len(config.rank))
    given = SHOWN * FLOAT * photos * config.size**2
    return round(BASE + MARGIN * (_pass(config, network) + PHOTO * pixels + model + given))


def cell_memory(config: Config, photos: int, tested: int, pixels: int = PIXELS, shifts: int = 1) -> int:
    """The same of a table's cell: a fit, the test under so many shifts, and a teacher that remembers both."""
    views = min(max(config.acquisitions, photos), MOST * photos) if config.acquisitions else photos
    passed = 2 * (views + photos + shifts * tested)
    remembered = sum(min(CAPACITY, passed * _network_of(look).token_bytes) for look in config.looks)
    maps = 2 * SHOWN * FLOAT * tested * config.size**2  # for the metrics, and for their curves
    return round(fit_memory(config, photos, pixels) + remembered + maps)


def host_memory(config: Config, photos: int, pixels: int = PIXELS) -> int:
    """The same of another detector: all normals at once, the features that training keeps, and three of a batch."""
    network = _network_of(config)
    views = FLOAT * 3 * photos * config.size**2
    # Hosts read finer stages than the config names, or a ViT's eight blocks; training keeps no more than ROOM.
    tokens = network.grid**2 * max(*network.channels, WIDE)
    features = min(ROOM, DEEP * HALF * photos * tokens) + FLOAT * photos * tokens
    trained = TRAINED * _pass(config, network)
    return round(BASE + MARGIN * (views + features + trained + PHOTO * pixels))


def pixels_of(images: Sequence[Path], looked_at: int = 3) -> int:
    """Of the largest of the first photos, by their headers; a usual number where none can be read."""
    found = 0
    for image in images[:looked_at]:
        try:
            with Image.open(image) as opened:
                found = max(found, opened.width * opened.height)
        except (OSError, ValueError):
            continue
    return found or PIXELS


def _pass(config: Config, network: Network) -> int:
    if not config.tiled:
        return 2 * network.weights + PASS * config.batch * config.size**2
    held = FLOAT * config.at_once * (3 * config.size**2 + network.grid**2 * sum(network.channels))
    return 2 * network.weights + PASS * AT_ONCE + COPIES * held


def _folds(network: Network, views: int) -> int:
    """Sums by fold, block, place and region, those of a block joined at twice their precision; and of the strangest
    tokens by either evidence."""
    regions = [regions_a_side(network.grid, c, views) ** 2 for c in network.channels]
    squares = [count * c * c for count, c in zip(regions, network.channels, strict=True)]
    moments = (2 + len(PLACED)) * DOUBLE * sum(c * c for c in network.channels)
    a_fold = DOUBLE * places_a_side(network.grid) ** 2 * sum(network.channels) + FLOAT * sum(squares) + moments
    return FOLDS * (a_fold + (FLOAT + DOUBLE) * max(squares)) + DOUBLE * sum(squares)


def _network_of(config: Config) -> Network:
    side = config.tile if config.tile and config.tiled else config.size
    network = _network(config.teacher, config.blocks, config.prior_blocks, side)
    return replace(network, grid=network.grid * config.size // side)


@lru_cache(maxsize=8)
def _network(name: str, blocks: tuple[int, ...], prior_blocks: tuple[int, ...], size: int) -> Network:
    """Weights change nothing of it, so that none are fetched to find out."""
    teacher = load_teacher(name, None if name in EMBEDDED_ARCHITECTURE else UNTRAINED, blocks, prior_blocks, size)
    held = sum(parameter.nbytes for parameter in teacher.network.parameters())
    return Network(tuple(teacher.channels), teacher.grid, held)
