"""Other detectors wearing the nuisance filter: the operator as a plug-in, host weights untouched."""

from nfad.hosts.backbone import embedded_maps, embedded_stages, timm_maps
from nfad.hosts.filter import Filtered, NuisanceFilter
from nfad.hosts.hooks import HookedFilter, HookedLayers
from nfad.hosts.host import Host, HostScores, score_images
from nfad.hosts.overlap import DefectOverlap, defect_overlap
from nfad.hosts.pair import Pair
from nfad.hosts.patchcore import PatchCore
from nfad.hosts.recontrast import ReContrast
from nfad.hosts.reverse import RD4AD
from nfad.hosts.uniad import UniAD

__all__ = [
    "RD4AD",
    "DefectOverlap",
    "Filtered",
    "HookedFilter",
    "HookedLayers",
    "Host",
    "HostScores",
    "NuisanceFilter",
    "Pair",
    "PatchCore",
    "ReContrast",
    "UniAD",
    "defect_overlap",
    "embedded_maps",
    "embedded_stages",
    "score_images",
    "timm_maps",
]
