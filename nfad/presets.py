"""The settings we stand behind, by name: what each changes of a Config's defaults, which are those of `embedded`."""

from __future__ import annotations

from typing import Any

DEFAULT = "embedded-all"
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "size": 224,
        "resize": 256,
        "pose": "as taken",
        "teacher": "dinov3",
        "reference": "student",
        "common_mode": False,
        "order": "fit-then-filter",
        "student": "vit_base_patch16_224.mae",
        "interventions": "paper",
        "rank": {"photometric": 16, "background": 16},
        "localization": "global",
        "pairs": None,
        "displacements": 4000,
        "basis_size": 224,
        "acquisitions": 0,  # the paper's score is read in no light
        "holdout": 0.02,  # the paper has no threshold and fits on all; raise it to state a low false-alarm rate
        "batch": 16,
    },
    "embedded": {},
    "embedded-both": {"beside": ("embedded-fast",)},
    "embedded-all": {"beside": ("embedded-fast", "embedded-lite1", "embedded-lite2")},
    # A CNN's stages are shallow and narrow: more than C/16 of light, or any noise family, costs it real defects.
    "embedded-fast": {
        "teacher": "embedded-cnn",
        "blocks": (2, 3),
        "prior_blocks": (),
        "rank": {"photometric": 0.0625},
    },
}
for _name in ("embedded-lite1", "embedded-lite2"):
    PRESETS[_name] = {**PRESETS["embedded-fast"], "teacher": _name}
