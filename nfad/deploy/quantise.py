"""8-bit arithmetic for the networks, with ranges set on normal images; pixels and read-outs keep 32 bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.machine import ready_for_openvino
from nfad.vision.images import load_part
from nfad.vision.teacher import VitTeacher

CALIBRATION = 64  # images; ranges settle long before


def quantised(graph: Any, detector: Detector, normals: Sequence[Path], bits: int) -> Any:
    """An ONNX or OpenVINO model, quantised after training."""
    ready_for_openvino()  # NNCF imports it
    try:
        import nncf
    except ImportError:
        raise NfadError("nncf is not installed, which int8 needs; run: pip install 'nfad[export]'") from None
    order = np.random.default_rng(detector.config.seed).permutation(len(normals))[:CALIBRATION]
    chosen = [normals[index] for index in order]
    nncf.set_log_level("ERROR")
    return nncf.quantize(
        graph,
        nncf.Dataset(chosen, lambda path: {"pixels": _pixels(path, bits)}),
        subset_size=len(chosen),
        model_type=nncf.ModelType.TRANSFORMER if isinstance(detector.teacher, VitTeacher) else None,
        # Differences of cosines live in the digits that 8 bits do not have.
        ignored_scope=nncf.IgnoredScope(patterns=["^read_outs/.*", "^pixels/.*"], validate=False),
    )


def _pixels(path: Path, bits: int) -> np.ndarray:
    pixels = load_part(path)
    if pixels.dtype == np.uint8:
        return pixels[None] if bits == 8 else pixels[None].astype(np.uint16) * np.uint16(257)
    return pixels[None] if bits == 16 else (pixels[None] >> 8).astype(np.uint8)
