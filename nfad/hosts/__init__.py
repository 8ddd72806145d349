"""Other detectors wearing the nuisance filter: the operator as a plug-in, host weights untouched."""

from nfad.hosts.backbone import embedded_maps, timm_maps
from nfad.hosts.filter import Filtered, NuisanceFilter
from nfad.hosts.hooks import HookedFilter, HookedLayers
from nfad.hosts.host import Host, HostScores, score_images
from nfad.hosts.overlap import DefectOverlap, defect_overlap
from nfad.hosts.patchcore import PatchCore

__all__ = [
    "DefectOverlap",
    "Filtered",
    "HookedFilter",
    "HookedLayers",
    "Host",
    "HostScores",
    "NuisanceFilter",
    "PatchCore",
    "defect_overlap",
    "embedded_maps",
    "score_images",
    "timm_maps",
]
