"""Before a long run: how many images, which weights and how many hours, measured on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from nfad.config import Config
from nfad.data.counts import TOTAL, published
from nfad.errors import NfadError
from nfad.fitting.nuisance import families_of
from nfad.paper.cells import Cell
from nfad.paper.plugins import HostCell
from nfad.records import Dataset, Sample
from nfad.reference.student import Student
from nfad.system.results import ResultCache
from nfad.vision.named import FOUNDATIONS
from nfad.vision.teacher import load_teacher
from nfad.vision.weights import EMBEDDED_ARCHITECTURE, UNTRAINED

STUDENT_STEP = 3  # a step forward and back costs about three passes forward
CARD = 20e12  # operations a second that a 24 GB card is taken to sustain in 32-bit floats with tensor cores
VIEW, HALF, FLOAT = 2, 2, 4  # bytes of a view's channel, of a cached token's channel, of a prior's token
BATCH = 4  # images that a pass is measured with
ADAM = 16  # bytes a trained parameter: itself, its gradient and two moments


@dataclass(frozen=True)
class Plan:
    """Passes are images through a network; hours are passes times what one took here, on an untrained copy.

    `card_hours` are operations by a stated rate, not a measurement.
    """

    cells: int
    finished: int
    training_images: int
    test_images: int
    teacher_passes: int
    student_passes: int
    weights: tuple[str, ...]
    hours: float
    disk: int  # bytes of cached views and tokens while the largest set is fitted
    memory: int  # bytes of the teacher and of a step of the student's training
    operations: float  # multiplications and additions of all passes
    card_hours: float

    def told(self) -> str:
        lines = [
            f"{self.cells} cells, {self.finished} of them finished.",
            f"Images: {self.training_images} to fit on, {self.test_images} to judge.",
            f"Passes still to make: {self.teacher_passes} of a teacher, {self.student_passes} of a student.",
            *(f"Weights: {each}" for each in self.weights),
            f"On disk while it runs: {self.disk / 1e9:.1f} GB of views and tokens.",
            f"In memory: {self.memory / 1e9:.1f} GB of networks and of one training step.",
            f"On this machine about {_told_time(self.hours)}, not counting reading images and metrics.",
            f"{self.operations / 1e12:,.0f} TFLOP: {_told_time(self.card_hours)} on a 24 GB card at {CARD / 1e12:.0f} "
            "TFLOP/s: reckoned, not measured.",
        ]
        return "\n".join(lines)


def _told_time(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes" if hours > 1 / 60 else "a minute or less"


def plan(cells: Sequence[Cell | HostCell], cache: ResultCache) -> Plan:
    """Counts what `run` would do: each view passes a teacher once, each fit trains its student.

    The training of hosts is not counted.
    """
    unique = {cell.key: cell for cell in cells}
    todo = [cell for key, cell in unique.items() if cache.get(cell.settings) is None]
    views: dict[tuple, int] = {}
    students: dict[str, int] = {}
    for cell in todo:
        config, images = cell.config, cell.settings["images"]
        sight = (images, config.teacher, config.blocks, config.prior_blocks, config.size)
        if isinstance(cell, HostCell):  # each host looks for itself, at the tested photos under every rank
            edits = _interventions(config, len(cell.dataset.train)) + len(cell.dataset.train)
            views[(sight, cell.key)] = edits + len(cell.ranks) * len(cell.dataset.test)
            continue
        moved = (sight, "moved", config.interventions, tuple(config.rank), config.pairs, config.seed)
        views[(sight, "train")] = len(cell.dataset.train)
        views[(sight, "test", cell.corruption)] = len(cell.dataset.test)
        views[moved] = _interventions(config, len(cell.dataset.train))
        if config.reference == "student":
            fit = json.dumps([cell.settings["config"], images], sort_keys=True)
            students.setdefault(fit, config.epochs * len(cell.dataset.train) * STUDENT_STEP)
            students[fit] += len(cell.dataset.test)
    seconds, operations, memory, disk = 0.0, 0.0, 0, 0
    for teacher in dict.fromkeys(key[0][1:] for key in views):
        passes = sum(count for key, count in views.items() if key[0][1:] == teacher)
        cost = _teacher_pass(*teacher)
        seconds, operations = seconds + passes * cost.seconds, operations + passes * cost.operations
        memory = max(memory, cost.memory)
        largest = max((n for key, n in views.items() if key[0][1:] == teacher and key[1:] == ("train",)), default=0)
        disk = max(disk, largest * cost.kept)
    example = next((cell.config for cell in todo if cell.config.reference == "student"), None)
    if example:
        cost, passes = student_pass(example), sum(students.values())
        seconds, operations = seconds + passes * cost.seconds, operations + passes * cost.operations
        memory += cost.memory
    sets = {cell.settings["images"]: cell.dataset for cell in unique.values()}
    return Plan(
        cells=len(unique),
        finished=len(unique) - len(todo),
        training_images=sum(len(dataset.train) for dataset in sets.values()),
        test_images=sum(len(dataset.test) for dataset in sets.values()),
        teacher_passes=sum(views.values()),
        student_passes=sum(students.values()),
        weights=tuple(dict.fromkeys(told for cell in todo for told in _weights(cell.config))),
        hours=seconds / 3600,
        disk=disk,
        memory=memory,
        operations=operations,
        card_hours=operations / CARD / 3600,
    )


def announced(name: str, categories: Sequence[str] | None = None) -> list[Dataset]:
    """A set that is not at hand, by its published counts: enough to plan for, with no file behind it."""
    known = {category: counts for (dataset, category), counts in published().items() if dataset == name}
    if not known:
        raise NfadError(f"no counts of {name!r} are published that a dry run could go by; give its folder")
    if None in next(iter(known.values())):  # only the total is
        known = {TOTAL: known[TOTAL]}
    for category in categories or ():
        if category not in known:
            raise NfadError(f"{name} has no category {category!r} with published counts; it has {', '.join(known)}")
    domains = ("same", "shifted")  # so that tables which compare domains can be planned
    return [
        Dataset(
            name,
            category,
            tuple(Sample(Path(f"{category} train {i}"), False) for i in range(counts.train or 0)),
            tuple(
                Sample(Path(f"{category} test {i}"), False, domain=domains[i % 2])
                for i in range((counts.good or 0) + (counts.bad or 0))
            ),
        )
        for category, counts in known.items()
        if (category != TOTAL or len(known) == 1) and category in (categories or known)
    ]


def _interventions(config: Config, normals: int) -> int:
    transforms = sum(len(family) for family in families_of(config).values())
    return transforms * (normals if config.pairs is None else min(config.pairs, normals))


def _weights(config: Config) -> list[str]:
    """Where each network's weights will come from."""
    told = []
    if config.teacher in EMBEDDED_ARCHITECTURE and config.weights is None:
        told.append(f"{config.teacher} comes with the installation")
    elif config.weights is None:
        tag = FOUNDATIONS.get(config.teacher, config.teacher)
        told.append(f"{tag} from the hub, or --weights FILE where there is none")
    else:
        told.append(f"{config.teacher} from {config.weights}")
    if config.reference == "student" and not config.student.startswith((UNTRAINED, "embedded")):
        source = config.student_weights or "the hub, or --set student_weights=FILE where there is none"
        told.append(f"{config.student} (student) from {source}")
    return told


