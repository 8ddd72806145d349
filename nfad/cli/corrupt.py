"""`nfad corrupt`: shifted copies of a data set, for any program that reads photos."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nfad.cli.options import Category, Json, dataset_at
from nfad.cli.terminal import err, note, out, progress_bars
from nfad.system.files import strict_json


def corrupt(
    data: Annotated[str, typer.Argument(help="The data set: FOLDER (its layout is recognised) or NAME=FOLDER.")],
    suite: Annotated[
        str,
        typer.Option(
            help="What to do to the test photos, with commas between: contrast:3 (severity 1 to 5), contrast (all), "
            "visa-c (the paper's: all four corruptions at 1 to 3), all. The corruptions are brightness, contrast, "
            "defocus_blur and gaussian_noise."
        ),
    ],
    out_dir: Annotated[Path, typer.Option("-o", "--out", help="The copies go into this folder, one a corruption.")],
    category: Category = None,
    seed: Annotated[int, typer.Option(help="Same seed, same photos: same copies, to the byte.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Write shifted copies of a data set, so that any program can be tested under the same shift.

    OUT/contrast-3 has the layout of DATA: its test photos are under contrast at severity 3,
    its training photos, masks and lists are as they were. So a detector is fitted as ever and
    tested under a shift that it has not seen. Score what it wrote with nfad evaluate --maps.

    A photo is corrupted in its own pixels, in 8 bits, and keeps its name and format (JPEG at
    quality 100). nfad evaluate --corrupt works on the model's view instead, where the same
    blur is stronger on a large photo: compare programs on the copies.

    A copy appears when it is whole. An interrupted run goes on when the same command is given
    again; a copy that is there already is left as it is.

    Example: nfad corrupt mvtec-ad=DATA --category bottle --suite contrast:3,defocus_blur -o shifted
    """
    from nfad.evaluation.copies import write_copies
    from nfad.vision.corruptions import parse_suite

    wanted = parse_suite(suite)
    root, datasets = dataset_at(data, category)
    for words in (words for each in datasets for words in each.notes):
        note(words)
    copies = []
    with progress_bars(not as_json) as progress:
        try:
            for copy in write_copies(root, datasets, wanted, out_dir, seed, progress):
                copies.append(copy)
        except KeyboardInterrupt:
            err.print(f"What is written is kept in {out_dir}; the same command goes on from there.")
            raise
    if as_json:
        print(strict_json([copy.as_dict() for copy in copies]))
        return
    for copy in copies:
        there = "" if copy.written else ", was there already"
        out.print(
            f"[bold]{copy.folder}[/]: {copy.images} test photos under {copy.corruption}, {copy.kept} other files as "
            f"they were{there}",
            soft_wrap=True, highlight=False,
        )  # fmt: skip
