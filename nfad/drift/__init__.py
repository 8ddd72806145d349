"""What has moved since the fit: the acquisition, the parts, or both; numbers in, a verdict and a sentence out."""

from nfad.drift.camera import Camera
from nfad.drift.monitor import DriftMonitor
from nfad.drift.numbers import numbers_of
from nfad.drift.state import DriftState

__all__ = ["Camera", "DriftMonitor", "DriftState", "numbers_of"]
