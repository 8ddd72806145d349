"""The detector as torch modules, cut where an export wants them cut: pixels → views → networks → read-outs."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nfad.deploy.resizing import MatrixResizing
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.reference.judgeable import quarter_tokens
from nfad.reference.reading import CELLS
from nfad.reference.scoring import Sighting, z_scored
from nfad.reference.student import Student
from nfad.vision.developing import Development, shares_undone
from nfad.vision.maps import cell_means, pixel_maps
from nfad.vision.photo import NUMBERS, photo_numbers
from nfad.vision.pose import shown_by
from nfad.vision.region import looked_at
from nfad.vision.teacher import CnnTeacher, VitTeacher
from nfad.vision.tiles import Tiled

BESIDE = "beside/"  # before the names of what the second look's networks give; twice of the third, and so on


def outputs_of(detector: Detector) -> tuple[str, ...]:
    """What the graph gives, in this order. Maps are (n, size, size), families (n, family), the rest (n,).

    A gated localization has a map of its own beside the one the score is taken of, and its gate. Where a model can
    tell, there is the strangeness, above 1 for a photo not to be judged, and why, in nine numbers. Of steadied photos
    there is how far they were moved.
    """
    own = () if detector.scorer.operator.keep is None else ("detection_map", "gate")
    numbers = ("participation", "nuisance_fraction", "nuisance_by_family")
    strange = () if detector.judgeable is None else ("strangeness", "outside")
    moved = ("moved",) if detector.pose is not None and detector.pose.name == "steadied" else ()
    return ("score", "unfiltered_score", "map", "unfiltered_map", *numbers, *own, *strange, *moved)


def token_shapes(detector: Detector) -> dict[str, tuple[int, ...]]:
    """What passes from the networks of one look to the read-outs, by name, of one image."""
    teacher, tokens = detector.teacher, detector.teacher.grid**2
    blocks = {str(block): (tokens, channels) for block, channels in enumerate(teacher.channels)}
    shapes: dict[str, tuple[int, ...]] = {f"tokens_{block}": shape for block, shape in blocks.items()}
    if detector.config.foreground:
        shapes["prior"] = (tokens,)
    if isinstance(detector.scorer.reference, Student):
        shapes |= {f"predicted_{block}": shape for block, shape in blocks.items()}
    return shapes


def read_out_shapes(detector: Detector) -> dict[str, tuple[int, ...]]:
    """What the read-outs take, by name, of one image."""
    photo: dict[str, tuple[int, ...]] = {} if detector.judgeable is None else {"photo": (len(NUMBERS),)}
    undone: dict[str, tuple[int, ...]] = {} if detector.development is None else {"undone": (2,)}
    where: dict[str, tuple[int, ...]] = {} if detector.pose is None else {"turned_box": (2, 3)}
    return {**token_shapes(detector), **_of_others(detector), **photo, **undone, **where}


def _of_others(detector: Detector) -> dict[str, tuple[int, ...]]:
    others = enumerate(detector.looks[1:], 1)
    return {BESIDE * place + name: shape for place, look in others for name, shape in token_shapes(look).items()}


class Preparing(nn.Module):
    """Views → turned or steadied ones; then, where photos are developed, how noisy each is; the numbers of the photo,
    where a model tells strange ones; and where each point of turned views was. Apart from the networks, for 8 bits
    would blur all that."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.pose, self.region, self.strange = detector.pose, detector.teacher.region, detector.judgeable is not None
        self.development = detector.development
        known = read_out_shapes(detector)
        noise = () if self.development is None else ("noise",)
        self.outputs = ("seen" if self.development is None else "still", *noise)
        self.outputs += tuple(name for name in ("photo", "turned_box") if name in known)
        self(torch.zeros(1, 3, detector.config.size, detector.config.size))  # once for real, as below

    def forward(self, views: Float[Tensor, "image 3 size size"]) -> tuple[Tensor, ...]:
        views, *where = (views,) if self.pose is None else self.pose.turned(views)
        views = looked_at(self.region, views)
        noise = () if self.development is None else (self.development.noise(views),)
        photo = (photo_numbers(views),) if self.strange else ()
        return views, *noise, *photo, *where


class Quieting(nn.Module):
    """Views, and how noisy they are → the same without noise."""

    def __init__(self, development: Development) -> None:
        super().__init__()
        self.development = development

    def forward(self, views: Float[Tensor, "image 3 size size"], noise: Float[Tensor, " image"]) -> Tensor:
        return self.development.denoised(views, noise)


class Balancing(nn.Module):
    """Views, and the same without noise → what networks look at, and what developing undid."""

    def __init__(self, development: Development) -> None:
        super().__init__()
        self.development = development

    def forward(self, views: Float[Tensor, "image 3 size size"], quiet: Tensor) -> tuple[Tensor, Tensor]:
        developed = self.development.balanced(quiet)
        return developed, shares_undone(views, quiet, developed)


