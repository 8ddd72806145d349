"""One frozen Config holds every setting of a detector."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nfad.errors import NfadError
from nfad.presets import PRESETS
from nfad.system.checks import check_type, one_of, within

REFERENCES = ("student", "nearest", "linear")
ORDERS = ("fit-then-filter", "filter-then-fit")
BASES = ("mir", "scatter", "generalized", "ratio")
PLACED = ("placed", "regional")  # evidence by place
EVIDENCE = ("auto", "filtered", *PLACED)
POSES = ("auto", "as taken", "turned", "steadied")
SEEN = 256  # side of the view whose share of the pixels a tiled view's score is made of
TILE = 64  # whose multiples a tile's side can be: a quarter of it is whole tokens
ROOM = 2 * 2**30  # bytes of each store of a fit with tiles
FEWEST = 8  # normal images a fit can be made of
HOLDOUT = 0.3
PAIRS = {True: 6, False: 12}  # with acquisitions, which the reference sees too, and without
GATED = {"local_share": 0.25, "incidence": "columns", "gate": "participation"}
Sight = tuple[str, str | None, tuple[int, ...], tuple[int, ...], int, int | None]
RENAMED = {"top": "top_fraction"}  # settings by the names they once had


@dataclass(frozen=True)
class Config:
    """Defaults are the `embedded` preset's. `docs/method.md` says where each comes from."""

    # what the model looks at
    size: int = 256  # side of the square view; tokens form a grid of size/16 (CNN: size/8)
    tile: int | None = None  # side of the overlapping tiles a large view is seen in; None: whole
    resize: int | None = None  # shorter side before a centre crop (the paper); None: the whole image, stretched
    pose: str = "auto"  # "as taken", parts "turned" to lie alike, photos "steadied"; auto: as photos are far more alike
    developed: bool = True  # with acquisitions: noise is taken out, exposure and white balance are made the fit's
    teacher: str = "embedded-vit"
    weights: str | None = None  # None: embedded or hub; a file or folder; "untrained"
    blocks: tuple[int, ...] = (2, 4, 6, 8)
    prior_blocks: tuple[int, ...] = (9, 11)
    beside: tuple[str, ...] = ()  # presets whose teachers look at the same view as well: the mean of all counts
    # what is expected of a normal token
    reference: str = "linear"
    order: str = "filter-then-fit"
    variance: float = 0.90  # linear: share of the normal tokens' variance its components hold
    bank: int = 4000  # nearest: tokens kept per block
    nudges: int = 0  # linear, nearest: copies of each image, moved as by a nudged camera, that the reference sees too
    student: str = "untrained-small"  # or untrained-tiny, embedded-vit, a timm tag such as vit_base_patch16_224.mae
    epochs: int = 200
    learning_rate: float = 1e-3
    mask: float = 0.40
    student_weights: str | None = None
    # what is nuisance
    interventions: str = "wide"
    rank: Mapping[str, int | float] = field(
        default_factory=lambda: {"photometric": 0.125, "background": 0.04, "sensor": 0.125}
    )  # columns a family, or (below 1) a share of the channels; 0 leaves the family out
    basis: str = "mir"
    pairs: int | None = PAIRS[True]  # images each intervention is applied to; None: all
    displacements: int | None = None  # token displacements kept per family and block; None: all
    basis_size: int | None = None  # side at which interventions are seen; None: size
    localization: str = "detection"  # its map: the detection map, or ("global") the paper's gated V_g
    # of localization="global" alone, and None without it
    local_share: float | None = None  # V_g: share of V's columns, the least image-wide, that it leaves in (0.25)
    incidence: str | None = None  # V_g: V's own most image-wide "columns", or ("rotated") the best mixtures of them
    gate: str | None = None  # by "participation", or by "magnitude"
    common_mode: bool = True  # subtract each filtered map's own median
    foreground: bool = False  # only deviations on the part count: for parts before a background that may change
    # from tokens to a verdict
    evidence: str = "auto"  # the "filtered" map, "placed", "regional", or that which finds most of synthetic defects
    sigma: float = 4.0
    top_fraction: float = 0.01  # of the pixels (in tiles: of 256²), the highest: their mean is the score
    acquisitions: int = 300  # views of normals under random ones, 1 to 8 a normal; 0: scores are not read
    holdout: float | None = None  # share of the normals kept out of the fit (0.3); None where all are cross-fitted
    false_alarm_rate: float = 0.01
    batch: int = 8
    seed: int = 54

    def __post_init__(self) -> None:
        if self.beside is None or isinstance(self.beside, str):  # as they are typed, and as earlier files have them
            object.__setattr__(self, "beside", tuple(filter(None, (self.beside or "").split(","))))
        for field_ in dataclasses.fields(self):
            check_type(field_.name, str(field_.type), getattr(self, field_.name))
        one_of("reference", self.reference, REFERENCES)
        one_of("order", self.order, ORDERS)
        one_of("basis", self.basis, BASES)
        one_of("interventions", self.interventions, ("paper", "wide"))
        one_of("localization", self.localization, ("detection", "global"))
        self._settle_gate()
        self._settle_holdout()
        self._check_beside()
        for name in ("variance", "top_fraction", "false_alarm_rate"):
            within(name, getattr(self, name), 0, 1)
        within("mask", self.mask, -1e-9, 1)
        if self.acquisitions < 0:
            raise NfadError(f"acquisitions must be 0 or a number of views; got {self.acquisitions}")
        for name in ("size", "bank", "epochs", "batch", "pairs", "displacements", "basis_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise NfadError(f"{name} must be at least 1; got {value}")
        if not 0 <= self.seed < 2**32:
            raise NfadError(f"seed must lie between 0 and {2**32 - 1}; got {self.seed}")
        if self.sigma < 0:
            raise NfadError(f"sigma must not be negative; got {self.sigma:g}")
        if self.size % 16:
            raise NfadError(f"size must be a multiple of 16; got {self.size}")
        self._check_tile()
        one_of("pose", self.pose, POSES)
        if self.pose in ("turned", "steadied") and not self.turnable:
            raise NfadError(f"pose={self.pose!r} needs whole views and no student as a reference; leave it out")
        if self.resize is not None and self.resize < self.size:
            raise NfadError(f"resize must be at least size ({self.size}); got {self.resize}")
        if self.reference == "student" and self.order == "filter-then-fit":
            raise NfadError("a student is trained on raw tokens: use order='fit-then-filter' with reference='student'")
        if self.nudges < 0 or (self.nudges and self.reference == "student"):
            raise NfadError(
                f"nudges must be 0 or a number of copies, and 0 for a student; got {self.nudges} for {self.reference}"
            )
        object.__setattr__(self, "blocks", tuple(self.blocks))
        object.__setattr__(self, "prior_blocks", tuple(self.prior_blocks))
        object.__setattr__(self, "beside", tuple(self.beside))
        object.__setattr__(self, "rank", dict(self.rank))

    def _check_tile(self) -> None:
        if self.tile is None:
            return
        if self.tile < TILE or self.tile % TILE:
            raise NfadError(f"tile must be a multiple of {TILE}; got {self.tile}")
        if self.tile > self.size:
            raise NfadError(
                f"tile must be at most size, the side of the whole view ({self.size}); got {self.tile}: make size "
                "larger, e.g. 3072 for photos of 4000×3000"
            )
        if self.tiled and self.size % (2 * TILE):
            raise NfadError(f"size must be a multiple of {2 * TILE} where a view is seen in tiles; got {self.size}")
        if self.reference == "student":
            raise NfadError("a student looks at whole views; leave tile out or choose another reference")
        if self.basis_size is not None:
            raise NfadError("basis_size has no effect with tiles, one of which is what interventions are seen on")

    def _check_beside(self) -> None:
        seen = {self.teacher}
        for name in self.beside:
            one_of("beside", name, tuple(name for name, preset in PRESETS.items() if "beside" not in preset))
            teacher = PRESETS[name].get("teacher", Config.teacher)
            if teacher in seen:
                raise NfadError(f"beside={name!r} is a look by the same teacher, {teacher}; leave it out")
            seen.add(teacher)
        if self.beside and not self.joinable:
            raise NfadError(
                "beside needs acquisitions, a reference other than the student, and localization='detection': leave it "
                "out, or them as they are"
            )

    @property
    def joinable(self) -> bool:
        """Whether another teacher's look can stand beside: normals × acquisitions bring both to the same units."""
        return self.cross_fitted and self.localization == "detection"

    @property
    def looks(self) -> tuple[Config, ...]:
        """One for each teacher: this one's own, and of each preset beside it the teacher and filter (if any is used
        here), the rest as here."""
        found = [dataclasses.replace(self, beside=())]
        for preset in self.beside:
            other = Config.from_dict(PRESETS[preset])
            own = {name: getattr(other, name) for name in ("teacher", "weights", "blocks", "prior_blocks")}
            rank = other.rank if any(self.rank.values()) else {}
            found.append(dataclasses.replace(self, beside=(), rank=rank, **own))
        return tuple(found)

    @property
    def tiled(self) -> bool:
        """Whether a view is more than one tile."""
        return self.tile is not None and self.tile < self.size

    @property
    def turnable(self) -> bool:
        """Whether parts can be turned and photos steadied: not for a student, nor where no network sees them whole."""
        return not self.tiled and self.reference != "student"

    @property
    def develops(self) -> bool:
        """Whether photos are developed: where normals × acquisitions tell what that leaves, in whole views."""
        return self.developed and self.cross_fitted and not self.tiled

    @property
    def sight(self) -> Sight:
        """All that a teacher is loaded by but the device."""
        return self.teacher, self.weights, self.blocks, self.prior_blocks, self.size, self.tile

    @property
    def at_once(self) -> int:
        """Views that are held together: as many pixels as a batch of views of one tile has."""
        return self.batch if self.tile is None else max(1, self.batch * self.tile**2 // self.size**2)

    @property
    def room(self) -> int | None:
        """Bytes on disk that a fit keeps views in, tokens in, and those of acquisitions in; the rest is made anew."""
        return ROOM if self.tiled else None

    @property
    def scored_fraction(self) -> float:
        """Of a view's pixels, those that make its score; in tiles as many as of 256², for tokens are as large."""
        return self.top_fraction * (min(1.0, SEEN / self.size) ** 2 if self.tiled else 1.0)

    def _settle_gate(self) -> None:
        """What only localization="global" uses has its default there, and is refused elsewhere: it would do nothing."""
        for name, default in GATED.items():
            value = getattr(self, name)
            if self.localization == "global":
                object.__setattr__(self, name, default if value is None else value)
            elif value is not None:
                raise NfadError(
                    f"{name} has no effect with localization='detection'; leave it out or set localization='global'"
                )
        if self.local_share is not None and self.incidence is not None and self.gate is not None:
            within("local_share", self.local_share, -1e-9, 1)
            one_of("incidence", self.incidence, ("columns", "rotated"))
            one_of("gate", self.gate, ("participation", "magnitude"))

    def _settle_holdout(self) -> None:
        """Closed-form references are cross-fitted: nothing is held out, and a share to hold out would do nothing."""
        one_of("evidence", self.evidence, EVIDENCE)
        if not self.cross_fitted:
            object.__setattr__(self, "holdout", HOLDOUT if self.holdout is None else self.holdout)
            within("holdout", self.holdout or 0.0, 0, 1)
        elif self.holdout is not None:
            raise NfadError(
                "holdout has no effect on a cross-fitted reference, whose normals all set the threshold; leave it out "
                "or set acquisitions=0"
            )
        if self.evidence in PLACED and self.evidence not in self.candidates:
            raise NfadError(
                f"evidence={self.evidence!r} needs acquisitions, a reference other than the student, and "
                "localization='detection'"
            )

    @property
    def cross_fitted(self) -> bool:
        """Every normal is scored by a reference that has not seen it, and all of them set the threshold."""
        return self.acquisitions > 0 and self.reference != "student"

    def normals_told(self, fitted_on: int, held_out: int) -> str:
        """What became of a fit's normals, in the words of every command and page."""
        if self.cross_fitted:
            return f"{fitted_on} normals, each scored by a fit without it"
        return f"{fitted_on} normals, {held_out} more held out"

    @property
    def candidates(self) -> tuple[str, ...]:
        """The evidence a fit chooses from."""
        if not self.joinable or self.evidence == "filtered":
            return ("filtered",)
        return ("filtered", *PLACED) if self.evidence == "auto" else (self.evidence,)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Config:
        """`embedded-all`, `embedded-both`, `embedded`, `embedded-fast`, -`lite1`, -`lite2` or `paper`, with any field
        changed."""
        one_of("preset", name, tuple(PRESETS))
        return cls.from_dict(PRESETS[name]).changed(**changes)

    def changed(self, **changes: Any) -> Config:
        """The same with other settings, and with what they imply: a student's order, the gate's of a gated map, more
        pairs without acquisitions, no looks beside it where there can be none or the teacher is another."""
        values = self.as_dict()
        if changes.get("reference") == "student":  # it is trained on raw tokens
            values["order"] = "fit-then-filter"
        if changes.get("localization", self.localization) != self.localization:
            values |= dict.fromkeys(GATED)
        acquisitions, reference = (changes.get(name, values[name]) for name in ("acquisitions", "reference"))
        if (bool(acquisitions) and reference != "student") != self.cross_fitted:
            values["holdout"] = None
        if bool(acquisitions) != bool(self.acquisitions) and self.pairs == PAIRS[bool(self.acquisitions)]:
            values["pairs"] = PAIRS[bool(acquisitions)]
        alone = not acquisitions or reference == "student" or changes.get("localization") == "global"
        if alone or changes.get("teacher", self.teacher) != self.teacher:
            values["beside"] = ()
        return self.from_dict(values | {RENAMED.get(name, name): value for name, value in changes.items()})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        known = {f.name for f in dataclasses.fields(cls)}
        values = {RENAMED.get(name, name): value for name, value in values.items()}
        unknown = sorted(set(values) - known)
        if unknown:
            raise NfadError(f"unknown setting {unknown[0]!r}; the settings are {', '.join(sorted(known))}")
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
