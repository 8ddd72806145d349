"""Which look at a part finds its defects: all candidates are fitted, and the default is kept unless another finds more.

No real defect is seen. Every candidate judges the same synthetic ones, on normals that its reference has not seen, as
taken and under acquisitions, at thresholds of the same rates (`fitting/verdicts.py`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nfad.config import Config
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.system.progress import Progress, Skip, named
from nfad.system.results import key_of
from nfad.verdict.choice import Candidate, first_of_the_best
from nfad.vision.devices import device_of
from nfad.vision.images import ImageLike
from nfad.vision.teacher import Teacher
from nfad.vision.tiles import tiled_teacher

# Name, preset, and what is changed of it. The default comes first: where synthetic defects cannot tell candidates
# apart, several teachers are surprised by less than one. Then from the cheapest to the dearest.
CANDIDATES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "embedded-all": ("embedded-all", {}),
    "embedded-fast": ("embedded-fast", {}),
    "embedded-fast, 448²": ("embedded-fast", {"size": 448}),
    "embedded-both": ("embedded-both", {}),
}
LOOKS = 5  # whose median is a photo's time


def fit_auto(
    images: Sequence[ImageLike],
    *,
    budget: float | None = None,
    progress: Progress | None = None,
    skip: Skip | None = None,
    doubt: Skip | None = None,
    strict: bool = False,
    mask: ImageLike | None = None,
    workdir: Path | None = None,
    device: str = "auto",
    **changes: Any,
) -> Detector:
    """A detector by the candidate that suits these images; `choice.candidates` of it says what each would find.

    `budget` is the most milliseconds that a photo may take in a network on this machine: what takes longer is not
    fitted. `changes` are settings of all candidates. In `workdir` finished candidates are kept, so that an interrupted
    fit goes on. The rest is as in `Detector.fit`.
    """
    fitted: dict[str, Detector] = {}
    tried: list[Candidate] = []
    told = False  # photos that cannot be read, or may not belong, are told of once
    for name, (preset, own) in CANDIDATES.items():
        config = Config.preset(preset, **changes | dict(own))
        if not config.acquisitions:
            raise NfadError("auto chooses by synthetic defects, which need acquisitions: leave acquisitions=0 out")
        teachers = [tiled_teacher(*look.sight, device_of(device)) for look in config.looks]
        took = sum(_milliseconds(teacher, config.size) for teacher in teachers)
        if budget is not None and took > budget:
            tried.append(Candidate(name, took))
            continue
        kept = None if workdir is None else workdir / f"{_key(images, config, strict, mask)}.nfad"
        if kept is not None and kept.is_file():
            detector = Detector.load(kept, device=device)
        else:
            detector = Detector.fit(
                images,
                config,
                progress=named(progress, name),
                skip=_nobody if told and skip is not None else skip,
                doubt=None if told else doubt,
                strict=strict,
                mask=mask,
                teacher=teachers,
            )
            told = True
            if kept is not None:
                detector.save(kept)
        assert detector.choice is not None
        tried.append(Candidate(name, took, detector.choice.evidence, detector.choice.found_by_evidence))
        fitted[name] = detector
    if not fitted:
        fastest = min(tried, key=lambda each: each.milliseconds)
        raise NfadError(
            f"no candidate looks at a photo in {budget:g} ms on this machine: {fastest.name} takes "
            f"{fastest.milliseconds:.0f} ms; raise the budget"
        )
    return _chosen(fitted, tried)


def _chosen(fitted: Mapping[str, Detector], tried: Sequence[Candidate]) -> Detector:
    by_name = {name: detector.choice for name, detector in fitted.items() if detector.choice is not None}
    name = first_of_the_best(tried, min(choice.defects for choice in by_name.values()))
    choice = dataclasses.replace(by_name[name], chosen=name, candidates=tuple(tried))
    return dataclasses.replace(fitted[name], choice=choice, sha256="")


def _milliseconds(teacher: Teacher, size: int) -> float:
    """Of one photo in its network, the first look apart."""
    times = []
    for _ in range(LOOKS + 1):
        start = time.perf_counter()
        teacher.tokens(torch.zeros(1, 3, size, size))
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def _key(images: Sequence[ImageLike], config: Config, strict: bool, mask: ImageLike | None) -> str:
    """Of all that decides a fit; a file counts by its name, size and time."""

    def told(image: ImageLike) -> list[object]:
        if isinstance(image, np.ndarray):
            return [hashlib.sha256(image.tobytes()).hexdigest(), *image.shape]
        status = Path(image).stat() if Path(image).is_file() else None
        return [str(image), *((status.st_size, status.st_mtime_ns) if status else ())]

    of = {"images": [told(image) for image in images], "mask": [] if mask is None else told(mask), "strict": strict}
    return key_of(of | {"config": config.as_dict()})


def _nobody(_: object, __: str) -> None:
    """Told already."""
