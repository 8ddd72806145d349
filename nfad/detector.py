"""The whole method on one page: fit on normal images, judge the next one. Read this first.

images → teacher tokens → (reference, nuisance operator) → token maps → pixel maps → score → threshold → Prediction
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nfad.config import Config
from nfad.errors import NfadError
from nfad.fitting import Inputs, Skip, build_scorer, map_statistics, normal_moments, readable, split
from nfad.nuisance import estimate_operator, intervention_moments
from nfad.records import Geometry, Prediction
from nfad.scoring import MAPS, Scorer, calibrate
from nfad.threshold import Threshold, p_value
from nfad.tokens import Progress, TokenStore
from nfad.vision.images import ImageLike, load_part, to_view
from nfad.vision.maps import image_score, pixel_maps
from nfad.vision.teacher import Teacher, load_teacher

Edit = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Scores:
    """What a batch of views gives, as tensors: z-scored pixel maps by read-out, and one number an image."""

    maps: dict[str, Float[Tensor, "image size size"]]
    score: Float[Tensor, " image"]
    control_score: Float[Tensor, " image"]
    gate: Float[Tensor, " image"]
    participation: Float[Tensor, " image"]
    nuisance_fraction: Float[Tensor, " image"]
    nuisance_by_family: dict[str, Float[Tensor, " image"]]

    def numbers(self) -> dict[str, Float[Tensor, " image"]]:
        """The numbers an image that drift is told by, by name."""
        families = {f"nuisance:{family}": share for family, share in self.nuisance_by_family.items()}
        names = ("score", "control_score", "participation", "nuisance_fraction")
        return {name: getattr(self, name) for name in names} | families


@dataclass(frozen=True)
class Detector:
    """A fitted detector. Immutable: another false-alarm rate is another Detector over the same parts."""

    config: Config
    teacher: Teacher
    scorer: Scorer
    normal_maps: dict[str, tuple[float, float]]  # read-out → mean and spread of the fit's pixel maps
    held_out: Threshold
    fitted_on: int  # images the reference has seen
    normals: Mapping[str, tuple[float, ...]]  # of every held-out normal: its scores, participation, nuisance by family

    @classmethod
    def fit(
        cls,
        images: Sequence[ImageLike],
        config: Config | None = None,
        *,
        progress: Progress | None = None,
        skip: Skip | None = None,
        workdir: Path | None = None,
        teacher: Teacher | None = None,
    ) -> Detector:
        """Fit on normal images (paths or uint8/uint16 arrays).

        `skip(image, reason)` is told of unreadable images, which are then left out; without it they raise.
        `workdir` keeps the student's checkpoints, so that an interrupted fit resumes. `teacher` is one already
        loaded for this config, to share it among many fits.
        """
        config = config or Config()
        images = readable(images, skip, progress)
        held, fit = split(len(images), config)
        if teacher is None:
            teacher = load_teacher(config.teacher, config.weights, config.blocks, config.prior_blocks, config.size)
        with tempfile.TemporaryDirectory(prefix="nfad-", dir=workdir) as directory:
            store = TokenStore(teacher, images, config.size, config.resize, config.batch, Path(directory))
            normal = normal_moments(store, teacher, fit, progress)
            moved = intervention_moments(store, teacher, config, fit, progress)
            operator = estimate_operator(config, normal, moved)
            scorer = build_scorer(config, operator, normal, store, teacher, fit, progress, workdir)

            def batches(indices: Tensor, in_fit: bool) -> Iterator[Inputs]:
                for chosen in indices.split(config.batch):
                    tokens, prior = store.read(chosen)
                    views = store.views(chosen) if config.reference == "student" else None
                    yield tokens, views, chosen if in_fit else None, prior if config.foreground else None

            if progress:
                progress("calibrating", 0, len(images))
            scorer = calibrate(scorer, lambda: batches(fit, True))
            normal_maps = map_statistics(config, scorer, batches(fit, True))
            detector = cls(config, teacher, scorer, normal_maps, Threshold((), ()), len(fit), {})
            judged = [detector._from_tokens(*inputs) for inputs in batches(held, False)]
            if progress:
                progress("calibrating", len(images), len(images))
        normals = {
            name: tuple(torch.cat([scores.numbers()[name] for scores in judged]).tolist())
            for name in judged[0].numbers()
        }
        held_out = Threshold(tuple(sorted(normals["score"])), tuple(sorted(normals["control_score"])))
        return dataclasses.replace(detector, held_out=held_out, normals=normals)

    def at_rate(self, false_alarm_rate: float) -> Detector:
        """The same detector at another false-alarm rate; nothing is refitted."""
        self.held_out.supported(false_alarm_rate)
        config = dataclasses.replace(self.config, false_alarm_rate=false_alarm_rate)
        return dataclasses.replace(self, config=config)

    @property
    def false_alarm_rate(self) -> float:
        """The rate the threshold stands for: the one asked for, or the smallest the held-out normals support."""
        return self.held_out.supported(self.config.false_alarm_rate)

    @property
    def threshold(self) -> float:
        return self.held_out.at(self.config.false_alarm_rate)[0]

    def predict(self, images: ImageLike | Sequence[ImageLike]) -> Prediction | list[Prediction]:
        """A Prediction for one image, a list for several. For folders of any size use `predict_stream`."""
        if isinstance(images, (str, Path, np.ndarray)):
            return next(iter(self.predict_stream([images])))
        return list(self.predict_stream(images))

    def predict_stream(
        self,
        images: Iterable[ImageLike],
        skip: Skip | None = None,
        edit: Edit | None = None,
        *,
        ahead: bool = True,
    ) -> Iterator[Prediction]:
        """One Prediction after the other, in order, in memory that does not grow with their number.

        `ahead` judges a batch at a time: faster, but a live source's verdicts come late. Without it each comes at once.
        `edit(view, index)` may change what the model sees of the index-th image, e.g. to test it under a corruption.
        """
        names: list[str] = []
        views: list[Tensor] = []
        geometries: list[Geometry] = []
        for index, image in enumerate(images):
            try:
                view, geometry = to_view(load_part(image), self.config.size, self.config.resize)
            except NfadError as error:
                if skip is None:
                    raise
                skip(image, str(error))
                continue
            names.append("" if isinstance(image, np.ndarray) else str(image))
            views.append(edit(view, index) if edit else view)
            geometries.append(geometry)
            if len(views) == (self.config.batch if ahead else 1):
                yield from self._predictions(names, torch.stack(views), geometries)
                names, views, geometries = [], [], []
        if views:
            yield from self._predictions(names, torch.stack(views), geometries)

    def predict_tensor(self, views: Float[Tensor, "image 3 size size"]) -> Scores:
        """The tensor door: views in [0, 1] at the model's size."""
        if self.config.foreground:
            tokens, prior = self.teacher.tokens_and_prior(views)
            return self._from_tokens(tokens, views, None, prior)
        return self._from_tokens(self.teacher.tokens(views), views)

    def save(self, path: str | Path) -> Path:
        from nfad.artifact import save

        return save(self, Path(path))

    @staticmethod
    def load(path: str | Path, weights: str | None = None) -> Detector:
        """A saved detector; `weights` says where this machine keeps the teacher's weights, if not where the fit did."""
        from nfad.artifact import load

        return load(Path(path), weights)

    def _from_tokens(
        self, tokens: list[Tensor], views: Tensor | None, own: Tensor | None = None, prior: Tensor | None = None
    ) -> Scores:
        with torch.inference_mode():
            out = self.scorer(tokens, views, own, prior)
            maps = {}
            for name in MAPS:
                mean, spread = self.normal_maps[name]
                maps[name] = (pixel_maps(getattr(out, name), self.config.size, self.config.sigma) - mean) / spread
            return Scores(
                maps=maps,
                score=image_score(maps["detection"], self.config.top),
                control_score=image_score(maps["control"], self.config.top),
                gate=out.gate,
                participation=out.participation,
                nuisance_fraction=out.nuisance_fraction,
                nuisance_by_family=out.nuisance_by_family,
            )

    def _predictions(self, names: list[str], views: Tensor, geometries: list[Geometry]) -> Iterator[Prediction]:
        out = self.predict_tensor(views)
        threshold, control_threshold = self.held_out.at(self.config.false_alarm_rate)
        for i, (name, geometry) in enumerate(zip(names, geometries, strict=True)):
            score, control_score = float(out.score[i]), float(out.control_score[i])
            yield Prediction(
                score=score,
                is_anomalous=score > threshold,
                threshold=threshold,
                map=out.maps["localization"][i].numpy(),
                detection_map=out.maps["detection"][i].numpy(),
                control_map=out.maps["control"][i].numpy(),
                gate=float(out.gate[i]),
                participation=float(out.participation[i]),
                nuisance_fraction=float(out.nuisance_fraction[i]),
                nuisance_by_family={family: float(share[i]) for family, share in out.nuisance_by_family.items()},
                control_score=control_score,
                control_threshold=control_threshold,
                excess_filtered=self.held_out.excess_filtered(score, control_score),
                p_value=p_value(self.held_out.detection, score),
                geometry=geometry,
                source=name,
            )
