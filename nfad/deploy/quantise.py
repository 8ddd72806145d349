"""8-bit arithmetic for the networks, and everything after them fitted anew to the tokens that 8 bits give.

A residual is what is left when the expected token is taken away, so 8-bit rounding, invisible in a token, is large in
it: with read-outs fitted to 32-bit tokens every normal image stands out. A quantised teacher is another teacher;
fitted as one, it has its own reference, nuisance subspace, map statistics and thresholds, whose stated rate holds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor

from nfad.deploy.graph import Preparing, token_shapes
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.reference.student import Student
from nfad.system.platform import ready_for_openvino
from nfad.system.progress import Progress
from nfad.vision.developing import developed
from nfad.vision.images import load_part, to_view
from nfad.vision.teacher import VitTeacher

CALIBRATION = 64  # images; ranges settle long before


def quantised(networks: onnx.ModelProto, detector: Detector, normals: Sequence[Path]) -> onnx.ModelProto:
    """Views → tokens in 8 bits, with ranges set on normal images."""
    ready_for_openvino()  # NNCF imports it
    try:
        import nncf
    except ImportError:
        raise NfadError("nncf is not installed, which int8 needs; run: pip install 'nfad[export]'") from None
    config = detector.config
    order = np.random.default_rng(config.seed).permutation(len(normals))[:CALIBRATION]
    views = [to_view(load_part(normals[index]), config.size, config.resize)[0][None] for index in order]
    preparing = Preparing(detector)
    seen = [developed(detector.development, preparing(view)[0])[0].numpy() for view in views]
    nncf.set_log_level(logging.ERROR)
    # Smooth quantisation of ONNX models stumbles over a ViT's products of two activations (NNCF 3.4).
    no_smoothing = nncf.AdvancedQuantizationParameters(
        smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(convolution=-1, matmul=-1)
    )
    return nncf.quantize(
        networks,
        nncf.Dataset(seen, lambda view: {"views": view}),
        subset_size=len(views),
        model_type=nncf.ModelType.TRANSFORMER if isinstance(detector.teacher, VitTeacher) else None,
        advanced_parameters=no_smoothing,
    )


class EightBitTeacher:
    """The teacher whose tokens the exported graph will see."""

    def __init__(self, networks: onnx.ModelProto, detector: Detector) -> None:
        import onnxruntime

        self._float, self._names = detector.teacher, list(token_shapes(detector))
        self.identity, self.channels = detector.teacher.identity, detector.teacher.channels
        self.grid, self.device = detector.teacher.grid, detector.teacher.device
        self.region = detector.teacher.region  # painted inside the graph, too
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(networks.SerializeToString(), options)

    def tokens(self, images: Tensor) -> list[Tensor]:
        return self._run(images)[: len(self.channels)]

    def tokens_and_prior(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        found = self._run(images)
        tokens, rest = found[: len(self.channels)], found[len(self.channels) :]
        # The prior is part of the graph only where verdicts use it; interventions need it in any case.
        return tokens, rest[0] if rest else self._float.tokens_and_prior(images)[1]

    def _run(self, images: Tensor) -> list[Tensor]:
        each = [self._session.run(self._names, {"views": image[None].numpy()}) for image in images]
        return [torch.from_numpy(np.concatenate(block)) for block in zip(*each, strict=True)]


def fitted_anew(
    networks: Sequence[onnx.ModelProto], detector: Detector, normals: Sequence[Path], progress: Progress | None = None
) -> Detector:
    """The detector over 8-bit tokens; a student, which would have to be trained again, is taken as it is."""
    if isinstance(detector.scorer.reference, Student):
        return detector
    config = detector.config
    if detector.beside is None:  # the part's evidence is chosen already
        config = config.changed(evidence=detector.choice.evidence if detector.choice else config.candidates[0])
    teachers = [EightBitTeacher(each, look) for each, look in zip(networks, detector.looks, strict=True)]
    return Detector.fit(normals, config, teacher=teachers, progress=progress)
