"""Photos of 4000×3000 with defects of 10 px: found or not with tiles and without, what it costs, and how much memory.

    python benchmarks/tiles.py SHARED/data/magnetic_tile [--photos 16 --test 8 --size 2048 --tile 512] [--write]

Every photo is a plate with the surface of one good magnetic tile, mirrored on until it fills the photo: a real texture
without edges that no part has. Each tile is in one photo only. A bad plate has one round blot of 10 px, darker or
brighter by a third of the range. Each arm is fitted and run in a process of its own; memory is its largest anonymous
resident set, without the pages of files that the system takes back. Times are told as ratios, for others use the
machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from PIL import Image

RESULTS = Path(__file__).parent / "results" / "tiles.md"
HEIGHT, WIDTH, BLOT, CONTRAST, GREY = 3000, 4000, 10, 85, 110
EXPOSURE, FRAME, LEAST = "exposure3", 8, 200  # a tile's photo, what is cut off its edges, and its least side
NEAR = 25  # pixels of the photo between a blot and the highest place of its map


def plate(tile: np.ndarray) -> np.ndarray:
    cut = tile[FRAME:-FRAME, FRAME:-FRAME].astype(float)
    room = ((0, HEIGHT - cut.shape[0]), (0, WIDTH - cut.shape[1]))
    return np.pad(cut - cut.mean() + GREY, room, mode="symmetric").clip(0, 255).astype(np.uint8)


def blotted(photo: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, tuple[int, int]]:
    """And where its middle is, row and column."""
    y, x = draw.integers(200, HEIGHT - 200), draw.integers(200, WIDTH - 200)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    share = np.clip(BLOT / 2 + 0.5 - np.hypot(rows - y, columns - x), 0, 1)
    return (photo + share * CONTRAST * draw.choice([-1, 1])).clip(0, 255).astype(np.uint8), (int(y), int(x))


def write_photos(source: Path, folder: Path, photos: int, test: int) -> None:
    tiles = [np.asarray(Image.open(path).convert("L")) for path in sorted((source / "free" / EXPOSURE).glob("*.jpg"))]
    own = iter([each for each in tiles if min(each.shape) >= LEAST])
    draw = np.random.default_rng(0)
    for name, count in (("fit", photos), ("good", test), ("bad", test)):
        (folder / name).mkdir()
        for index in range(count):
            photo = plate(next(own))
            middle = None
            if name == "bad":
                photo, middle = blotted(photo, draw)
            path = folder / name / f"{index:03}.jpg"
            Image.fromarray(photo).convert("RGB").save(path, quality=95)
            path.with_suffix(".json").write_text(json.dumps(middle))


class Memory:
    """The most anonymous memory this process has held, in megabytes, looked at every 20 ms."""

    def __init__(self) -> None:
        self.most = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            self.most = max(self.most, *(int(line.split()[1]) // 1000 for line in lines if line.startswith("RssAnon")))
            time.sleep(0.02)


def fit(folder: Path, model: Path, settings: dict[str, int]) -> dict[str, object]:
    from nfad import Config, Detector

    memory, started = Memory(), time.perf_counter()
    detector = Detector.fit(sorted((folder / "fit").glob("*.jpg")), Config.preset("embedded-fast", **settings))
    detector.save(model)
    return {"seconds": time.perf_counter() - started, "memory": memory.most, "told": str(detector.choice)}


def judge(folder: Path, model: Path) -> dict[str, object]:
    from nfad.model import load_model

    memory, loaded = Memory(), load_model(model)
    found: dict[str, object] = {"threshold": loaded.threshold}
    seconds, at_blot = [], 0
    for kind in ("good", "bad"):
        scores = []
        for path in sorted((folder / kind).glob("*.jpg")):
            started = time.perf_counter()
            prediction = loaded.predict(path)
            seconds.append(time.perf_counter() - started)
            scores.append((prediction.verdict, round(prediction.score, 3)))
            if middle := json.loads(path.with_suffix(".json").read_text()):
                highest = np.unravel_index(prediction.map.argmax(), prediction.map.shape)
                shape = zip(highest, middle, prediction.map.shape, (HEIGHT, WIDTH), strict=True)
                at_blot += all(abs(here / side * pixels - there) <= NEAR for here, there, side, pixels in shape)
        found[kind] = scores
    return found | {"at_blot": at_blot, "seconds": float(np.median(seconds)), "memory": memory.most}


def export(folder: Path, model: Path, backend: str) -> dict[str, object]:
    """Compared with torch on a normal, also corrupted and edited."""
    from nfad.deploy.export import Options
    from nfad.deploy.export import export as exported

    _, parity = exported(
        model, model.with_suffix(f".{backend}"), Options(backend), sorted((folder / "good").glob("*.jpg"))[:1]
    )
    return {"parity": str(parity)}


def apart(*arguments: object) -> dict:
    """One step in a process of its own."""
    print(*arguments, flush=True)
    command = [sys.executable, __file__, "-", "--inner", *map(str, arguments)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print(said, flush=True)
    return json.loads(said.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--photos", type=int, default=16)
    parser.add_argument("--test", type=int, default=8)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name}")
    parser.add_argument("--inner", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inner:
        step, folder, model, *rest = given.inner
        inner = {"fit": lambda: fit(Path(folder), Path(model), json.loads(rest[0])),
                 "judge": lambda: judge(Path(folder), Path(model)),
                 "export": lambda: export(Path(folder), Path(model), rest[0])}  # fmt: skip
        print(json.dumps(inner[step]()))
        return
    small = {"acquisitions": 2 * given.photos, "pairs": 2, "false_alarm_rate": 0.1}
    arms = {
        "whole, 256²": {"size": 256} | small,
        f"whole, {given.tile}²": {"size": given.tile} | small,
        f"tiles of {given.tile}² in {given.size}²": {"size": given.size, "tile": given.tile} | small,
    }
    rows, parities, base = [], [], 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_photos(given.source, folder, given.photos, given.test)
        for number, (name, settings) in enumerate(arms.items()):
            model = folder / f"{number}.nfad"
            fitted = apart("fit", folder, model, json.dumps(settings))
            kinds = {"torch": model}
            if "tile" in settings:
                for backend in ("onnx", "openvino"):
                    parities.append(f"- {backend}: {apart('export', folder, model, backend)['parity']}")
                    kinds[backend] = model.with_suffix(f".{backend}")
            for kind, path in kinds.items():
                judged = apart("judge", folder, path)
                base = base or judged["seconds"]
                flagged, found = ([verdict != "normal" for verdict, _ in judged[each]] for each in ("good", "bad"))
                good, bad = (np.array([score for _, score in judged[each]]) for each in ("good", "bad"))
                ranked = float((bad[:, None] > good).mean())  # image AUROC; ties count for nothing
                rows.append(
                    f"| {name} | {kind} | {sum(flagged)} of {len(flagged)} | {sum(found)} of {len(found)} | "
                    f"{ranked:.2f} | {judged['at_blot']} of {len(found)} | {judged['seconds'] / base:.1f} | "
                    f"{judged['memory']} MB | " + (f"{fitted['memory']} MB |" if kind == "torch" else "|")
                )
    head = [
        "| view | runs in | good stopped | bad stopped | AUROC | map highest there | time | memory | of the fit |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    text = "\n".join([*head, *rows, "", "The exports beside torch:", *parities])
    print(text)
    if given.write:
        command = (
            f"python benchmarks/tiles.py MAGNETIC_TILE --photos {given.photos} --test {given.test} --size {given.size} "
            f"--tile {given.tile} --write"
        )
        about = (__doc__ or "").split("\n\n", 2)[2]
        RESULTS.write_text(
            f"# Defects of 10 px in photos of 4000×3000\n\n`{command}`\n\n{about}\n{text}\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