class Networks(nn.Module):
    """Views → teacher tokens a block, then the foreground prior and the student's tokens where they are used."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        teacher = detector.teacher
        if not isinstance(teacher, (VitTeacher, CnnTeacher, Tiled)):
            raise NfadError(f"a detector over {type(teacher).__name__} cannot be exported; load it from its file first")
        self.teacher = teacher
        self.network = teacher.network  # registered, so that an exporter finds parameters and no literals
        reference = detector.scorer.reference
        self.student = reference if isinstance(reference, Student) else None
        self.prior = detector.config.foreground
        # Once for real: an export runs on stand-ins without values, and could not compute the resizing weights.
        self(torch.zeros(1, 3, detector.config.size, detector.config.size))

    def forward(self, views: Float[Tensor, "image 3 size size"]) -> tuple[Tensor, ...]:
        with MatrixResizing():
            if self.prior:
                tokens, prior = self.teacher.tokens_and_prior(views)
                found = (*tokens, prior)
            else:
                found = tuple(self.teacher.tokens(views))
            return found if self.student is None else (*found, *self.student(views))


class Cut(nn.Module):
    """Views → all their tiles, one after the other."""

    def __init__(self, teacher: Tiled) -> None:
        super().__init__()
        self.teacher = teacher

    def forward(self, views: Float[Tensor, "image 3 size size"]) -> Float[Tensor, "tile image 3 side side"]:
        return self.teacher.stacked(views)


class OneTile(nn.Module):
    """One tile of each view → its tokens a block."""

    def __init__(self, teacher: Tiled) -> None:
        super().__init__()
        self.teacher, self.network = teacher.teacher, teacher.network
        self(torch.zeros(1, 3, teacher.tile, teacher.tile))  # once for real, as above

    def forward(self, tiles: Float[Tensor, "image 3 side side"]) -> tuple[Tensor, ...]:
        with MatrixResizing():
            return tuple(self.teacher.tokens(tiles))


class Prior(nn.Module):
    """Views → the foreground prior of what is seen in tiles."""

    def __init__(self, teacher: Tiled, size: int) -> None:
        super().__init__()
        self.teacher, self.network = teacher, teacher.network
        self(torch.zeros(1, 3, size, size))

    def forward(self, views: Float[Tensor, "image 3 size size"]) -> Float[Tensor, "image token"]:
        with MatrixResizing():
            return self.teacher.prior(views)


class ReadOuts(nn.Module):
    """What `Networks` of every look gives and, beside the views, `Preparing` → `outputs_of`."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.looks, self.strange = detector.looks, detector.judgeable is not None
        self.joined = detector.joined, detector.strange_to
        self.pose, self.developed = detector.pose, detector.development is not None
        self.families = detector.scorer.operator.family_names
        self.outputs = outputs_of(detector)
        for look in self.looks:  # once for real, too
            pixel_maps(torch.zeros(1, look.teacher.grid**2), look.config.size, look.config.sigma)
            for side in (2, CELLS):
                cell_means(torch.zeros(1, look.teacher.grid**2, 1), side)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        rest, where = (inputs[:-1], inputs[-1]) if self.pose else (inputs, None)
        rest, undone = (rest[:-1], rest[-1]) if self.developed else (rest, None)
        rest, photo = (rest[:-1], rest[-1]) if self.strange else (rest, None)
        config, looks = self.looks[0].config, []
        for look in self.looks:
            count = len(token_shapes(look))
            looks.append(_look(look, rest[:count], photo, undone, where))
            rest = rest[count:]
        out = z_scored(looks, config.size, config.sigma, config.scored_fraction, *self.joined)
        if self.pose is not None and where is not None:
            out = dataclasses.replace(out, maps=self.pose.back(out.maps, where), moved=self.pose.moved(where))
        shares = [out.nuisance_by_family[family] for family in self.families]
        by_name = {
            "score": out.score,
            "unfiltered_score": out.unfiltered_score,
            "map": out.maps.get("localization", out.maps["detection"]),
            "unfiltered_map": out.maps["control"],
            "participation": out.participation,
            "nuisance_fraction": out.nuisance_fraction,
            "nuisance_by_family": torch.stack(shares, dim=1) if shares else out.score.new_zeros(len(out.score), 0),
            "detection_map": out.maps["detection"],
            "gate": out.gate,
            "strangeness": out.strangeness,
            "outside": out.outside,
            "moved": out.moved,
        }
        return tuple(by_name[name] for name in self.outputs)


def _look(
    look: Detector, given: tuple[Tensor, ...], photo: Tensor | None, undone: Tensor | None, where: Tensor | None
) -> Sighting:
    blocks = len(look.config.blocks)
    tokens, rest = given[:blocks], list(given[blocks:])
    prior = rest.pop(0) if look.config.foreground else None
    shown = shown_by(look.pose, where, look.teacher.grid)
    out = look.scorer(tokens, rest or None, None, prior, photo, shown, undone)
    if look.judgeable is None or photo is None:
        return Sighting(out, look.normal_maps)
    return Sighting(out, look.normal_maps, look.judgeable(quarter_tokens(tokens), photo))


class ViewGraph(nn.Module):
    """Views (n, 3, size, size) in [0, 1] → `outputs_of`, in plain torch: `torch.onnx.export` takes it as it is."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.networks = nn.ModuleList(Networks(look) for look in detector.looks)
        self.preparing, self.read_outs = Preparing(detector), ReadOuts(detector)
        self.development = detector.development
        self.eval().requires_grad_(False)

    def forward(self, views: Float[Tensor, "image 3 size size"]) -> tuple[Tensor, ...]:
        known = dict(zip(self.preparing.outputs, self.preparing(views), strict=True))
        if self.development is not None:
            quiet = Quieting(self.development)(known["still"], known["noise"])
            known["seen"], known["undone"] = Balancing(self.development)(known["still"], quiet)
        tokens = [each for network in self.networks for each in network(known["seen"])]
        return self.read_outs(*tokens, *(known[name] for name in ("photo", "undone", "turned_box") if name in known))
