"""An exported model put to the test: what evaluate and stress ask of a Detector, answered by the graph that ships."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nfad.config import Config
from nfad.detector import Detector, Edit, Scores
from nfad.errors import NfadError
from nfad.judge import Judge, judge_of, load_judge
from nfad.records import Geometry, Prediction
from nfad.vision.images import ImageLike, load_part, to_view


@dataclass(frozen=True)
class Exported:
    """A graph takes photos, so a changed view reaches it as one, rounded to the 8 bits that a camera delivers."""

    judge: Judge

    @classmethod
    def load(cls, path: str | Path) -> Exported:
        """From the folder `nfad export` wrote."""
        return cls(load_judge(Path(path)))

    @property
    def config(self) -> Config:
        engine = self.judge.engine
        return Config.from_dict(engine.facts["config"] | {"false_alarm_rate": engine.rate})

    @property
    def held_out(self) -> Any:  # a Threshold
        return self.judge.held_out

    @property
    def threshold(self) -> float:
        return self.judge.threshold

    @property
    def false_alarm_rate(self) -> float:
        return self.judge.false_alarm_rate

    def predict(self, image: ImageLike) -> Prediction:
        return self.judge.predict(image)

    def predict_stream(self, images: Iterable[ImageLike], *, edit: Edit | None = None) -> Iterator[Prediction]:
        """In order. Photos go to the graph as they are; `edit(view, index)` makes it a changed view instead."""
        if edit is None:
            yield from self.judge.predict_stream(images)
            return
        taken: deque[tuple[Geometry, str]] = deque()

        def changed() -> Iterator[np.ndarray]:
            for index, image in enumerate(images):
                view, geometry = to_view(load_part(image), self.config.size, self.config.resize)
                taken.append((geometry, "" if isinstance(image, np.ndarray) else str(image)))
                yield self._photo(edit(view, index))

        for prediction in self.judge.predict_stream(changed()):
            geometry, source = taken.popleft()
            yield replace(prediction, geometry=geometry, source=source)

    def predict_tensor(self, views: Tensor) -> Scores:
        """Views in [0, 1] at the model's size, each rounded to 8 bits."""
        found = list(self.judge.predict_stream(map(self._photo, views)))

        def numbers(name: str) -> Tensor:
            return torch.tensor([getattr(each, name) for each in found])

        def maps(name: str) -> Tensor:
            return torch.from_numpy(np.stack([getattr(each, name) for each in found]))

        return Scores(
            maps={"localization": maps("map"), "detection": maps("detection_map"), "control": maps("control_map")},
            score=numbers("score"),
            control_score=numbers("control_score"),
            gate=numbers("gate"),
            participation=numbers("participation"),
            nuisance_fraction=numbers("nuisance_fraction"),
            nuisance_by_family={
                family: torch.tensor([each.nuisance_by_family[family] for each in found])
                for family in self.judge.engine.facts["families"]
            },
        )

    def _photo(self, view: Tensor) -> np.ndarray:
        """One that the graph need not scale, with the view where a model that crops will look."""
        size = self.config.size
        side = self.config.resize or size
        start = (side - size) // 2
        photo = np.zeros((side, side, 3), np.uint8)
        photo[start : start + size, start : start + size] = pixels_of(view)
        return photo


Model = Detector | Exported


def model_of(judge: Judge) -> Model:
    """What is to be tested behind a Judge, whichever it is."""
    return judge.engine if isinstance(judge.engine, Detector) else Exported(judge)


def check_takes_views(model: Model) -> None:
    """Told before anything is measured: a graph for frames of one size cannot be shown the model's view."""
    if not isinstance(model, Exported):
        return
    facts, side = model.judge.engine.facts, model.config.resize or model.config.size
    frame = facts["input"]["frame"]
    if frame not in (None, [side, side]):
        raise NfadError(
            f"this export of {facts['model']['name']} takes frames of {frame[0]}×{frame[1]} pixels (height × width) "
            f"alone, and a changed view has {side}×{side}; export it without --frame"
        )


def facts_of(model: Model) -> dict[str, str]:
    """What a reader of a report should know of the model; of an export also which one it is."""
    if not isinstance(model, Exported):
        return judge_of(model).facts
    facts = model.judge.engine.facts
    return model.judge.facts | {"Exported": f"{facts['precision']}, {facts['backend']}, from {facts['model']['name']}"}


def pixels_of(view: Tensor) -> np.ndarray:
    """A view in [0, 1] as 8-bit pixels, (size, size, 3)."""
    return (view * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
