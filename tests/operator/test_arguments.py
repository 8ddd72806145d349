"""No function modifies what it is given: one test over the core functions."""

import copy

import numpy as np
import pytest
import torch

from nfad.operator import (
    MomentFitter,
    discrepancy,
    gate,
    global_columns,
    incidence,
    nuisance_basis,
    nuisance_subspace,
    participation_ratio,
    read_out,
    second_moment,
)
from nfad.operator.gate import magnitude
from nfad.operator.incidence import incidence_from_moments, rotation_invariant_columns
from nfad.operator.subspace import (
    generalized_eigen_basis,
    join,
    leading_directions,
    ratio_selection_basis,
    within_image_scatter_basis,
)
from nfad.reference.linear import Linear
from nfad.reference.nearest import Nearest
from nfad.vision.images import load_image, to_view
from nfad.vision.interventions import SETS, intervene
from nfad.vision.maps import image_score, pixel_maps
from nfad.vision.prior import foreground_prior


def _random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _moments():
    fitter = MomentFitter()
    fitter.update(TOKENS)
    return fitter.freeze()


TOKENS, OTHERS = _random(3, 16, 6), _random(3, 16, 6, seed=1)
BASIS = torch.linalg.qr(_random(6, 3))[0]
KEEP = torch.tensor([True, False, True])
MOMENT = second_moment(TOKENS.reshape(-1, 6))
NORMAL = _moments()
MAPS = TOKENS[..., 0].abs()
LINEAR = Linear.fit(NORMAL, 0.8)
BANK = Nearest(TOKENS[0].float(), torch.arange(16) % 3)
IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 4), dtype=np.uint8)

CALLS = {
    "MomentFitter.update": (MomentFitter().update, [TOKENS]),
    "second_moment": (second_moment, [TOKENS[0]]),
    "participation_ratio": (participation_ratio, [MAPS]),
    "magnitude": (magnitude, [MAPS]),
    "gate": (gate, [MAPS[:, 0], 0.5]),
    "incidence": (incidence, [BASIS, TOKENS]),
    "incidence_from_moments": (incidence_from_moments, [BASIS, NORMAL]),
    "global_columns": (global_columns, [[MAPS[0], MAPS[1]]]),
    "rotation_invariant_columns": (rotation_invariant_columns, [BASIS, NORMAL]),
    "leading_directions": (leading_directions, [MOMENT, 3]),
    "join": (join, [{"a": BASIS, "b": BASIS[:, :1]}]),
    "nuisance_subspace": (nuisance_subspace, [{"a": MOMENT, "b": MOMENT}, {"a": 2, "b": 0.5}]),
    "nuisance_basis": (nuisance_basis, [{"a": TOKENS[0], "b": TOKENS[1]}, 2]),
    "within_image_scatter_basis": (within_image_scatter_basis, [NORMAL, 2]),
    "generalized_eigen_basis": (generalized_eigen_basis, [MOMENT, NORMAL, 2]),
    "ratio_selection_basis": (ratio_selection_basis, [MOMENT, NORMAL, 2]),
    "discrepancy": (discrepancy, [TOKENS, OTHERS]),
    "read_out": (read_out, [[TOKENS], [OTHERS], [BASIS], [KEEP], 0.5, [("a", "b", "a")]]),
    "Linear.fit": (Linear.fit, [NORMAL, 0.8, BASIS]),
    "Linear": (LINEAR, [TOKENS.float()]),
    "Nearest.filtered": (Nearest.filtered, [BANK, BASIS.float()]),
    "Nearest": (BANK, [TOKENS.float(), torch.arange(3)]),
    "foreground_prior": (foreground_prior, [[TOKENS], [OTHERS[:, 0]]]),
    "pixel_maps": (pixel_maps, [MAPS.float(), 64, 4.0]),
    "image_score": (image_score, [_random(2, 8, 8)]),
    "load_image": (load_image, [PIXELS]),
    "to_view": (to_view, [PIXELS[..., :3], 16, 18]),
    "to_view stretched": (to_view, [PIXELS[..., :3], 16, None]),
} | {
    f"intervene {name}": (intervene, [intervention, IMAGES, MAPS[:2], torch.Generator()])
    for family in SETS["wide"].values()
    for name, intervention in family.items()
}


def _same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if hasattr(a, "__dataclass_fields__"):
        return _same(vars(a), vars(b))
    return a == b


def _state(arguments):
    """All but what is there to be advanced (a generator) or called (an intervention)."""
    return copy.deepcopy([a for a in arguments if not isinstance(a, torch.Generator) and not callable(a)])


@pytest.mark.parametrize("name", CALLS)
def test_arguments_are_left_as_they_were(name):
    function, arguments = CALLS[name]
    before = _state(arguments)
    function(*arguments)
    assert before
    assert _same(before, _state(arguments))
