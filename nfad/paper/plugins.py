"""The plug-in table's cells: a host fitted once and judged bare and under every rank of the filter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nfad.config import Config
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.evaluation.tally import Judged, Tally
from nfad.fitting.calibration import split
from nfad.hosts import Filtered, Host, NuisanceFilter
from nfad.hosts.backbone import TimmMaps
from nfad.paper.cells import fingerprint, ready_for_json
from nfad.paper.estimates import Result
from nfad.records import Dataset, Geometry, Sample
from nfad.stats.conformal import conformal_threshold, smallest_rate
from nfad.system.progress import Progress
from nfad.system.results import ResultCache, key_of
from nfad.vision.devices import device_of
from nfad.vision.images import load_part, pixels_of, to_view

FORMAT = 1
HOSTS = {
    "rd4ad": "RD4AD", "recontrast": "ReContrast", "patchcore": "PatchCore", "glass": "GLASS", "uniad": "UniAD",
    "nfad": "NFAD", "anomalydino": "AnomalyDINO", "subspacead": "SubspaceAD", "rad": "RAD", "dinomaly": "Dinomaly",
    "mmr": "MMR",
}  # fmt: skip
# With the embedded CNN, training that ends within minutes on two cores; other networks get each paper's own.
BRIEF = {
    "rd4ad": {"steps": 300},
    "recontrast": {"steps": 150},
    "uniad": {"steps": 600, "width": 128, "depth": 2, "dropout": 0.0, "rate": 1e-3},
    "glass": {},
    "dinomaly": {"steps": 300},
    "mmr": {"steps": 600},
}
STAGES = {"rd4ad": (1, 2, 3), "recontrast": (1, 2, 3), "mmr": (1, 2, 3), "uniad": (0, 1, 2, 3)}  # of a ResNet
VITS = ("anomalydino", "subspacead", "rad", "dinomaly")  # hosts that read a ViT: the config's, or else the embedded one
WIDE = 512  # channels of the layer that the paper's d counts columns of


@dataclass(frozen=True)
class HostCell:
    """A host fitted on one category; its arms are the ranks."""

    dataset: Dataset
    config: Config
    host: str
    ranks: tuple[int, ...]
    steps: int | None = None  # of a host that is trained; None: its own number

    @cached_property
    def settings(self) -> dict[str, object]:
        """All that decides the result."""
        return {
            "host": self.host,
            "format": FORMAT,
            "dataset": self.dataset.name,
            "category": self.dataset.category,
            "images": fingerprint(self.dataset),
            "config": json.loads(json.dumps(self.config.as_dict())),
            "ranks": list(self.ranks),
            "steps": self.steps,
        }

    @property
    def key(self) -> str:
        return key_of(self.settings)


def run_hosts(
    cells: Sequence[HostCell],
    cache: ResultCache,
    progress: Progress | None = None,
    on_cell: Callable[[int, int], None] | None = None,
    device: str = "auto",
) -> dict[str, Result]:
    """Every cell's result by its key; those on disk are not measured again."""
    results: dict[str, Result] = {}
    for done, cell in enumerate(cells):
        if on_cell:
            on_cell(done, len(cells))
        result = cache.get(cell.settings)
        if result is None:
            result = measure_host(cell, progress, device)
            cache.put(cell.settings, result)
        results[cell.key] = result
    if on_cell:
        on_cell(len(cells), len(cells))
    return results


def measure_host(cell: HostCell, progress: Progress | None = None, device: str = "auto") -> Result:
    """The bare host (d = 0) and the host under each rank, over the same images, at thresholds of the same normals."""
    normals = views_of(cell.dataset.train, cell.config).to(device_of(device))
    held, fit = split(len(normals), cell.config)
    host = fit_host(cell.host, normals[fit], cell.config, cell.steps, progress)
    arms = {f"d={d}": arm for d, arm in worn_at(host, cell.ranks, normals[fit], cell.config, progress).items()}
    removed = {
        name: [basis.shape[1] for basis in arm.filter.bases] for name, arm in arms.items() if isinstance(arm, Filtered)
    }
    return judged_by(arms, normals[held], cell.dataset.test, cell.config, progress) | {"columns": removed}


def judged_by(
    arms: Mapping[str, Host], held: Tensor, test: Sequence[Sample], config: Config, progress: Progress | None = None
) -> Result:
    """Every arm over the same images, at a threshold of the same held-out normals, where these are."""
    rate = max(config.false_alarm_rate, smallest_rate(len(held)))
    thresholds = {}
    for name, arm in arms.items():
        scores = torch.cat([arm.score(part).image for part in held.split(config.batch)])
        thresholds[name] = conformal_threshold(scores.tolist(), rate)
    tally = Tally(test, list(arms), config.size, "mvtec", seed=0)
    for start in range(0, len(test), config.batch):
        samples = test[start : start + config.batch]
        views, geometries = zip(*(_view(sample.path, config) for sample in samples), strict=True)
        judged = {name: arm.score(torch.stack(views).to(held.device)) for name, arm in arms.items()}
        for i, (sample, geometry) in enumerate(zip(samples, geometries, strict=True)):
            said = {
                name: Judged(score := float(found.image[i]), score > thresholds[name], found.maps[i].cpu().numpy())
                for name, found in judged.items()
            }
            tally.add(sample, geometry, said)
        if progress:
            progress("judging", start + len(samples), len(test))
    return ready_for_json(*tally.rows(), tally)


