"""anomalib both ways: its models wearing the filter, and this package's detector among its models."""

from nfad.errors import NfadError

try:
    import anomalib.models  # noqa: F401
except ModuleNotFoundError as error:
    raise NfadError(f"nfad.anomalib needs {error.name}, which is not installed; pip install 'nfad[anomalib]'") from None

from nfad.anomalib.filtered import Filtered
from nfad.anomalib.glass import fit_glass
from nfad.anomalib.host import AnomalibHost
from nfad.anomalib.model import Nfad

__all__ = ["AnomalibHost", "Filtered", "Nfad", "fit_glass"]
