"""One arm's pixel maps in one domain: exact while they fit in memory, streamed with a certified bound beyond."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nfad.errors import NfadError
from nfad.evaluation.metrics import PixelMetrics, pixel_metrics
from nfad.evaluation.resampling import PixelResamples
from nfad.evaluation.streaming import StreamingPixelMetrics

HELD = 2**28  # pixels of a set that are held, about 1 GB an arm


class PixelArm:
    """`update` once an image; `metrics` when all are in."""

    def __init__(self, protocol: str, images: int, size: int, seed: int) -> None:
        self.resamples = PixelResamples(seed)
        self._protocol = protocol
        self._seen = 0
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []
        self._stream = StreamingPixelMetrics() if images * size**2 > HELD else None
        if self._stream and protocol != "mvtec":
            raise NfadError(
                f"{images} maps of {size}² do not fit in memory, and only protocol 'mvtec' streams; got {protocol!r}"
            )

    @classmethod
    def joined(cls, arms: Sequence[PixelArm]) -> PixelArm:
        """Over the images of all of them."""
        both = cls(arms[0]._protocol, 0, 0, 0)
        both.resamples = arms[0].resamples
        both._pairs = [pair for arm in arms for pair in arm._pairs]
        both._stream = arms[0]._stream
        both._seen = sum(arm._seen for arm in arms)
        for arm in arms[1:]:
            both.resamples = both.resamples + arm.resamples
            if both._stream and arm._stream:  # all of a set stream, or none
                both._stream = both._stream.merge(arm._stream)
        return both

    def update(self, score_map: np.ndarray, mask: np.ndarray) -> None:
        self._seen += 1
        self.resamples.update(score_map, mask)
        if self._stream:
            self._stream.update(score_map, mask)
        else:
            self._pairs.append((score_map, mask))

    def metrics(self) -> PixelMetrics:
        if self._stream and self._seen:
            return self._stream.result()
        if not any(mask.any() for _, mask in self._pairs):  # nothing to find: the metrics are not defined
            nan = float("nan")
            return PixelMetrics(auroc=nan, ap=nan, f1_max=nan, aupro=nan, protocol=self._protocol)
        maps, masks = zip(*self._pairs, strict=True)
        return pixel_metrics(maps, masks, self._protocol)

    @property
    def error(self) -> float:
        """How far the metrics may be from exact: the widest certified side, 0 where every map is held."""
        if not (self._stream and self._seen):
            return 0.0
        found, bounds = self._stream.result(), self._stream.bounds()
        sides = [
            max(getattr(found, name) - low, high - getattr(found, name))
            for name, (low, high) in bounds.as_dict().items()
            if not np.isnan(low)
        ]
        return max(sides, default=0.0)
