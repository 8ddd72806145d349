"""Judge images with an exported graph: the same Predictions, with neither torch nor timm to install."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nfad.deploy.backends import Session, open_session
from nfad.deploy.folder import FACTS, GRAPHS, read_facts
from nfad.errors import NfadError
from nfad.records import Prediction
from nfad.threshold import Threshold, p_value
from nfad.vision.pixels import ImageLike, framing, load_part

Skip = Callable[[ImageLike, str], None]


@dataclass(frozen=True)
class Runtime:
    """An exported detector. Immutable: another false-alarm rate is another Runtime over the same graph."""

    facts: Mapping[str, Any]  # model.json
    session: Session
    held_out: Threshold
    rate: float  # asked for; `false_alarm_rate` is the one the held-out normals support

    @classmethod
    def load(cls, path: str | Path, threads: int | None = None) -> Runtime:
        """From the folder `nfad export` wrote; a file that was changed since is refused.

        `threads` limits the cores an image is judged with; None takes all.
        """
        folder = Path(path)
        facts = read_facts(folder)
        session = open_session(facts["backend"], folder / GRAPHS[facts["backend"]][0], threads)
        held_out = Threshold(**{name: tuple(scores) for name, scores in facts["held_out"].items()})
        rate = facts["config"]["false_alarm_rate"]
        if facts["threshold"] != held_out.at(rate)[0]:  # to go on with another one would surprise whoever set it
            raise NfadError(
                f"the threshold in {folder / FACTS} was changed by hand; put {held_out.at(rate)[0]} back and choose a "
                "false-alarm rate when it is run"
            )
        return cls(facts, session, held_out, rate)

    def at_rate(self, false_alarm_rate: float) -> Runtime:
        """The same detector at another false-alarm rate; nothing is exported again."""
        self.held_out.supported(false_alarm_rate)
        return dataclasses.replace(self, rate=false_alarm_rate)

    @property
    def false_alarm_rate(self) -> float:
        return self.held_out.supported(self.rate)

    @property
    def threshold(self) -> float:
        return self.held_out.at(self.rate)[0]

    def predict(self, images: ImageLike | Sequence[ImageLike]) -> Prediction | list[Prediction]:
        """A Prediction for one image (a path or an array), a list for several."""
        if isinstance(images, (str, Path, np.ndarray)):
            return self._begin(images)()
        return list(self.predict_stream(images, ahead=True))

    def predict_stream(
        self, images: Iterable[ImageLike], skip: Skip | None = None, *, ahead: bool = False
    ) -> Iterator[Prediction]:
        """One Prediction after the other, each as soon as its image is there: a line waits for no batch to fill.

        `ahead` takes the next image while this one is judged: faster where it is there already, a verdict late where
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
            if len(begun) > ahead:
                yield begun.popleft()()
        yield from (finish() for finish in begun)

    def _begin(self, image: ImageLike) -> Callable[[], Prediction]:
        pixels = self._fitting(load_part(image), image)
        promise = self.session(pixels[None])
        source = "" if isinstance(image, np.ndarray) else str(image)
        return lambda: self._prediction(promise(), pixels.shape[:2], source)

    def _prediction(self, found: Mapping[str, np.ndarray], frame: tuple[int, ...], source: str) -> Prediction:
        out = {name: value[0] for name, value in found.items()}
        score, control_score = float(out["score"]), float(out["control_score"])
        threshold, control_threshold = self.held_out.at(self.rate)
        config = self.facts["config"]
        return Prediction(
            score=score,
            is_anomalous=score > threshold,
            threshold=threshold,
            map=out["map"],
            detection_map=out["detection_map"],
            control_map=out["control_map"],
            gate=float(out["gate"]),
            participation=float(out["participation"]),
            nuisance_fraction=float(out["nuisance_fraction"]),
            nuisance_by_family=dict(zip(self.facts["families"], map(float, out["nuisance_by_family"]), strict=True)),
            control_score=control_score,
            control_threshold=control_threshold,
            excess_filtered=self.held_out.excess_filtered(score, control_score),
            p_value=p_value(self.held_out.detection, score),
            geometry=framing(*frame, config["size"], config["resize"]).geometry,
            source=source,
        )

    def _fitting(self, pixels: np.ndarray, image: ImageLike) -> np.ndarray:
        """Pixels as this graph takes them."""
        name = "the array" if isinstance(image, np.ndarray) else image
        wanted, frame = self.facts["input"]["bits"], self.facts["input"]["frame"]
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
