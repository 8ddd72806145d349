"""`nfad fit` says what it thinks of its photos, and which rate they support."""

import json

import numpy as np
import pytest
from commands import PAPERS, TINY, nfad
from parts import parts
from PIL import Image

from nfad.config import EVIDENCE


@pytest.fixture
def photos(tmp_path):
    for name, chosen in (("a", parts(8)), ("b", parts(6, start=20))):
        (tmp_path / name).mkdir()
        for index, image in enumerate(chosen):
            Image.fromarray(image).save(tmp_path / name / f"{index}.png")
    return tmp_path


def test_several_folders_files_and_lists_are_fitted_on_together(photos):
    (photos / "list.txt").write_text("a/0.png\na/1.png\n\nb/0.png\n")
    fitted = nfad(
        "fit", photos / "a", photos / "b/1.png", photos / "list.txt", "-o", photos / "m.nfad", "--json", *TINY
    )
    told = json.loads(fitted.stdout)
    assert told["fitted_on"] == 10 == told["held_out"] and told["choice"]["evidence"] in EVIDENCE[1:]


@pytest.mark.parametrize(("text", "words"), [("", "is empty"), ("a/99.png\n", "does not exist")])
def test_a_list_that_is_wrong_says_how(photos, text, words):
    (photos / "list.txt").write_text(text)
    assert words in nfad("fit", photos / "list.txt", "-o", photos / "m.nfad", *TINY, code=2).stderr


def test_the_photos_that_a_rate_needs_are_told(photos):
    said = nfad("fit", photos / "a", photos / "b", "-o", photos / "m.nfad", "--false-alarm-rate", "0.02", *TINY)
    assert "2.00% needs 49 photos; these 14 will support 6.67%" in said.stderr
    assert "synthetic defects" in said.stdout


def test_strict_refuses_and_writes_nothing(photos):
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(photos / "b/black.png")
    Image.open(photos / "a/0.png").save(photos / "b/copy.png")
    arguments = ("fit", photos / "a", photos / "b", "-o", photos / "m.nfad", *TINY)
    refused = nfad(*arguments, "--strict", code=2)
    assert "copy.png is a copy of" in refused.stderr and "nothing was written" in refused.stderr
    assert "black.png shows nothing" in refused.stderr and not (photos / "m.nfad").exists()
    assert "black.png shows nothing" in nfad(*arguments).stderr and (photos / "m.nfad").exists()


def test_a_students_fit_that_was_killed_leaves_nothing_behind_once_it_was_run_again(photos):
    left = photos / "m.nfad.work/nfad-abc"
    left.mkdir(parents=True)
    (left / "tokens").write_bytes(b"0" * 1000)
    student = ("--reference", "student", "--set", "student=untrained-test_vit", "--set", "epochs=1")
    nfad("fit", photos / "a", photos / "b", "-o", photos / "m.nfad", "--set", "pairs=2", *PAPERS, *student)
    assert sorted(path.name for path in photos.iterdir()) == ["a", "b", "m.nfad"]


@pytest.mark.parametrize("seed", ["-1", "12345678901234567890"])
def test_a_seed_that_is_none_is_told_before_the_fit(photos, seed):
    said = nfad("fit", photos / "a", "-o", photos / "m.nfad", "--seed", seed, *TINY, code=2).stderr
    assert f"seed must lie between 0 and 4294967295; got {seed}" in said
