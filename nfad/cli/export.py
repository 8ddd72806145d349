"""`nfad export`: one graph for a line PC, which needs no torch, proved equal before it is written."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from nfad.cli.options import Json, Weights
from nfad.cli.terminal import note, out, progress_bars
from nfad.data.photos import images_in
from nfad.errors import NfadError
from nfad.system.files import ready_folder, strict_json


def export(
    model: Annotated[Path, typer.Argument(help="A model written by `nfad fit`.")],
    to: Annotated[str, typer.Option(help="onnx or openvino.")] = "onnx",
    precision: Annotated[
        str, typer.Option(help="fp32; fp16: half the size, same arithmetic; int8: smallest, needs --normals.")
    ] = "fp32",
    normals: Annotated[
        Path | None,
        typer.Option(help="Images of good parts, best the fit's own: the graph is compared with torch on them."),
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder to write.", show_default="MODEL-onnx, MODEL-openvino-int8 …"),
    ] = None,
    frame: Annotated[
        str | None, typer.Option(help="Every image is HEIGHTxWIDTH, e.g. 1080x1920.", show_default="any size")
    ] = None,
    bits: Annotated[int, typer.Option(help="Bits a channel of the camera's images: 8, or 16 (which takes both).")] = 8,
    dynamic_batch: Annotated[
        bool, typer.Option("--dynamic-batch", help="Let other programs pass several images at once.")
    ] = False,
    key: Annotated[
        Path | None, typer.Option(help="Key file, at least 16 bytes: sign the folder with it (HMAC-SHA256).")
    ] = None,
    weights: Weights = None,
    as_json: Json = False,
) -> None:
    """Export a model as one graph, from pixels to scores and maps, that runs without torch.

    The graph is compared with torch on the normals and on corrupted copies of them: scores,
    maps and verdicts. If they differ by more than stated, nothing is written.

    Example: nfad export part.nfad --to openvino --normals good-parts
    """
    images = images_in(normals) if normals else []
    name = "-".join([model.stem, to, *([precision] if precision != "fp32" else [])])
    folder = out_dir or model.with_name(name)
    if folder.exists():
        raise NfadError(f"{folder} exists; choose another name with --out, or remove it first")
    _check_installed(to, precision)
    from nfad.deploy.export import Options
    from nfad.deploy.export import export as write
    from nfad.deploy.seal import read_key

    options = Options(to, precision, dynamic_batch, _frame(frame), bits, None if key is None else read_key(key))
    ready_folder(folder.parent)  # a place that cannot be written to is told of now, not after the export
    with progress_bars(not as_json) as progress:
        facts, parity = write(model, folder, options, images, weights, progress)
    size = sum(path.stat().st_size for path in folder.iterdir())
    if as_json:
        print(strict_json({"folder": str(folder), "bytes": size, "parity": facts["parity"], "files": facts["files"]}))
        return
    out.print(f"[green]{escape(str(folder))}[/]: {size / 1e6:.1f} MB, threshold {facts['threshold']:.2f}")
    out.print(f"Compared with torch: {escape(str(parity))}.", highlight=False)
    if not images:
        note("these are not your parts; pass --normals FOLDER to compare on images of good ones.")
    out.print(
        f"Next, also where torch is not installed: [bold]nfad predict {escape(str(folder))} IMAGES --out results[/]"
    )


def _check_installed(to: str, precision: str) -> None:
    needed = ["onnx", "onnxscript", "openvino" if to == "openvino" else "onnxruntime"]
    needed += ["nncf", "onnxruntime"] if precision == "int8" else []
    missing = [name for name in dict.fromkeys(needed) if not importlib.util.find_spec(name)]
    if missing:
        raise NfadError(f"this export needs {', '.join(missing)}; run: pip install 'nfad[export]'")


def _frame(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if not found:
        raise NfadError(f"--frame is HEIGHTxWIDTH, e.g. 1080x1920; got {text!r}")
    return int(found[1]), int(found[2])
