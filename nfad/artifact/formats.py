"""What older model files say, in today's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from nfad.config import GATED
from nfad.verdict.prediction import ANY_RATIO
from nfad.vision.weights import UNTRAINED

FORMAT = 16
READ = 5  # since this one scores are read in their light; older models judge every photo
DEVELOPED = 15  # since this one photos are developed as they are today
OLDEST = 3  # earlier ones lack what their normals were like, without which no drift can be told
RENAMED = {"control": "unfiltered", "detection": "filtered", "control_score": "unfiltered_score"}  # since format 3


def with_regions(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Before format 7 one covariance was that of all places, and not the only one of its kind."""

    def old(key: str, tensor: Tensor) -> bool:
        return key.startswith("placed.") and key.endswith(".white") and tensor.ndim == 2

    return {key: tensor[None] if old(key, tensor) else tensor for key, tensor in tensors.items()}


def upgraded(header: Mapping[str, Any]) -> dict[str, Any]:
    """A header of an older format in today's, with the same verdicts: fits before format 5 knew no acquisitions, so
    scores are not read in their light and every photo is judged."""

    if header["format"] >= READ:
        return _as_it_was({"ratios": ANY_RATIO, "beside": None, **header, "format": FORMAT})

    def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
        return {RENAMED.get(name, name): value for name, value in values.items()}

    config, maps = header["config"] | {"acquisitions": 0}, dict(header["normal_maps"])
    if config["localization"] != "global":  # format 3 kept what is the gate's where it had no effect, too
        config |= dict.fromkeys(GATED)
        maps.pop("localization", None)
    changed = {"held_out": renamed(header["held_out"]), "normals": renamed(header["normals"]), "normal_maps": maps}
    absent = dict.fromkeys(("reading", "choice", "beside"))
    return _as_it_was({**header, **changed, **absent, "config": config, "ratios": ANY_RATIO, "format": FORMAT})


def _as_it_was(header: dict[str, Any]) -> dict[str, Any]:
    """Before format 9 no part was turned; before 12 two looks had a score each; before 13 a token was part or not;
    before 14 no photo was developed, and of those of 14 none is read whose photos were; before 16 random weights were
    told by their last bits, which differ between processors, and what one look found strange was not judged."""
    beside = header["beside"] and _as_it_was(header["beside"])
    drawn = header["teacher"]["weights"] == UNTRAINED
    return {
        "pose": None,
        "joined": "scores",
        "strange_to": "any",
        "split": "hard",
        **header,
        "config": {"pose": "as taken", "developed": False, **header["config"]},
        "teacher": header["teacher"] | ({"sha256": ""} if drawn else {}),
        "beside": beside,
    }
