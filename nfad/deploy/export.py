"""A model file → a folder for a line PC: build the graph, compress it, prove it equal to torch, only then name it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

import nfad
from nfad.deploy.folder import GRAPHS, write_metadata
from nfad.deploy.graph import outputs_of
from nfad.deploy.onnx_graph import Frame, halve_weights, joined, networks_of
from nfad.deploy.parity import LIMITS, Parity, compare, images_for, limits_of
from nfad.deploy.runtime import Runtime
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.records import ANOMALOUS, FAMILY_WORDS, NORMAL, NOT_JUDGED
from nfad.system.checks import one_of
from nfad.system.files import new_folder, sha256_of
from nfad.system.progress import Progress
from nfad.vision.pixels import MAX_PIXELS, MIN_SIDE


@dataclass(frozen=True)
class Options:
    """How a graph is made; the defaults are exact and take images of any size."""

    backend: str = "onnx"
    precision: str = "fp32"
    dynamic_batch: bool = False
    frame: Frame | None = None  # height and width, if every image has the same
    bits: int = 8  # a channel; a graph for 16 takes images of 8, too
    key: bytes | None = field(default=None, repr=False)  # to sign with

    def __post_init__(self) -> None:
        one_of("--to", self.backend, tuple(GRAPHS))
        one_of("--precision", self.precision, tuple(LIMITS))
        if self.bits not in (8, 16):
            raise NfadError(f"--bits must be 8 or 16; got {self.bits}")
        if self.frame and (min(self.frame) < MIN_SIDE or math.prod(self.frame) > MAX_PIXELS):
            raise NfadError(
                f"--frame must have at least {MIN_SIDE} pixels a side and at most {MAX_PIXELS // 10**6} million; "
                f"got {self.frame[0]}x{self.frame[1]}"
            )


def export(
    model: Path,
    out: Path,
    options: Options | None = None,
    normals: Sequence[Path] = (),
    weights: str | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], Parity]:
    """Write `out`, or nothing if its verdicts are not torch's. Gives the metadata of model.json, and the comparison.

    `normals` are images of good parts: the comparison's, and int8's calibration (the fit's own serve best).
    """
    options = options or Options()
    if options.precision == "int8" and not normals:
        raise NfadError(
            "int8 needs images to set its ranges on, and a model file holds none; name the folder of good parts it "
            "was fitted on with --normals FOLDER"
        )
    detector = shipped = Detector.load(model, weights, device="cpu")  # a graph is traced there
    if options.precision == "int8" and detector.config.tiled:
        raise NfadError("int8 is not to be had of a model that looks in tiles; use --precision fp16, or fp32")
    if progress:
        progress("building the graph", 0, 1)
    networks = [networks_of(look, options.dynamic_batch) for look in detector.looks]
    if options.precision == "int8":
        from nfad.deploy.quantise import fitted_anew, quantised

        networks = [quantised(each, look, normals) for each, look in zip(networks, detector.looks, strict=True)]
        shipped = fitted_anew(networks, detector, normals, progress)
    graph = joined(networks, shipped, options.dynamic_batch, options.frame, options.bits)
    if progress:
        progress("building the graph", 1, 1)
    return ship(graph, shipped, model, out, options, normals, progress, beside=detector)


def ship(
    graph: onnx.ModelProto,
    detector: Detector,
    model: Path,
    out: Path,
    options: Options,
    normals: Sequence[Path] = (),
    progress: Progress | None = None,
    beside: Detector | None = None,
) -> tuple[dict[str, Any], Parity]:
    """The rest once the graph of `detector` is built; it is compared with `beside`, or with the detector itself."""
    images, source = images_for(detector, normals, options.frame)
    metadata = metadata_of(detector, model, options)
    with new_folder(out) as folder:
        _write(graph, folder, options)
        write_metadata(folder, metadata, options.key)
        runtime, limits = Runtime.load(folder), limits_of(options.precision, detector)
        parity = compare(beside or detector, runtime, images, source, limits, progress)
        if not parity.passed:
            told = f"{parity}{_if_split_hard(detector)}"
            raise NfadError(f"the exported graph does not agree with torch, so nothing was written: {told}")
        metadata = write_metadata(folder, metadata | {"parity": parity.as_dict()}, options.key)
    return metadata, parity


def _if_split_hard(detector: Detector) -> str:
    """Of a step by which it may be that no graph can agree."""
    if not detector.config.foreground or detector.scorer.split == "soft":
        return ""
    return (
        ". Rounding may decide what this model takes for background, which it does not of one fitted anew: fit it again"
    )


def metadata_of(detector: Detector, model: Path, options: Options) -> dict[str, Any]:
    """All that a line PC needs to know beside the graph; a threshold is changed here, never in the graph."""
    threshold, unfiltered_threshold = detector.held_out.at(detector.config.false_alarm_rate)
    families = detector.scorer.operator.family_names
    return {
        "nfad": nfad.__version__,
        "backend": options.backend,
        "precision": options.precision,
        "input": {
            "name": "pixels", "layout": "n, height, width, RGB", "bits": options.bits, "frame": options.frame,
            "batch": None if options.dynamic_batch else 1,
        },
        "outputs": list(outputs_of(detector)),
        "families": list(families),
        "words": {
            "verdicts": [NORMAL, ANOMALOUS, NOT_JUDGED],
            "families": {family: FAMILY_WORDS.get(family, family) for family in families},
        },
        "threshold": threshold,
        "highest": detector.held_out.highest,
        "narrowest": detector.ratios[0],
        "widest": detector.ratios[1],
        "unfiltered_threshold": unfiltered_threshold,
        "false_alarm_rate": detector.false_alarm_rate,
        "held_out": dataclasses.asdict(detector.held_out),
        "normals": {name: list(values) for name, values in detector.normals.items()},
        "fitted_on": detector.fitted_on,
        "choice": detector.choice and detector.choice.as_dict(),
        "config": detector.config.as_dict(),
        "teacher": dataclasses.asdict(detector.teacher.identity),
        "beside": [dataclasses.asdict(look.teacher.identity) for look in detector.looks[1:]],
        "model": {"name": model.name, "sha256": sha256_of(model)},
    }  # fmt: skip


def _write(graph: onnx.ModelProto, folder: Path, options: Options) -> None:
    half = options.precision == "fp16"
    if options.backend == "onnx":
        onnx.save(halve_weights(graph) if half else graph, folder / "model.onnx")
        return
    try:
        from nfad.deploy import openvino_graph as openvino
    except ImportError:
        raise NfadError("openvino is not installed; run: pip install 'nfad[runtime]'") from None
    model = openvino.convert(graph)
    openvino.ov.save_model(
        openvino.halve_weights(model) if half else model, folder / "model.xml", compress_to_fp16=False
    )
