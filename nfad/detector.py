"""The whole method on one page: fit on normal images, judge the next one. Read this first.

images → teacher tokens → (reference, nuisance operator) → token maps → pixel maps → score → threshold → Prediction
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nfad.config import Config
from nfad.errors import NfadError
from nfad.nuisance import estimate_operator, intervention_moments
from nfad.operator import MomentFitter, Moments
from nfad.records import Geometry, Prediction
from nfad.reference.linear import Linear
from nfad.reference.nearest import Nearest, choose_entries
from nfad.scoring import VIEWS, FilterThenFit, FitThenFilter, Operator, Scorer, calibrate
from nfad.threshold import Threshold, p_value
from nfad.tokens import Progress, TokenStore
from nfad.training import train_student
from nfad.vision.images import ImageLike, load_image, to_view
from nfad.vision.maps import image_score, pixel_maps
from nfad.vision.teacher import Teacher, load_teacher

READ_OUTS = ("control", "detection", "localization")
Skip = Callable[[ImageLike, str], None]
Inputs = tuple[list[Tensor], Tensor | None, Tensor | None, Tensor | None]  # tokens, views, own index, prior


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


@dataclass(frozen=True)
class Detector:
    """A fitted detector. Immutable: another false-alarm rate is another Detector over the same parts."""

    config: Config
    teacher: Teacher
    scorer: Scorer
    normal_maps: dict[str, tuple[float, float]]  # read-out → mean and spread of the fit's pixel maps
    held_out: Threshold
    fitted_on: int  # images the reference has seen

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
        images = _readable(images, skip, progress)
        held, fit = _split(len(images), config)
        if teacher is None:
            teacher = load_teacher(config.teacher, config.weights, config.blocks, config.prior_blocks, config.size)
        with tempfile.TemporaryDirectory(prefix="nfad-", dir=workdir) as directory:
            store = TokenStore(teacher, images, config.size, config.resize, config.batch, Path(directory))
            normal = _moments(store, teacher, fit, progress)
            moved = intervention_moments(store, teacher, config, fit, progress)
            operator = estimate_operator(config, normal, moved)
            scorer = _build_scorer(config, operator, normal, store, teacher, fit, progress, workdir)

            def batches(indices: Tensor, in_fit: bool) -> Iterator[Inputs]:
                for chosen in indices.split(config.batch):
                    tokens, prior = store.read(chosen)
                    views = store.views(chosen) if config.reference == "student" else None
                    yield tokens, views, chosen if in_fit else None, prior if config.foreground else None

            if progress:
                progress("calibrating", 0, len(images))
            scorer = calibrate(scorer, lambda: batches(fit, True))
            normal_maps = _map_statistics(config, scorer, batches(fit, True))
            detector = cls(config, teacher, scorer, normal_maps, Threshold((), ()), len(fit))
            judged = [detector._from_tokens(*inputs) for inputs in batches(held, False)]
            if progress:
                progress("calibrating", len(images), len(images))
        held_out = Threshold(
            detection=tuple(torch.cat([scores.score for scores in judged]).sort().values.tolist()),
            control=tuple(torch.cat([scores.control_score for scores in judged]).sort().values.tolist()),
        )
        return dataclasses.replace(detector, held_out=held_out)

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

    def predict_stream(self, images: Iterable[ImageLike], skip: Skip | None = None) -> Iterator[Prediction]:
        """One Prediction after the other, in order, in memory that does not grow with their number."""
        names: list[str] = []
        views: list[Tensor] = []
        geometries: list[Geometry] = []
        for image in images:
            try:
                view, geometry = to_view(load_image(image), self.config.size, self.config.resize)
            except NfadError as error:
                if skip is None:
                    raise
                skip(image, str(error))
                continue
            names.append("" if isinstance(image, np.ndarray) else str(image))
            views.append(view)
            geometries.append(geometry)
            if len(views) == self.config.batch:
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
            for name in READ_OUTS:
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
            score = float(out.score[i])
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
                control_score=float(out.control_score[i]),
                control_threshold=control_threshold,
                p_value=p_value(self.held_out.detection, score),
                geometry=geometry,
                source=name,
            )


def _readable(images: Sequence[ImageLike], skip: Skip | None, progress: Progress | None) -> list[ImageLike]:
    """Every image is opened once before the long work begins: a bad one shows up now, not in an hour."""
    good: list[ImageLike] = []
    images = list(images)
    for index, image in enumerate(images):
        try:
            load_image(image)
            good.append(image)
        except NfadError as error:
            if skip is None:
                raise
            skip(image, str(error))
        if progress and (index % 16 == 15 or index + 1 == len(images)):
            progress("checking images", index + 1, len(images))
    if len(good) < 8:
        raise NfadError(f"a fit needs at least 8 readable normal images; got {len(good)}")
    return good


def _split(count: int, config: Config) -> tuple[Tensor, Tensor]:
    """Held-out and fitted images, at random by the seed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(config.seed))
    held = min(max(1, round(config.holdout * count)), count - 4)
    return order[:held].sort().values, order[held:].sort().values


