"""Judge images with an exported graph: the same Predictions, with neither torch nor timm to install."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from nfad.config import Config
from nfad.deploy.backends import Session, open_session
from nfad.deploy.folder import GRAPHS, METADATA, others_of, read_metadata
from nfad.deploy.seal import read_key
from nfad.errors import NfadError
from nfad.records import Prediction
from nfad.system.files import sha256_of
from nfad.system.progress import Skip
from nfad.verdict.prediction import ANY_RATIO, Outputs, Rule
from nfad.verdict.strange import why_strange
from nfad.verdict.threshold import Threshold
from nfad.vision.pixels import ImageLike, framing, load_part

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Runtime:
    """An exported detector. Immutable: another false-alarm rate is another Runtime over the same graph."""

    metadata: Mapping[str, Any]  # model.json
    session: Session
    config: Config
    held_out: Threshold
    sha256: str = ""  # of model.json, which holds those of the graph's files

    @classmethod
    def load(cls, path: str | Path, threads: int | None = None, key: str | Path | None = None) -> Runtime:
        """From the folder `nfad export` wrote; what was changed since is refused.

        `threads` limits the cores an image is judged with; None takes all. `key` is a key file: what was not signed
        with it is refused too.
        """
        folder = Path(path)
        metadata = read_metadata(folder, None if key is None else read_key(key))
        session = open_session(metadata["backend"], folder / GRAPHS[metadata["backend"]][0], threads)
        held_out = Threshold(**{name: tuple(scores) for name, scores in metadata["held_out"].items()})
        config = Config.from_dict(metadata["config"])
        threshold = held_out.at(config.false_alarm_rate)[0]
        if not math.isclose(metadata["threshold"], threshold, rel_tol=1e-9):  # another would surprise whoever set it
            raise NfadError(
                f"the threshold in {folder / METADATA} is not {threshold}, which its held-out normals give; export it "
                "again, and choose a false-alarm rate when it is run"
            )
        return cls(metadata, session, config, held_out, sha256_of(folder / METADATA))

    def at_rate(self, false_alarm_rate: float) -> Runtime:
        """The same detector at another false-alarm rate; nothing is exported again."""
        self.held_out.supported(false_alarm_rate)
        return dataclasses.replace(self, config=dataclasses.replace(self.config, false_alarm_rate=false_alarm_rate))

    @property
    def false_alarm_rate(self) -> float:
        """The rate the threshold stands for: the one asked for, or the smallest the held-out normals support."""
        return self.held_out.supported(self.config.false_alarm_rate)

    @cached_property
    def rule(self) -> Rule:
        ratios = (self.metadata["narrowest"], self.metadata["widest"])
        return Rule.at(self.held_out, self.config.false_alarm_rate, ratios)

    @property
    def threshold(self) -> float:
        return self.rule.threshold

    @property
    def fitted_on(self) -> int:
        return self.metadata["fitted_on"]

    @property
    def normals(self) -> dict[str, tuple[float, ...]]:
        return {name: tuple(values) for name, values in self.metadata["normals"].items()}

    @property
    def architecture(self) -> str:
        teachers = [self.metadata["teacher"], *others_of(self.metadata)]
        return ", ".join(teacher["architecture"] for teacher in teachers)

    @property
    def exported(self) -> str:
        return f"{self.metadata['precision']}, {self.metadata['backend']}, from {self.metadata['model']['name']}"

    @overload
    def predict(self, images: ImageLike) -> Prediction: ...
    @overload
    def predict(self, images: Sequence[ImageLike]) -> list[Prediction]: ...
    def predict(self, images: ImageLike | Sequence[ImageLike]) -> Prediction | list[Prediction]:
        """A Prediction for one image (a path or an array), a list for several."""
        if isinstance(images, (str, Path, np.ndarray)):
            return self._begin(images)()
        return list(self.predict_stream(images, prefetch=True))

    def predict_stream(
        self, images: Iterable[ImageLike], skip: Skip | None = None, *, prefetch: bool = False
    ) -> Iterator[Prediction]:
        """One Prediction after the other, each as soon as its image is there: a line waits for no batch to fill.

        `prefetch` takes the next image while this one is judged: faster where it is there already, a verdict late where
        it has yet to come. `skip(image, reason)` is told of unreadable images, which are then left out; without it they
        raise.
        """
        begun: deque[Callable[[], Prediction]] = deque()
        for image in images:
            try:
                begun.append(self._begin(image))
            except NfadError as error:
                if skip is None:
                    yield from (finish() for finish in begun)
                    raise
                skip(image, str(error))
            if len(begun) > prefetch:
                yield begun.popleft()()
        yield from (finish() for finish in begun)

    def predict_views(self, views: Tensor | np.ndarray) -> list[Prediction]:
        """Of views (n, 3, size, size) in [0, 1], e.g. changed on purpose.

        A graph takes photos, so each reaches it as one, rounded to the 8 bits that a camera delivers.
        """
        self.check_takes_views()
        photos = (self._photo(np.asarray(view)) for view in views)
        any_shape = {"narrowest": ANY_RATIO[0], "widest": ANY_RATIO[1]}
        judging = dataclasses.replace(self, metadata={**self.metadata, **any_shape})
        return [dataclasses.replace(each, geometry=None) for each in judging.predict_stream(photos, prefetch=True)]

    def check_takes_views(self) -> None:
        """Told before anything is measured: a graph for frames of one size cannot be shown the model's view."""
        side = self.config.resize or self.config.size
        frame = self.metadata["input"]["frame"]
        if frame not in (None, [side, side]):
            raise NfadError(
                f"this export of {self.metadata['model']['name']} takes frames of {frame[0]}×{frame[1]} pixels "
                f"(height × width) alone, and a changed view has {side}×{side}; export it without --frame"
            )

    def _begin(self, image: ImageLike) -> Callable[[], Prediction]:
        pixels = self._fitting(load_part(image), image)
        promise = self.session(pixels[None])
        source = "" if isinstance(image, np.ndarray) else str(image)
        return lambda: self._prediction(promise(), pixels.shape[0], pixels.shape[1], source)

    def _prediction(self, found: Mapping[str, np.ndarray], height: int, width: int, source: str) -> Prediction:
        out = {name: value[0] for name, value in found.items()}
        numbers = Outputs(
            score=float(out["score"]),
            unfiltered_score=float(out["unfiltered_score"]),
            map=out["map"],
            unfiltered_map=out["unfiltered_map"],
            participation=float(out["participation"]),
            nuisance_fraction=float(out["nuisance_fraction"]),
            nuisance_by_family=dict(zip(self.metadata["families"], map(float, out["nuisance_by_family"]), strict=True)),
            detection_map=out.get("detection_map"),
            gate=float(out["gate"]) if "gate" in out else None,
            strangeness=float(out["strangeness"]) if "strangeness" in out else math.nan,
            moved=float(out.get("moved", math.nan)),
            strange=why_strange(out["outside"].tolist(), float(out["strangeness"])) if "outside" in out else "",
        )
        geometry = framing(height, width, self.config.size, self.config.resize).geometry
        return self.rule(numbers, geometry, source)

    def _photo(self, view: np.ndarray) -> np.ndarray:
        """One that the graph need not scale, with the view where a model that crops will look."""
        size = self.config.size
        side = self.config.resize or size
        start = (side - size) // 2
        photo = np.zeros((side, side, 3), np.uint8)
        photo[start : start + size, start : start + size] = np.rint(view * 255).astype(np.uint8).transpose(1, 2, 0)
        return photo

    def _fitting(self, pixels: np.ndarray, image: ImageLike) -> np.ndarray:
        """Pixels as this graph takes them."""
        name = "the array" if isinstance(image, np.ndarray) else image
        wanted, frame = self.metadata["input"]["bits"], self.metadata["input"]["frame"]
        if frame is not None and list(pixels.shape[:2]) != list(frame):
            raise NfadError(
                f"{name} has {pixels.shape[0]}×{pixels.shape[1]} pixels (height × width), but this graph was exported "
                f"for frames of {frame[0]}×{frame[1]}; export it without --frame"
            )
        if wanted == 16 and pixels.dtype == np.uint8:
            return pixels.astype(np.uint16) * np.uint16(257)  # 255 becomes 65535: the same fractions, exactly
        if wanted == 8 and pixels.dtype == np.uint16:
            raise NfadError(f"{name} has 16 bits a channel, but this graph takes 8; export it with --bits 16")
        return np.ascontiguousarray(pixels)
