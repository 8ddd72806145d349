import json
import math
import random
import shutil

import pytest
from commands import nfad
from hypothesis import given
from hypothesis import strategies as st

from nfad import NfadError, load_model
from nfad.deploy import Runtime
from nfad.deploy.export import Options, ship
from nfad.deploy.folder import read_metadata
from nfad.deploy.seal import sealed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def copy(shipped, tmp_path):
    return shutil.copytree(shipped.folder, tmp_path / "copy")


@pytest.fixture
def key(tmp_path):
    (tmp_path / "key").write_bytes(bytes(range(32)))
    return tmp_path / "key"


def changed(folder, **changes):
    """model.json edited by hand."""
    metadata = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    (folder / "model.json").write_text(json.dumps(metadata | changes), encoding="utf-8")


def test_no_flipped_bit_of_the_metadata_changes_what_is_judged_with(copy):
    file = copy / "model.json"
    whole, wanted = file.read_bytes(), read_metadata(copy)
    chance, loaded = random.Random(0), 0
    for _ in range(1500):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            found = read_metadata(copy)
        except NfadError:
            continue
        assert found == wanted  # white space
        loaded += 1
    assert loaded < 150


def test_what_was_edited_is_refused_in_one_sentence(copy):
    held_out = json.loads((copy / "model.json").read_text(encoding="utf-8"))["held_out"]
    high = {name: [1e9] * len(scores) if name != "images" else scores for name, scores in held_out.items()}
    for changes in ({"held_out": high, "threshold": 1e9}, {"files": {}}, {"fitted_on": 1}, {"new": None}):
        before = (copy / "model.json").read_bytes()
        changed(copy, **changes)
        with pytest.raises(NfadError, match=r"model\.json was changed after the export \(its seal differs\)"):
            Runtime.load(copy)
        (copy / "model.json").write_bytes(before)
    Runtime.load(copy)


def test_a_name_that_stands_twice_is_refused(copy):
    text = (copy / "model.json").read_text(encoding="utf-8")
    (copy / "model.json").write_text(text.replace("{", '{"threshold": 1e5, ', 1), encoding="utf-8")
    with pytest.raises(NfadError, match="not written by `nfad export`"):
        Runtime.load(copy)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e9])
def test_scores_that_no_model_has_are_refused_under_a_seal_that_holds(score, copy):
    metadata = json.loads((copy / "model.json").read_text(encoding="utf-8"))
    scores = [score, *metadata["held_out"]["filtered"][1:]]
    for changes in ({"threshold": score}, {"held_out": metadata["held_out"] | {"filtered": scores}}):
        (copy / "model.json").write_text(json.dumps(sealed(metadata | changes)))
        with pytest.raises(NfadError, match="fit and export it again"):
            Runtime.load(copy)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.none() | st.binary(min_size=16))
def test_a_seal_survives_json_and_sealing_again(metadata, key):
    once = sealed(metadata, key)
    assert sealed(once, key) == once
    assert sealed(json.loads(json.dumps(once, indent=2)), key)["seal"] == once["seal"]


def test_with_a_key_only_what_it_signed_is_taken(shipped, tmp_path, key):
    folder = tmp_path / "signed"
    options = Options(dynamic_batch=True, key=key.read_bytes())
    ship(shipped.graph, shipped.detector, shipped.model, folder, options, shipped.normals[:2])
    assert load_model(folder, key=key).threshold == load_model(folder).threshold
    assert key.read_bytes() not in (folder / "model.json").read_bytes()

    other = tmp_path / "other"
    other.write_bytes(bytes(32))
    with pytest.raises(NfadError, match="was not signed with this key"):
        load_model(folder, key=other)
    with pytest.raises(NfadError, match="is not signed; export the model with this --key"):
        load_model(shipped.folder, key=key)
    with pytest.raises(NfadError, match="only exports are signed"):
        load_model(shipped.model, key=key)

    metadata = json.loads((folder / "model.json").read_text(encoding="utf-8"))  # whoever edits it can seal it again
    forged = metadata | {"fitted_on": 1}
    (folder / "model.json").write_text(json.dumps(sealed(forged) | {"signature": metadata["signature"]}))
    with pytest.raises(NfadError, match="its seal differs"):
        load_model(folder, key=key)
    (folder / "model.json").write_text(json.dumps(sealed(forged, other.read_bytes())))
    load_model(folder)
    with pytest.raises(NfadError, match="was not signed with this key"):
        load_model(folder, key=key)


def test_commands_take_the_key_and_tell_of_one_that_is_none(shipped, tmp_path, key):
    (tmp_path / "short").write_bytes(b"12345")
    for command, wanted in {
        ("info", shipped.folder, "--key", key): "is not signed",
        ("info", shipped.model, "--key", key): "only exports are signed",
        ("predict", shipped.folder, shipped.normals[0], "--key", key): "is not signed",
        ("predict", shipped.folder, shipped.normals[0], "--key", tmp_path / "short"): "has 5 bytes",
        ("watch", shipped.folder, tmp_path, "--key", tmp_path / "none"): "cannot be read: No such file",
        ("export", shipped.model, "--out", tmp_path / "out", "--key", tmp_path / "none"): "cannot be read",
    }.items():
        assert wanted in nfad(*command, code=2).stderr
