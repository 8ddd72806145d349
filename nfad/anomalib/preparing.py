"""What happens to an image before an anomalib model sees it, cut where [0, 1] ends."""

from __future__ import annotations

from collections.abc import Callable

from anomalib.models.components import AnomalibModule
from torch import Tensor
from torchvision.transforms.v2 import Compose, Normalize

Step = Callable[[Tensor], Tensor]


def whole(model: AnomalibModule) -> Step:
    """Its pre-processing as the engine does it."""
    # The pre-processor called as a module is the export's, which resizes without antialiasing.
    transform = getattr(model.pre_processor, "transform", model.pre_processor)
    return transform or _as_it_is


def halves(model: AnomalibModule) -> tuple[Step, Step]:
    """Resizing and cropping, which leave images in [0, 1], where light is changed; and the rest, from Normalize on."""
    transform = whole(model)
    steps = list(transform.transforms) if isinstance(transform, Compose) else [transform]
    cut = next((place for place, step in enumerate(steps) if isinstance(step, Normalize)), len(steps))

    def run(some: list[Step]) -> Step:
        return Compose(some) if some else _as_it_is

    return run(steps[:cut]), run(steps[cut:])


def _as_it_is(images: Tensor) -> Tensor:
    return images