@dataclass(frozen=True)
class Cost:
    """Of one image through a network; memory is of the network, and where it is trained of a step of a batch."""

    seconds: float
    operations: float
    memory: int
    kept: int = 0  # bytes of its view and tokens on disk


def _teacher_pass(name: str, blocks: Sequence[int], prior_blocks: Sequence[int], size: int) -> Cost:
    """Weights do not change it, so that none are fetched to find out."""
    weights = None if name in EMBEDDED_ARCHITECTURE else UNTRAINED
    teacher = load_teacher(name, weights, blocks, prior_blocks, size)
    images = torch.zeros(BATCH, 3, size, size)
    held = sum(parameter.nbytes for parameter in teacher.network.parameters())
    tokens = teacher.grid**2
    kept = VIEW * 3 * size**2 + HALF * tokens * sum(teacher.channels) + FLOAT * tokens
    return Cost(*_measured(lambda: teacher.tokens_and_prior(images)), held, kept)


def student_pass(config: Config) -> Cost:
    student = Student.build(config, (768,) * len(config.blocks), initial=False)
    images = torch.zeros(BATCH, 3, config.size, config.size)
    kept: dict[int, int] = {}  # what a backward pass would need, by where it lies

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        student(images)
    trained = sum(parameter.numel() for parameter in student.parameters())
    return Cost(*_measured(lambda: student(images)), ADAM * trained + sum(kept.values()) * config.batch // BATCH)


def _measured(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds and operations an image of a batch."""
    with torch.inference_mode():
        with FlopCounterMode(display=False) as counter:
            work()
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) / BATCH, counter.get_total_flops() / BATCH
