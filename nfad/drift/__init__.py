"""What has moved since the fit: the acquisition, the parts, or both; numbers in, a verdict and a sentence out."""

from nfad.drift.frozen import SameFrames
from nfad.drift.monitor import DriftMonitor
from nfad.drift.numbers import numbers_of
from nfad.drift.state import DriftState

__all__ = ["DriftMonitor", "DriftState", "SameFrames", "numbers_of"]