def _moments(store: TokenStore, teacher: Teacher, fit: Tensor, progress: Progress | None) -> list[Moments]:
    fitters = [MomentFitter() for _ in teacher.channels]
    for indices, tokens, _ in store.fill(progress):
        chosen = torch.isin(indices, fit)
        if chosen.any():
            for fitter, block in zip(fitters, tokens, strict=True):
                fitter.update(block[chosen])
    return [fitter.freeze() for fitter in fitters]


def _build_scorer(
    config: Config,
    operator: Operator,
    normal: list[Moments],
    store: TokenStore,
    teacher: Teacher,
    fit: Tensor,
    progress: Progress | None,
    workdir: Path | None,
) -> Scorer:
    """The one place where a reference and an order are put together."""
    if config.reference == "student":

        def batch_of(positions: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
            tokens, prior = store.read(fit[positions])
            return store.views(fit[positions]), tokens, prior

        def report(epoch: int, epochs: int, loss: float) -> None:
            if progress:
                progress(f"training the student (loss {loss:.4f})", epoch, epochs)

        checkpoint = workdir / "student.safetensors" if workdir else None
        student = train_student(
            config, teacher.channels, len(fit), batch_of, checkpoint=checkpoint, progress=report, grid=teacher.grid
        )
        return FitThenFilter(operator, student, gate_by=config.gate)
    if config.reference == "nearest":
        banks = _banks(config, store, teacher, fit)
        if config.order == "fit-then-filter":
            return FitThenFilter(operator, banks, gate_by=config.gate)
        references = {
            view: tuple(Nearest.filtered(bank, operator.removed(view, index)) for index, bank in enumerate(banks))
            for view in VIEWS
        }
        return FilterThenFit(operator, references, gate_by=config.gate, common_mode=config.common_mode)
    if config.order == "fit-then-filter":
        linear = tuple(Linear.fit(moments, config.variance) for moments in normal)
        return FitThenFilter(operator, linear, gate_by=config.gate)
    references = {
        view: tuple(
            Linear.fit(moments, config.variance, operator.removed(view, index)) for index, moments in enumerate(normal)
        )
        for view in VIEWS
    }
    return FilterThenFit(operator, references, gate_by=config.gate, common_mode=config.common_mode)


def _banks(config: Config, store: TokenStore, teacher: Teacher, fit: Tensor) -> tuple[Nearest, ...]:
    entries = choose_entries(len(fit), teacher.grid**2, config.bank, config.seed)
    owner = fit[entries[:, 0]]
    rows: list[list[Tensor]] = [[] for _ in teacher.channels]
    for chosen in fit.split(config.batch):
        tokens, _ = store.read(chosen)
        for position, image in enumerate(chosen.tolist()):
            picked = entries[owner == image, 1]
            for block, t in enumerate(tokens):
                rows[block].append(t[position, picked])
    return tuple(Nearest(torch.cat(block), owner) for block in rows)


def _map_statistics(config: Config, scorer: Scorer, batches: Iterable[Inputs]) -> dict[str, tuple[float, float]]:
    """Scalar mean and spread over all pixels of each read-out's training maps."""
    sums = {name: np.zeros(3) for name in READ_OUTS}
    with torch.inference_mode():
        for inputs in batches:
            out = scorer(*inputs)
            for name in READ_OUTS:
                maps = pixel_maps(getattr(out, name), config.size, config.sigma).double()
                sums[name] += np.array([maps.numel(), maps.sum(), maps.square().sum()])
    statistics = {}
    for name, (count, total, squares) in sums.items():
        mean = total / count
        statistics[name] = (float(mean), float(max(np.sqrt(max(squares / count - mean**2, 0)), 1e-12)))
    return statistics