def views_of(samples: Sequence[Sample], config: Config) -> Tensor:
    return torch.stack([_view(sample.path, config)[0] for sample in samples])


def worn(host: Host, d: int, normals: Tensor, config: Config, progress: Progress | None = None) -> Host:
    """The host under a filter of d columns a family, in the paper's measure."""
    return worn_at(host, [d], normals, config, progress)[d]


def worn_at(
    host: Host, ranks: Sequence[int], normals: Tensor, config: Config, progress: Progress | None = None
) -> dict[int, Host]:
    """The same at several ranks, 0 being the bare host; the normals are looked at once for all of them."""
    some = [d for d in ranks if d]
    if not some:
        return dict.fromkeys(ranks, host)
    channels = [maps.shape[1] for maps in host.features(normals[:1])]
    filters = NuisanceFilter.fit_ranks(
        host, normals, [dict.fromkeys(config.rank, columns(d, channels)) for d in some], config.interventions,
        config.pairs, config.seed, config.batch, progress,
    )  # fmt: skip
    dressed = {d: each.wrap(host) for d, each in zip(some, filters, strict=True)}
    return {d: dressed[d] if d else host for d in ranks}


def columns(d: int, channels: Sequence[int]) -> int | float:
    """d itself for layers about as wide as the paper's; a small network gives up the same share of its channels."""
    return d if min(channels) >= WIDE // 2 else d / WIDE


def fit_host(
    name: str, normals: Tensor, config: Config, steps: int | None = None, progress: Progress | None = None
) -> Host:
    """A host on the config's network; the embedded CNN gives each its stages in the form it reads."""
    from nfad import hosts

    embedded = config.teacher == "embedded-cnn"
    stages = STAGES.get(name, config.blocks) if "resnet" in config.teacher else config.blocks

    def network() -> TimmMaps:
        return hosts.timm_maps(config.teacher, stages, config.weights).to(normals.device)

    trained = {"seed": config.seed, "batch": config.batch, "progress": progress}
    trained |= BRIEF.get(name, {}) if embedded else {}
    trained |= {} if steps is None else {"steps": steps}
    if name == "patchcore":
        maps = hosts.embedded_maps(config.blocks, normals.device) if embedded else network()
        return hosts.PatchCore.fit(normals, maps, seed=config.seed, batch=config.batch, progress=progress)
    if name in ("rd4ad", "recontrast", "uniad", "mmr"):
        kind = {"rd4ad": hosts.RD4AD, "recontrast": hosts.ReContrast, "uniad": hosts.UniAD, "mmr": hosts.MMR}[name]
        return kind.fit(normals, None if embedded else network(), **trained)
    if name in VITS:
        return _vit_host(name, normals, config, trained)
    if name == "glass":
        from nfad.anomalib import fit_glass

        return fit_glass(normals, **trained)
    if name == "nfad":
        arrays = [pixels_of(view.cpu()) for view in normals]
        return hosts.Pair(Detector.fit(arrays, config, progress=progress, device=str(normals.device)))
    raise NfadError(f"there is no host {name!r}; the hosts are {', '.join(HOSTS)}")


def _vit_host(name: str, normals: Tensor, config: Config, trained: dict[str, Any]) -> Host:
    from nfad import hosts
    from nfad.hosts import dinomaly, rad, subspacead

    network = partial(hosts.vit_maps, "embedded-vit", device=normals.device)
    if config.teacher != "embedded-cnn":
        network = partial(hosts.vit_maps, config.teacher, weights=config.weights, device=normals.device)
    untrained = {"batch": config.batch, "progress": trained["progress"]}
    if name == "anomalydino":
        return hosts.AnomalyDINO.fit(normals, network(), **untrained)
    if name == "subspacead":
        return hosts.SubspaceAD.fit(normals, network(blocks=subspacead.BLOCKS), **untrained)
    if name == "rad":
        return hosts.RAD.fit(normals, network(blocks=rad.BLOCKS), **untrained)
    return hosts.Dinomaly.fit(normals, network(blocks=dinomaly.BLOCKS, last=False), **trained)


def _view(path: Path, config: Config) -> tuple[Tensor, Geometry]:
    return to_view(load_part(path), config.size, config.resize)
