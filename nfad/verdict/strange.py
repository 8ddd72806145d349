"""Why a photo is not judged, in a few words."""

from __future__ import annotations

from collections.abc import Sequence

NOT_THE_PART = "does not look like the fitted part"
BELOW_OR_ABOVE = {  # what a photo is that has less, or more, of a number than the fit's photos (vision/photo.py)
    "brightness": ("darker than anything this model was fitted for", "brighter than what this model was fitted for"),
    "contrast": ("flatter than anything this model was fitted for", "harsher than anything this model was fitted for"),
    "flat": ("no plain area where the fitted photos have one", "nothing to see where the fitted photos show something"),
    "dark": ("", "black where the fitted photos are not"),
    "bright": ("", "burnt out where the fitted photos are not"),
    "noise": ("blurred beyond anything this model was fitted for", "noisier than anything this model was fitted for"),
    "colour": ("bluer light than this model was fitted for", "redder light than this model was fitted for"),
    "uneven": ("", "one half of the photo is lit or covered unlike the other"),
}  # fmt: skip


PLAIN = ("brightness", "dark", "bright", "flat", "noise", "contrast", "uneven", "colour")  # which is told first


def why_strange(outside: Sequence[float], strangeness: float) -> str:
    """`outside` has one number for each of the above, within ±1 where the fit's photos have been and negative below,
    and then one for the content, within 1. Another part often has another colour, too: that is no reason then.

    The strangeness is that of the content or of the pixels, whichever is larger. Where it is the pixels', they are the
    reason: in the dark no part looks like itself. Where it is the content's, that comes first: another part is often a
    little darker, too.
    """
    *photo, content = outside
    numbers = dict(zip(BELOW_OR_ABOVE, photo, strict=True))
    beyond = [name for name in (PLAIN if content <= 1 else PLAIN[:-1]) if abs(numbers[name]) > 1]
    pixels = next(filter(None, (BELOW_OR_ABOVE[name][numbers[name] > 0] for name in beyond)), "")
    if pixels and content > 1 and content >= strangeness:
        return f"{NOT_THE_PART}; {pixels}"
    return pixels or NOT_THE_PART
