"""Options that several commands share, and the config that they add up to."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nfad.cli.terminal import note, settings

if TYPE_CHECKING:
    from nfad.config import Config
    from nfad.fleet.cluster import Cluster
    from nfad.model import Model as LoadedModel
    from nfad.records import Dataset
from nfad.errors import NfadError

Model = Annotated[Path, typer.Argument(help="A model written by `nfad fit`, or a folder by `nfad export`.")]
Preset = Annotated[
    str,
    typer.Option(
        help="embedded-all (a ViT and three CNNs), embedded-both (the ViT and one), embedded (the ViT), embedded-fast "
        "(one CNN: slow line PCs), or paper."
    ),
]
FitPreset = Annotated[
    str,
    typer.Option(
        help="embedded-all (a ViT and three CNNs, offline), embedded-both (the ViT and one), embedded (the ViT), "
        "embedded-fast (one CNN: slow line PCs), auto (tries and chooses), or paper (DINOv3 + student)."
    ),
]
Teacher = Annotated[
    str | None,
    typer.Option(
        help="embedded-vit, embedded-cnn, dinov3, dinov2, dinov2r, dino, clip, beitv2, deit, augreg, a timm name."
    ),
]
Weights = Annotated[str | None, typer.Option(help="Teacher weights on this machine: a file or folder (no hub needed).")]
Device = Annotated[
    str, typer.Option(help="Where networks run: auto (a GPU if there is one), cpu, cuda, cuda:1, mps or xpu.")
]
Reference = Annotated[str | None, typer.Option(help="linear, nearest or student.")]
Size = Annotated[int | None, typer.Option(help="Side of the model's view; larger sees smaller defects.")]
Tile = Annotated[
    int | None,
    typer.Option(
        help="Large photos, small defects: see a view of --size in overlapping tiles of this side, e.g. --size 3072 "
        "--tile 512 for 4000×3000."
    ),
]
Foreground = Annotated[
    bool,
    typer.Option("--foreground", help="The part lies before a background that may change: only the part counts."),
]
Nudged = Annotated[
    bool,
    typer.Option(
        "--nudged",
        help="Parts lie askew, and photos have too little in common to be steadied by: show the reference two moved "
        "copies of each.",
    ),
]
Turned = Annotated[
    bool,
    typer.Option(
        "--turned",
        help="Each part lies well inside of its photo, wherever: find it and turn it to lie as the others do. Parts "
        "that lie in all directions are turned anyway.",
    ),
]
NUDGES = 2  # copies of each image that --nudged stands for
Category = Annotated[
    list[str] | None, typer.Option("--category", help="Only this category; may be given several times.")
]
Setting = Annotated[
    list[str] | None, typer.Option("--set", help="Any other setting as name=value (JSON), e.g. --set variance=0.95.")
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--false-alarm-rate",
        help="Share of normal images you accept being flagged, e.g. 0.01. Needs no refit.",
        show_default="the model's",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option(envvar="NFAD_KEY", help="Key file of an export: take the model only if it was signed with it."),
]
RayAddress = Annotated[
    str, typer.Option("--ray", help="Address of a Ray cluster, e.g. ray-head:6379, or local: workers on this machine.")
]
Spread = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Spread the work over Ray's workers: local (on this machine), or a cluster's address; needs nfad\\[ray].",
        show_default="this process alone",
    ),
]
Workers = Annotated[int | None, typer.Option(help="Tasks at once.", min=1, show_default="one a core")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text for people.")]


def config_from(preset: str, setting: list[str] | None, **changes: Any) -> Any:
    """A preset with what the options change of it: None leaves a setting alone, --set has the last word."""
    from nfad.config import Config

    changes = changes_from(setting, **changes)
    return told_if_alone(preset, Config.preset(preset, **changes), changes)


def told_if_alone(preset: str, config: Config, changes: Mapping[str, Any]) -> Config:
    """A preset's second network that a change leaves out is told of."""
    if not config.beside and config.preset(preset).beside and "beside" not in changes:
        note(
            f"{preset} without its second network: that goes with its own teacher, acquisitions, and a reference other "
            "than the student."
        )
    return config


def cluster_at(address: str, workers: int | None, cpus: int, memory: float | None, device: str) -> Cluster:
    """Ray's workers; where they are given a GPU it is one each, which Ray chooses."""
    import torch

    from nfad.fleet.cluster import Cluster

    if device not in ("auto", "cpu", "cuda"):
        raise NfadError(
            f"with Ray, which gives each task a GPU of its own, --device is auto, cpu or cuda; got {device!r}"
        )
    gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    return Cluster(address, workers, cpus, float(gpu), None if memory is None else int(memory * 1e9))


@contextmanager
def spread(address: str | None, workers: int | None, device: str) -> Iterator[Cluster | None]:
    """The cluster of --ray; None without it."""
    if address is None:
        if workers is not None:
            raise NfadError("--workers goes with --ray, whose workers they are")
        yield None
        return
    with cluster_at(address, workers, 1, None, device) as cluster:
        yield cluster


def changes_from(setting: list[str] | None, **changes: Any) -> dict[str, Any]:
    """What the options change of a preset."""
    return {name: value for name, value in changes.items() if value is not None} | settings(setting or [])


def at_rate(model: LoadedModel, rate: float | None) -> LoadedModel:
    """The model at the rate asked for; a rate that its held-out normals cannot promise is told of."""
    if rate is None:
        return model
    model = model.at_rate(rate)
    if model.false_alarm_rate > rate:
        count = model.held_out.count
        note(f"the model's {count} held-out normals support {model.false_alarm_rate:.2%} at the least; using that.")
    return model


def dataset_at(place: str, categories: list[str] | None) -> tuple[Path, list[Dataset]]:
    """FOLDER, whose layout is recognised, or NAME=FOLDER: the folder, and what was read there."""
    from nfad.data.catalog import READERS, load, recognise

    name, _, named = place.partition("=")
    if named and name in READERS:
        return Path(named), load(name, Path(named), categories)
    return Path(place), load(recognise(Path(place)), Path(place), categories)


def drawable() -> bool:
    """Whether figures can be drawn; if not, what to install is said, and the rest is written all the same."""
    if importlib.util.find_spec("matplotlib"):
        return True
    note("no figure is drawn without matplotlib; run: pip install 'nfad[figures]'")
    return False
