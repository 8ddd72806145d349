"""Linear algebra on tokens: no image, no network, no file. This is what other detectors plug in."""

from nfad.operator.gate import gate, participation_ratio
from nfad.operator.incidence import global_columns, incidence
from nfad.operator.moments import MomentFitter, Moments, second_moment
from nfad.operator.readout import ReadOut, discrepancy, read_out
from nfad.operator.subspace import NuisanceSubspace, nuisance_basis, nuisance_subspace

__all__ = [
    "MomentFitter",
    "Moments",
    "NuisanceSubspace",
    "ReadOut",
    "discrepancy",
    "gate",
    "global_columns",
    "incidence",
    "nuisance_basis",
    "nuisance_subspace",
    "participation_ratio",
    "read_out",
    "second_moment",
]
