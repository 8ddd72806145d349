"""Nuisance-filtered anomaly detection: fit on good parts, and survive a new lamp."""

from nfad.config import Config
from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.records import Prediction

__all__ = ["Config", "Detector", "NfadError", "Prediction"]
__version__ = "0.1.0"
