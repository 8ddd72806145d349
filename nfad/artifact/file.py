"""A detector on disk: one safetensors file whose header carries JSON. No pickle, and nothing is taken on trust."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from nfad.artifact.formats import DEVELOPED, FORMAT, OLDEST, upgraded, with_regions
from nfad.config import Config
from nfad.errors import NfadError
from nfad.reference.judgeable import Judgeable
from nfad.reference.linear import Linear
from nfad.reference.nearest import Nearest
from nfad.reference.placed import Placed
from nfad.reference.reading import Reading
from nfad.reference.scoring import MapStatistics, Operator, Scorer, scorer_settings
from nfad.reference.student import Student
from nfad.system.files import replacing, sha256_of
from nfad.verdict.choice import Choice
from nfad.verdict.prediction import ANY_RATIO
from nfad.verdict.threshold import Threshold
from nfad.vision.developing import Development
from nfad.vision.devices import CPU
from nfad.vision.photo import NUMBERS
from nfad.vision.pose import Pose
from nfad.vision.region import Region
from nfad.vision.teacher import Teacher
from nfad.vision.tiles import looking_at, tiled_teacher
from nfad.vision.weights import state_digest

BESIDE = "beside."  # before the names of the second look's tensors; twice of the third, and so on
Part = TypeVar("Part")


@dataclass(frozen=True)
class Fitted:
    """All that a fit leaves behind, and all that a model file holds."""

    config: Config
    teacher: Teacher
    scorer: Scorer
    normal_maps: MapStatistics
    held_out: Threshold
    fitted_on: int  # images the reference has seen
    normals: Mapping[str, tuple[float, ...]]  # of every held-out normal: its scores, participation, nuisance by family
    judgeable: Judgeable | None = None  # None where every photo is judged (acquisitions=0)
    choice: Choice | None = None  # of the evidence, where there was one
    ratios: tuple[float, float] = ANY_RATIO  # of width to height, within which a photo is judged
    pose: Pose | None = None  # by which parts are turned to lie alike, or photos steadied; None: as taken
    development: Development | None = None  # of every photo before a network looks at it; None: as taken
    beside: Fitted | None = None  # another teacher's look at the same view, and so on; the mean of all counts
    joined: str = "maps"  # or (of tiles, and before format 12) "scores": what of all looks is averaged
    strange_to: str = "all"  # or, before format 16, "any": whose strangeness counts, of several looks
    sha256: str = ""  # of the file it was loaded from


def save(detector: Fitted, path: Path) -> Path:
    """A model file is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return _write({"format": FORMAT, **_header(detector)}, _tensors(detector), path)


def _header(detector: Fitted) -> dict[str, Any]:
    return {
        "config": detector.config.as_dict(),
        "teacher": dataclasses.asdict(detector.teacher.identity),
        "families": [list(names) for names in detector.scorer.operator.families],
        "tau": detector.scorer.tau,
        "normal_maps": detector.normal_maps,
        "held_out": dataclasses.asdict(detector.held_out),
        "fitted_on": detector.fitted_on,
        "normals": detector.normals,
        "reading": detector.scorer.reading and detector.scorer.reading.as_dict(),
        "choice": detector.choice and detector.choice.as_dict(),
        "ratios": detector.ratios,
        "pose": detector.pose and {name: getattr(detector.pose, name) for name in ("ratio", "half", "even", "trimmed")},
        "beside": detector.beside and _header(detector.beside),
        "joined": detector.joined,
        "strange_to": detector.strange_to,
        "split": detector.scorer.split,
    }


def _write(header: Mapping[str, Any], tensors: dict[str, Tensor], path: Path) -> Path:
    text = json.dumps(header, sort_keys=True)
    with replacing(path) as file:
        file.write(to_bytes(tensors, metadata={"nfad": text, "sha256": _digest(text, tensors)}))
    return path


