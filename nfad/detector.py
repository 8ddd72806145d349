"""The whole method on one page: fit on normal images, judge the next one. Read this first.

photo → view, developed → teacher tokens → (reference, nuisance operator) → token maps → pixel maps → score → Prediction
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nfad.artifact import file as artifact
from nfad.artifact.file import Fitted
from nfad.config import Config
from nfad.errors import NfadError
from nfad.fitting.calibration import Calibrated, as_taken, split
from nfad.fitting.developing import development_of
from nfad.fitting.doubts import doubts_of_views, doubts_told, is_empty, thumbnails
from nfad.fitting.joining import joined
from nfad.fitting.nuisance import estimate_operator, intervention_moments
from nfad.fitting.posing import lying_off, pose_of
from nfad.fitting.reference import build_scorer, normal_moments
from nfad.fitting.tokens import TokenCache
from nfad.fitting.verdicts import in_all_lights
from nfad.fitting.views import ViewCache, check_enough, judged_ratios
from nfad.presets import DEFAULT
from nfad.records import Geometry, Prediction
from nfad.reference.judgeable import quarter_tokens
from nfad.reference.scoring import Scores, Sighting, z_scored
from nfad.system.progress import Progress, Skip, named
from nfad.verdict.prediction import ANY_RATIO, Outputs, Rule
from nfad.verdict.strange import why_strange
from nfad.vision.developing import Developing, developed
from nfad.vision.devices import device_of
from nfad.vision.images import ImageLike, load_part, to_view
from nfad.vision.photo import photo_numbers
from nfad.vision.pose import Boxes, shown_by
from nfad.vision.region import Region, looked_at
from nfad.vision.teacher import Teacher
from nfad.vision.tiles import Tiled, looking_at, tiled_teacher


class Detector(Fitted):
    """A fitted detector. Immutable: another false-alarm rate is another Detector over the same parts."""

    beside: Detector | None = None  # narrower than a Fitted's

    @classmethod
    def fit(
        cls,
        images: Sequence[ImageLike],
        config: Config | None = None,
        *,
        progress: Progress | None = None,
        skip: Skip | None = None,
        doubt: Skip | None = None,
        strict: bool = False,
        mask: ImageLike | None = None,
        workdir: Path | None = None,
        teacher: Teacher | Sequence[Teacher] | None = None,
        device: str = "auto",
    ) -> Detector:
        """Fit on normal images (paths or uint8/uint16 arrays).

        `skip(image, reason)` is told of unreadable images, which are then left out; without it they raise.
        `doubt(image, reason)` is told of images that may not belong: copies, empty ones, other parts, likely defects.
        All but the empty ones are fitted on all the same; other parts do not widen what is judged. With `strict` there
        is no detector of such images: an error names them, copies and empty ones before the work begins.
        `mask` is an image of the photos' shape, bright where to look: what lies under the rest moves no verdict.
        `workdir` keeps the student's checkpoints, so that an interrupted fit resumes. `teacher` is one already loaded
        for this config, to share it among many fits, or one for each look. `device` is where networks run (auto, cpu,
        cuda, cuda:1, mps, xpu), unless a teacher says so; it is no part of the model.
        """
        config = config or Config.preset(DEFAULT)
        if mask is not None and config.reference == "student":
            raise NfadError("a student looks at whole photos; leave the mask out or choose another reference")
        if mask is not None and config.pose in ("turned", "steadied"):
            raise NfadError(f"a mask is drawn on photos as taken: leave it out, or pose={config.pose!r}")
        where = device_of(device)  # a device that is not there is told of now, not after all images are read
        with tempfile.TemporaryDirectory(prefix="nfad-", dir=workdir) as folder:
            directory = Path(folder)
            views = ViewCache.read(images, config.size, config.resize, directory, skip, progress, config.room)
            region = None if mask is None else Region.read(mask, views.images[0], config.size, config.resize)
            thumbs = thumbnails(views, region)  # as taken
            doubts = list(doubts_of_views(thumbs, views.images))
            if strict and doubts:
                raise NfadError(doubts_told(doubts, views.images))
            every = (~is_empty(thumbs)).nonzero()[:, 0]
            check_enough(len(every))
            held, fit = (every, every) if config.cross_fitted else (every[some] for some in split(len(every), config))
            views.pose = None if region is not None else pose_of(config, views, every)
            development = development_of(config, views, every, region)
            done = {"pose": "as taken" if views.pose is None else views.pose.name, "developed": development is not None}
            config = dataclasses.replace(config, **done)
            ratios = judged_ratios(views.ratios) if config.acquisitions and config.resize is None else ANY_RATIO

            def look(config: Config, teacher: Teacher, progress: Progress | None) -> tuple[Teacher, Calibrated]:
                if config.tiled and not isinstance(teacher, Tiled):
                    raise NfadError(f"tiles need a teacher of their own, not {type(teacher).__name__}; leave it out")
                if region is not None:
                    teacher = looking_at(teacher, region)
                seeing = teacher if development is None else Developing(teacher, development)
                with tempfile.TemporaryDirectory(dir=directory) as own:
                    cache = TokenCache(seeing, views, config.at_once, Path(own), room=config.room)
                    normal = normal_moments(cache, seeing, fit, progress)
                    moved = intervention_moments(cache, seeing, config, fit, progress)
                    operator = estimate_operator(config, normal, moved)
                    scorer = build_scorer(config, operator, normal, cache, seeing, fit, progress, workdir)
                    calibrate = in_all_lights if config.acquisitions else as_taken
                    return teacher, calibrate(config, scorer, cache, seeing, held, fit, Path(own), progress)

            alike = {"ratios": ratios, "pose": views.pose, "development": development}
            looks = config.looks
            given = () if teacher is None else teacher if isinstance(teacher, Sequence) else (teacher,)
            # Teachers that cannot be had are told of now.
            teachers = [*given, *(tiled_teacher(*each.sight, where) for each in looks[len(given) :])]
            task = (progress,) if len(looks) == 1 else (named(progress, each.teacher) for each in looks)
            found = [look(*each) for each in zip(looks, teachers, task, strict=True)]
            teachers = [each for each, _ in found]
            calibrated, *others = joined([each for _, each in found], config) if len(looks) > 1 else [found[0][1]]
            beside = None
            for its, own, also in reversed([*zip(looks[1:], teachers[1:], others, strict=True)]):
                beside = cls(its, own, fitted_on=len(fit), beside=beside, **alike, **also.kept)
            if views.pose is not None and views.pose.name == "steadied":
                of = held if calibrated.seen is None else calibrated.seen.images[calibrated.seen.taken]
                moved = {"moved": lying_off(views.pose, views, every, of)}
                calibrated = dataclasses.replace(calibrated, normals={**calibrated.normals, **moved})
        doubts += calibrated.doubts
        if strict and doubts:
            raise NfadError(doubts_told(doubts, views.images))
        if doubt:
            for place, why in doubts:
                doubt(views.images[place], why)
        return cls(config, teachers[0], fitted_on=len(fit), beside=beside, **alike, **calibrated.kept)

    def at_rate(self, false_alarm_rate: float) -> Detector:
        """The same detector at another false-alarm rate; nothing is refitted."""
        self.held_out.supported(false_alarm_rate)
        config = dataclasses.replace(self.config, false_alarm_rate=false_alarm_rate)
        return dataclasses.replace(self, config=config)

    @property
    def false_alarm_rate(self) -> float:
        """The rate the threshold stands for: the one asked for, or the smallest the held-out normals support."""
        return self.held_out.supported(self.config.false_alarm_rate)

    @cached_property
    def rule(self) -> Rule:
        return Rule.at(self.held_out, self.config.false_alarm_rate, self.ratios)

    @property
    def threshold(self) -> float:
        return self.rule.threshold

    @property
    def looks(self) -> tuple[Detector, ...]:
        """Itself, and those beside it."""
        return (self,) if self.beside is None else (self, *self.beside.looks)

    @property
    def seeing(self) -> Teacher:
        """Its teacher, which looks at photos as they are developed."""
        return self.teacher if self.development is None else Developing(self.teacher, self.development)

    @property
    def architecture(self) -> str:
        return ", ".join(look.teacher.identity.architecture for look in self.looks)

    @property
    def exported(self) -> str:
        return ""

    @overload
    def predict(self, images: ImageLike) -> Prediction: ...
    @overload
    def predict(self, images: Sequence[ImageLike]) -> list[Prediction]: ...
    def predict(self, images: ImageLike | Sequence[ImageLike]) -> Prediction | list[Prediction]:
        """A Prediction for one image, a list for several. For folders of any size use `predict_stream`."""
        if isinstance(images, (str, Path, np.ndarray)):
            return next(iter(self.predict_stream([images])))
        return list(self.predict_stream(images))

    def predict_stream(
        self, images: Iterable[ImageLike], skip: Skip | None = None, *, prefetch: bool = True
    ) -> Iterator[Prediction]:
        """One Prediction after the other, in order, in memory that does not grow with their number.

        `prefetch` judges a batch at a time: faster, but a live source's verdicts come late. Without it each comes at
        once. `skip(image, reason)` is told of unreadable images, which are then left out; without it they raise.
        """
        seen: list[tuple[str, Tensor, Geometry]] = []

        for image in images:
            try:
                view, geometry = to_view(load_part(image), self.config.size, self.config.resize)
            except NfadError as error:
                if skip is None:
                    raise
                skip(image, str(error))
                continue
            seen.append(("" if isinstance(image, np.ndarray) else str(image), view, geometry))
            if len(seen) == (self.config.at_once if prefetch else 1):
                yield from self._judged(seen)
                seen = []
        if seen:
            yield from self._judged(seen)

    def predict_views(self, views: Float[Tensor, "image 3 size size"]) -> list[Prediction]:
        """The same for views in [0, 1] at the model's size, e.g. changed on purpose."""
        return self._judged([("", view, None) for view in views])

    def _judged(self, seen: Sequence[tuple[str, Tensor, Geometry | None]]) -> list[Prediction]:
        """Of named views, and where they lie in their photos."""
        out = self.predict_tensor(torch.stack([view for _, view, _ in seen]))
        maps = {name: each.numpy() for name, each in out.maps.items()}
        shown = maps.get("localization", maps["detection"])
        return [
            self.rule(
                Outputs(
                    score=float(out.score[index]),
                    unfiltered_score=float(out.unfiltered_score[index]),
                    map=shown[index],
                    unfiltered_map=maps["control"][index],
                    participation=float(out.participation[index]),
                    nuisance_fraction=float(out.nuisance_fraction[index]),
                    nuisance_by_family={name: float(share[index]) for name, share in out.nuisance_by_family.items()},
                    detection_map=None if out.gate is None else maps["detection"][index],
                    gate=None if out.gate is None else float(out.gate[index]),
                    moved=math.nan if out.moved is None else float(out.moved[index]),
                    **_strange(out, index),
                ),
                geometry,
                name,
            )
            for index, (name, _, geometry) in enumerate(seen)
        ]

    def check_takes_views(self) -> None:
        """It always does."""

    def predict_tensor(self, views: Float[Tensor, "image 3 size size"]) -> Scores:
        """The tensor door: views in [0, 1] at the model's size, numbers and maps of the whole batch."""
        if self.pose is None:
            return self._seen(views)
        turned, where = self.pose.turned(views)
        found = self._seen(turned, where)
        return dataclasses.replace(found, maps=self.pose.back(found.maps, where), moved=self.pose.moved(where))

    def _seen(self, views: Tensor, where: Boxes | None = None) -> Scores:
        """Of views whose parts lie as in the fit's."""
        views = looked_at(self.teacher.region, views)
        numbers, (seen, undone) = photo_numbers(views), developed(self.development, views)
        config, looks = self.config, [look._look(seen, numbers, undone, where) for look in self.looks]
        with torch.inference_mode():
            return z_scored(looks, config.size, config.sigma, config.scored_fraction, self.joined, self.strange_to)

    def _look(self, views: Tensor, numbers: Tensor, undone: Tensor | None, where: Boxes | None) -> Sighting:
        """This look alone, of developed views; `numbers` are the photos' as taken."""
        predicted, prior = self.scorer.predicted(views), None
        if self.config.foreground:
            tokens, prior = self.teacher.tokens_and_prior(views)
        else:
            tokens = self.teacher.tokens(views)
        with torch.inference_mode():
            shown = shown_by(self.pose, where, self.teacher.grid)
            out = self.scorer(tokens, predicted, None, prior, numbers, shown, undone)
            return Sighting(out, self.normal_maps, self.judgeable and self.judgeable(quarter_tokens(tokens), numbers))

    def save(self, path: str | Path) -> Path:
        """One file: safetensors with a JSON header, about 2 MB, teacher weights not included."""
        return artifact.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, weights: str | None = None, device: str = "auto") -> Detector:
        """A saved detector; `weights` says where this machine keeps the teacher's weights, if not where the fit did.

        `device` is where its networks run, wherever it was fitted.
        """
        return cls._of(artifact.load(Path(path), weights, device_of(device)))

    @classmethod
    def _of(cls, fitted: Fitted) -> Detector:
        parts: dict[str, Any] = {**vars(fitted), "beside": fitted.beside and cls._of(fitted.beside)}
        return cls(**parts)


def _strange(out: Scores, index: int) -> dict[str, Any]:
    """How strange an image is, and why; nothing where the model cannot tell."""
    if out.strangeness is None or out.outside is None:
        return {}
    strangeness = float(out.strangeness[index])
    return {"strangeness": strangeness, "strange": why_strange(out.outside[index].tolist(), strangeness)}
