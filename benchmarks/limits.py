"""What this machine could do at best, and how much a model asks of it, for `deploy.py`."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import torch

from nfad import Detector


def peak(precision: str) -> float:
    """GFLOP/s of the machine's best product of two large matrices."""
    import openvino as ov
    from openvino import opset13 as ops

    n = 2048
    x = ops.parameter([n, n], np.float32)
    w = np.random.default_rng(0).integers(-127, 128, (n, n)).astype(np.float32)
    left, right = x, ops.constant(w)
    if precision == "int8":
        left = ops.fake_quantize(x, *[np.float32(v) for v in (0, 255, 0, 255)], 256)
        right = ops.fake_quantize(right, *[np.float32(v) for v in (-127, 127, -127, 127)], 255)
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    product = ov.compile_model(ov.Model([ops.matmul(left, right, False, False)], [x]), "CPU", settings)
    given = np.random.default_rng(1).integers(0, 256, (n, n)).astype(np.float32)
    best = np.inf
    for _ in range(12):
        started = time.perf_counter()
        product(given)
        best = min(best, time.perf_counter() - started)
    if precision == "fp32":  # whichever library multiplies best here
        left, right = torch.from_numpy(given), torch.from_numpy(w)
        for _ in range(12):
            started = time.perf_counter()
            left @ right
            best = min(best, time.perf_counter() - started)
    return 2 * n**3 / best / 1e9


def gflop(detector: Detector) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counted:
        detector.predict_tensor(torch.rand(1, 3, detector.config.size, detector.config.size))
    return counted.get_total_flops() / 1e9


def instructions() -> str:
    """What the CPU multiplies with: 8 bits are fast only where it has instructions for them (VNNI)."""
    flags = Path("/proc/cpuinfo").read_text()
    known = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8")
    return ", ".join(flag for flag in known if re.search(rf"\b{flag}\b", flags))
