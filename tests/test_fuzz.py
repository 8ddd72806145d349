"""Files of strangers: damaged at random, they are read or refused in one sentence, and nothing else happens.

`NFAD_FUZZ=3600 pytest tests/test_fuzz.py` goes on for an hour a reader instead of two seconds. What was found lies in
tests/corpus, named KIND-…, and is tried first; a new find is written there.
"""

import hashlib
import io
import os
import random
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from commands import nfad
from parts import part
from PIL import Image

from nfad import Detector, NfadError
from nfad.deploy.folder import read_metadata
from nfad.service.backup import backup, restore
from nfad.service.store import Store
from nfad.vision.pixels import load_part
from nfad.watch.ledger import Ledger

CORPUS, OLD = Path(__file__).parent / "corpus", Path(__file__).parent / "old"
SECONDS = float(os.environ.get("NFAD_FUZZ", "2"))
INTERESTING = [0, 1, 127, 128, 255]


def mutated(content, chance):
    """Some bytes changed, cut out, doubled or cut off."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 4, 16])):
        at = chance.randrange(len(data)) if data else 0
        size = chance.choice([1, 2, 4, 8, 64])
        match chance.randrange(5):
            case 0 if data:
                data[at] ^= 1 << chance.randrange(8)
            case 1 if data:
                data[at] = chance.choice(INTERESTING)
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = data[at : at + size]
            case _:
                data = data[:at] if chance.random() < 0.2 else data
    return bytes(data)


def fuzzed(kind, seeds, read):
    """`read` takes bytes, and may only return or raise NfadError; a find is kept."""
    chance, until = random.Random(time.time_ns() if SECONDS > 2 else 0), time.monotonic() + SECONDS
    waiting = [path.read_bytes() for path in sorted(CORPUS.glob(f"{kind}-*"))]
    count = 0
    while waiting or time.monotonic() < until:
        content = waiting.pop() if waiting else mutated(chance.choice(seeds), chance)
        count += 1
        try:
            read(content)
        except NfadError as error:
            assert "\n" not in str(error)
        except BaseException:
            CORPUS.mkdir(exist_ok=True)
            (CORPUS / f"{kind}-{hashlib.sha256(content).hexdigest()[:12]}").write_bytes(content)
            raise
    assert count > 3


def image_bytes(kind, **options):
    buffer = io.BytesIO()
    Image.fromarray(part(1)).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF", "PPM"])
def test_photos(kind, tmp_path):
    place = tmp_path / f"photo.{kind.lower()}"

    def read(content):
        place.write_bytes(content)
        pixels = load_part(place)
        assert pixels.ndim == 3 and pixels.size

    fuzzed(f"photo-{kind.lower()}", [image_bytes(kind)], read)


def test_models(tmp_path):
    place = tmp_path / "m.nfad"

    def read(content):
        place.write_bytes(content)
        Detector.load(place)

    fuzzed("model", [(OLD / "format-3-linear.nfad").read_bytes()], read)


def test_exports(tmp_path):
    """The metadata beside a graph, under its seal."""
    model, folder = tmp_path / "m.nfad", tmp_path / "export"
    shutil.copy(OLD / "format-4-linear.nfad", model)
    pytest.importorskip("onnxruntime", reason="an export needs it")
    nfad("export", model, "--out", folder)
    whole, known = (folder / "model.json").read_bytes(), read_metadata(folder)

    def read(content):
        (folder / "model.json").write_bytes(content)
        assert read_metadata(folder) == known, "a changed export was taken"

    fuzzed("export", [whole], read)


def test_ledgers(tmp_path):
    place = tmp_path / "ledger.sqlite"
    Ledger(place).close()
    with sqlite3.connect(place) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    database.close()
    whole = place.read_bytes()

    def read(content):
        for path in tmp_path.iterdir():
            path.unlink()
        place.write_bytes(content)
        ledger = Ledger(place)
        try:
            ledger.after(0, 10)
        finally:
            ledger.close()

    fuzzed("ledger", [whole], read)


def test_backups(tmp_path):
    (tmp_path / "data").mkdir()
    Store(f"sqlite:///{tmp_path / 'data' / 'inspections.db'}").close()
    whole = backup(tmp_path / "data", tmp_path / "whole.tar").path.read_bytes()

    def read(content):
        (tmp_path / "b.tar").write_bytes(content)
        try:
            restore(tmp_path / "b.tar", tmp_path / "new")
        finally:
            left = {path.name for path in tmp_path.iterdir()} - {"data", "whole.tar", "b.tar"}
            shutil.rmtree(tmp_path / "new", ignore_errors=True)
        assert left <= {"new"}

    fuzzed("backup", [whole], read)
