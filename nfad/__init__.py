"""Nuisance-filtered anomaly detection: fit on good parts, and survive a new lamp."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nfad.auto import fit_auto
    from nfad.config import Config
    from nfad.detector import Detector
    from nfad.errors import NfadError
    from nfad.model import Model, load_model
    from nfad.records import Prediction

__all__ = ["Config", "Detector", "Model", "NfadError", "Prediction", "fit_auto", "load_model"]
__version__ = "0.1.0"

_HOME = {
    "Config": "config",
    "Detector": "detector",
    "Model": "model",
    "NfadError": "errors",
    "Prediction": "records",
    "fit_auto": "auto",
    "load_model": "model",
}


def __getattr__(name: str) -> object:
    # On first use: torch takes seconds to import, and `nfad --help` needs none of it.
    if name not in _HOME:
        raise AttributeError(f"module 'nfad' has no attribute {name!r}")
    return getattr(import_module(f"nfad.{_HOME[name]}"), name)
