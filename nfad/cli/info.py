"""`nfad info`: what a model is."""

from __future__ import annotations

import json
import re

from rich.table import Table

from nfad.cli.options import Json, Key, Model
from nfad.cli.terminal import out
from nfad.errors import NfadError


def info(
    model: Model,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Say what a model is: teacher and weights, settings, normals, threshold and the rates it supports."""
    from nfad.config import Config
    from nfad.deploy.folder import others_of
    from nfad.verdict.choice import Choice
    from nfad.verdict.threshold import Threshold

    if model.is_dir():
        from nfad.deploy.folder import read_metadata
        from nfad.deploy.seal import read_key

        header = read_metadata(model, None if key is None else read_key(key))
        size = sum(file.stat().st_size for file in model.iterdir())
        own = {key: header[key] for key in ("backend", "precision", "input", "parity")}
        own["exported_from"] = header["model"]
    elif key is not None:
        raise NfadError(f"{model} is a fitted model, and only exports are signed; leave out --key")
    else:
        from nfad.artifact.file import read_header

        header, tensors = read_header(model)
        size = model.stat().st_size
        columns = [tensors[key].shape[1] for key in sorted(tensors) if re.fullmatch(r"operator\.\d+\.basis", key)]
        own = {"format": header["format"], "nuisance_columns": columns}
        if "region" in tensors:
            own["looks_at"] = float(tensors["region"].float().mean())
    held = Threshold(**{name: tuple(scores) for name, scores in header["held_out"].items()})
    rate = held.supported(header["config"]["false_alarm_rate"])
    rates = {f"{r:g}": held.at(r)[0] for r in (0.001, 0.01, 0.02, 0.05, 0.1) if r >= held.smallest_rate}
    facts = {
        "model": str(model),
        "bytes": size,
        "teacher": header["teacher"],
        "beside": others_of(header),
        "config": header["config"],
        "fitted_on": header["fitted_on"],
        "held_out": held.count,
        "false_alarm_rate": rate,
        "asked_false_alarm_rate": header["config"]["false_alarm_rate"],
        "threshold": held.at(rate)[0],
        "smallest_false_alarm_rate": held.smallest_rate,
        "threshold_by_rate": rates,
        "choice": header.get("choice"),
    } | own
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(title=str(model), show_header=False)
    for place, teacher in enumerate([facts["teacher"], *facts["beside"]]):
        table.add_row("and beside it" if place else "teacher", f"{teacher['name']} ({teacher['architecture']})")
        table.add_row("its weights", f"{teacher['weights']}, SHA-256 {teacher['sha256'][:16]}…")
    config = header["config"]
    table.add_row("reference", f"{config['reference']}, {config['order']}")
    ranks = ", ".join(f"{family} {value:g}" for family, value in config["rank"].items())
    table.add_row("interventions", f"{config['interventions']}; rank (below 1: share of channels) {ranks}")
    if "nuisance_columns" in own:
        *others, last = map(str, own["nuisance_columns"])
        told = f"{', '.join(others)} and {last}, one number for each of the teacher's blocks" if others else last
        table.add_row("nuisance directions removed", told)
    if config.get("nudges"):  # models fitted before there were any do not say
        table.add_row("nudged", f"the reference has seen {config['nudges']} moved copies of each image too")
    seen = f"{config['size']}²" + (f" in tiles of {config['tile']}²" if config.get("tile") else "")
    table.add_row("view", seen + (f" after resize {config['resize']}" if config["resize"] else ", whole image"))
    if config.get("pose") == "turned":
        table.add_row("parts", "turned to lie alike before they are looked at")
    if config.get("pose") == "steadied":
        table.add_row("photos", "moved a little, to lie alike, before they are looked at")
    if "looks_at" in own:
        table.add_row("looks at", f"{own['looks_at']:.0%} of it, by a mask")
    table.add_row("fitted on", Config.from_dict(config).normals_told(header["fitted_on"], held.count))
    if facts["choice"]:
        choice = Choice.from_dict(facts["choice"])
        table.add_row(
            "evidence", f"{choice.evidence}; of synthetic defects found, mean of rates from 2 to 10 %: {choice.told()}"
        )
        table.add_row("the filter", choice.sentence())
        if choice.candidates:
            tried = ", ".join(
                f"{each.name} too slow" if each.found is None else f"{each.name} {each.found:.0%}"
                for each in choice.candidates
            )
            table.add_row("chosen by auto", f"{choice.chosen}; found, as above: {tried}")
    table.add_row("in use", f"threshold {facts['threshold']:.3f}: {held.told(config['false_alarm_rate'])}")
    table.add_row(
        "defects found there", "not known from good parts: `nfad evaluate` measures yours, `nfad stress` synthetic ones"
    )
    table.add_row("smallest false-alarm rate", f"{held.smallest_rate:.2%}")
    for other, threshold in rates.items():
        table.add_row(f"threshold at {float(other):.1%}", f"{threshold:.3f}")
    if "parity" in own:
        found = own["parity"]
        table.add_row("exported", f"{own['backend']}, {own['precision']}, from {own['exported_from']['name']}")
        flips = f"{found['flips']} of {found['verdicts']} verdicts flipped"
        table.add_row("beside torch", f"{flips}, scores within {found['score_drift']:.2g}, on {found['source']}")
    if "format" in own:
        table.add_row("file format", str(own["format"]))
    told = "everything included" if "parity" in own else "teacher weights not included"
    table.add_row("size", f"{size / 1000:.0f} kB ({told})")
    out.print(table)