def upgrade(path: Path) -> int:
    """Write a file of an older format anew, after its old content was kept beside it; returns the format it had."""
    header, tensors = _stored(path)
    if header["format"] < FORMAT:
        kept = path.with_name(f"{path.name}.format-{header['format']}")
        if kept.exists():
            raise NfadError(f"{kept} exists, where the old file would be kept; move it away first")
        with path.open("rb") as old, replacing(kept) as file:
            shutil.copyfileobj(old, file)
        _write(upgraded(header), with_regions(tensors), path)
    return header["format"]


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The checked contents of a model file, in today's format; its "format" is the file's own."""
    header, tensors = _stored(path)
    if header["format"] == FORMAT:
        return header, tensors
    return upgraded(header) | {"format": header["format"]}, with_regions(tensors)


def _stored(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """As it is in the file."""
    if path.is_dir():
        raise NfadError(f"{path} is a folder; name a model file written by `nfad fit`")
    if not path.is_file():
        raise NfadError(f"{path} does not exist; name a model file written by `nfad fit`")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies lie as torch lays tensors out: where a file has them, products may differ in the last bit.
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise NfadError(f"{path} is not a whole nfad model ({error}); copy it again or refit") from None
    if "nfad" not in metadata:
        raise NfadError(f"{path} is a safetensors file, but not a model written by `nfad fit`")
    if _digest(metadata["nfad"], tensors) != metadata.get("sha256"):
        raise NfadError(f"{path} was changed after it was written (its checksum differs); copy it again or refit")
    header = json.loads(metadata["nfad"])
    if header["format"] < OLDEST:
        raise NfadError(
            f"{path} has format {header['format']}, which lacks numbers of its normals, and {OLDEST} is the oldest "
            "that is read; fit it again"
        )
    if header["format"] < DEVELOPED and "development.white" in tensors:
        raise NfadError(f"{path} develops photos as no version since does (format {header['format']}); fit it again")
    if header["format"] > FORMAT:
        raise NfadError(
            f"{path} has format {header['format']}, newer than this nfad reads ({FORMAT}); upgrade: pip install -U nfad"
        )
    return header, tensors


def load(path: Path, weights: str | None = None, device: torch.device = CPU) -> Fitted:
    """`weights` are those of the first teacher, where this machine keeps them."""
    header, tensors = read_header(path)
    return dataclasses.replace(_fitted(path, header, tensors, weights, device), sha256=sha256_of(path))


def _fitted(
    path: Path, header: Mapping[str, Any], tensors: dict[str, Tensor], weights: str | None, device: torch.device
) -> Fitted:
    config = Config.from_dict(header["config"])
    if weights is not None:
        config = dataclasses.replace(config, weights=weights)
    teacher = tiled_teacher(*config.sight, device)
    if header["teacher"]["sha256"] not in ("", teacher.identity.sha256):
        raise NfadError(
            f"{path} was fitted with {header['teacher']['architecture']} weights of SHA-256 "
            f"{header['teacher']['sha256'][:12]}…, but those found here have {teacher.identity.sha256[:12]}…; "
            "pass the original file as weights=FILE (--weights)"
        )
    region = Region(tensors["region"].bool()) if "region" in tensors else None
    beside = None
    if header["beside"]:
        within = {key.removeprefix(BESIDE): tensor for key, tensor in tensors.items() if key.startswith(BESIDE)}
        beside = _fitted(path, header["beside"], within, None, device)
    return Fitted(
        config=config,
        teacher=teacher if region is None else looking_at(teacher, region),
        scorer=_scorer(config, header, tensors, teacher),
        normal_maps={name: tuple(pair) for name, pair in header["normal_maps"].items()},
        held_out=Threshold(**{name: tuple(scores) for name, scores in header["held_out"].items()}),
        fitted_on=header["fitted_on"],
        normals={name: tuple(values) for name, values in header["normals"].items()},
        judgeable=_part(Judgeable, "judgeable", tensors) if "judgeable.mean" in tensors else None,
        choice=header["choice"] and Choice.from_dict(header["choice"]),
        ratios=tuple(header["ratios"]),
        pose=header["pose"] and _pose(header["pose"], tensors),
        development=_part(Development, "development", tensors) if "development.white" in tensors else None,
        beside=beside,
        joined=header["joined"],
        strange_to=header["strange_to"],
    )


def _pose(header: Mapping[str, Any], tensors: dict[str, Tensor]) -> Pose:
    drawn = tensors["pose.drawing"], tensors.get("pose.sketch")
    # Before format 12 nothing was evened, and before 13 what a moved photo does not show counted, too.
    return Pose(header["ratio"], tuple(header["half"]), *drawn, header.get("even", 0.0), header.get("trimmed", False))


def _tensors(detector: Fitted) -> dict[str, Tensor]:
    tensors = _of_look(detector.scorer, detector.judgeable)
    if detector.teacher.region is not None:
        tensors["region"] = detector.teacher.region.seen.to(torch.uint8)
    if detector.pose is not None:
        drawn = {"pose.drawing": detector.pose.drawing, "pose.sketch": detector.pose.sketch}
        tensors |= {key: tensor.clone() for key, tensor in drawn.items() if tensor is not None}  # both looks share them
    if detector.development is not None:
        tensors |= {key: tensor.clone() for key, tensor in _parts("development", detector.development).items()}
    if detector.beside is not None:
        tensors |= {BESIDE + key: tensor for key, tensor in _tensors(detector.beside).items()}
    return tensors


def _of_look(scorer: Scorer, judgeable: Judgeable | None) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for index, placed in enumerate(scorer.placed or ()):
        tensors |= _parts(f"placed.{index}", placed)
    if scorer.reading is not None:
        tensors |= {"reading.weights": scorer.reading.weights, "reading.photo": scorer.reading.photo}
    if judgeable is not None:
        tensors |= _parts("judgeable", judgeable)
    tensors |= {f"operator.{index}.basis": basis for index, basis in enumerate(scorer.operator.bases)}
    tensors |= {f"operator.{index}.keep": keep for index, keep in enumerate(scorer.operator.keep or ())}
    references = {"raw": scorer.reference, "filtered": scorer.filtered or ()}
    if isinstance(scorer.reference, Student):
        tensors |= {f"student.{key}": value for key, value in scorer.reference.state_dict().items()}
        references = {}
    for view, blocks in references.items():
        for index, reference in enumerate(blocks):
            tensors |= _parts(f"reference.{view}.{index}", reference)
    return {key: tensor.detach().cpu().clone().contiguous() for key, tensor in tensors.items()}


def _scorer(config: Config, header: Mapping[str, Any], tensors: dict[str, Tensor], teacher: Teacher) -> Scorer:
    blocks = range(len(config.blocks))
    operator = Operator(
        bases=tuple(tensors[f"operator.{index}.basis"] for index in blocks),
        families=tuple(tuple(names) for names in header["families"]),
        keep=tuple(tensors[f"operator.{index}.keep"] for index in blocks) if config.gate else None,
    )
    placed = (
        tuple(_part(Placed, f"placed.{index}", tensors) for index in blocks) if "placed.0.white" in tensors else None
    )
    photo = tensors.get("reading.photo", torch.zeros(len(NUMBERS)))  # before format 11 it told nothing of the light
    reading = header["reading"] and Reading(weights=tensors["reading.weights"], photo=photo, **header["reading"])
    kept = {"tau": header["tau"], "split": header["split"], "placed": placed, "reading": reading}
    kept |= scorer_settings(config)
    if config.reference == "student":
        state = {k.removeprefix("student."): v for k, v in tensors.items() if k.startswith("student.")}
        student = Student.from_state(config, teacher.channels, state, grid=teacher.grid).to(teacher.device)
        return Scorer(operator, student, **kept)
    kind = Linear if config.reference == "linear" else Nearest

    def view(name: str) -> tuple:
        parts = [_part(kind, f"reference.{name}.{index}", tensors) for index in blocks]
        return tuple(part.to(teacher.device) if isinstance(part, Nearest) else part for part in parts)

    filtered = view("filtered") if any(key.startswith("reference.filtered.") for key in tensors) else None
    return Scorer(operator, view("raw"), filtered, **kept)


def _parts(prefix: str, part: Any) -> dict[str, Tensor]:
    """A dataclass of tensors, by name."""
    return {f"{prefix}.{field.name}": getattr(part, field.name) for field in dataclasses.fields(part)}


def _part(kind: type[Part], prefix: str, tensors: dict[str, Tensor]) -> Part:
    """And back."""
    names = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    return kind(**{name: tensors[f"{prefix}.{name}"] for name in names})


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    return hashlib.sha256((text + state_digest(tensors)).encode()).hexdigest()
