"""Other detectors wearing the nuisance filter: the operator as a plug-in, host weights untouched."""

from nfad.hosts.anomalydino import AnomalyDINO
from nfad.hosts.backbone import embedded_maps, embedded_stages, timm_maps, vit_maps
from nfad.hosts.dinomaly import Dinomaly
from nfad.hosts.filter import Filtered, NuisanceFilter
from nfad.hosts.hooks import HookedFilter, HookedLayers
from nfad.hosts.host import Host, HostScores, score_images
from nfad.hosts.mmr import MMR
from nfad.hosts.overlap import DefectOverlap, defect_overlap
from nfad.hosts.pair import Pair
from nfad.hosts.patchcore import PatchCore
from nfad.hosts.rad import RAD
from nfad.hosts.recontrast import ReContrast
from nfad.hosts.reverse import RD4AD
from nfad.hosts.subspacead import SubspaceAD
from nfad.hosts.uniad import UniAD

__all__ = [
    "MMR",
    "RAD",
    "RD4AD",
    "AnomalyDINO",
    "DefectOverlap",
    "Dinomaly",
    "Filtered",
    "HookedFilter",
    "HookedLayers",
    "Host",
    "HostScores",
    "NuisanceFilter",
    "Pair",
    "PatchCore",
    "ReContrast",
    "SubspaceAD",
    "UniAD",
    "defect_overlap",
    "embedded_maps",
    "embedded_stages",
    "score_images",
    "timm_maps",
    "vit_maps",
]
