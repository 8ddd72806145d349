import itertools
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parts import parts, tiny
from service.serving import image, png, serving

from nfad import Detector
from nfad.errors import NfadError
from nfad.model import load_model
from nfad.service.models import NAME, model_paths, named, rate_note, thresholds


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Another file for the same part, with half as many normals."""
    path = tmp_path_factory.mktemp("small") / "v2.nfad"
    return Detector.fit(parts(10), tiny(false_alarm_rate=0.4)).save(path)


@given(st.from_regex(NAME, fullmatch=True), st.from_regex(r"[a-z=]{1,9}(/[a-z=]{1,9})?\.nfad", fullmatch=True))
def test_a_name_before_the_first_sign_and_a_path_after_it(name, path):
    assert named(f"{name}={path}") == (name, Path(path))


def test_a_path_alone_is_known_by_its_last_part(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named("models/bottle.v2.nfad")[0] == "bottle.v2" and named("models/line/")[0] == "line"
    (tmp_path / "rev=2").mkdir()
    (tmp_path / "rev=2/cap.nfad").touch()
    assert named("rev=2/cap.nfad") == ("cap", Path("rev=2/cap.nfad"))
    assert named(f"{tmp_path}/rev=3/cap.nfad")[0] == "cap"  # no name has a folder in it
    assert named("line=rev=2/cap.nfad") == ("line", Path("rev=2/cap.nfad"))
    monkeypatch.setenv("HOME" if os.name != "nt" else "USERPROFILE", str(tmp_path))
    assert named("line=~/cap.nfad")[1] == tmp_path / "cap.nfad"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("a b=m.nfad", "'a b' cannot be a model's name"),
        ("=m.nfad", "'' cannot be a model's name"),
        (f"{65 * 'x'}=m.nfad", "up to 64"),
        (".line=m.nfad", "none of . - first"),
        ("line=", "write line=PATH"),
        ("a b.nfad", "write NAME=a b.nfad"),
        (f"{300 * 'x'}=m.nfad", "up to 64"),  # longer than any file's name may be
    ],
)
def test_what_is_no_name_is_a_sentence(given, wanted):
    with pytest.raises(NfadError) as told:
        named(given)
    assert wanted in str(told.value) and "\n" not in str(told.value)


def test_two_files_of_the_same_name_are_served_under_two(model, small, tmp_path):
    twin = tmp_path / model.name
    twin.write_bytes(small.read_bytes())
    with pytest.raises(NfadError, match=f"two models are called part; give {twin} another name: NAME={twin}"):
        model_paths([model, twin])
    with serving([model, f"line-3={twin}"], tmp_path / "data") as client:
        told = client.get("/v1/models").json()["models"]
        assert [each["name"] for each in told] == ["part", "line-3"] and told[0]["sha256"] != told[1]["sha256"]
        answer = client.post("/v1/inspect", params={"model": "line-3"}, files=image())
        assert answer.json()["model"] == "line-3"
        assert client.get("/v1/drift", params={"model": "part"}).json()["parts"] == 0


def test_another_file_takes_a_name_over(model, small, tmp_path):
    """History stays, drift begins anew, and a rate that the new file cannot promise is told of."""
    first, second = load_model(model), load_model(small)
    least = second.held_out.smallest_rate
    assert first.held_out.smallest_rate < 0.06 < least
    with serving([f"line-3={model}"], tmp_path) as client:
        old = [client.post("/v1/inspect", files=image(png(seed))).json() for seed in range(3)]
        client.put(f"/v1/inspections/{old[0]['id']}/review", json={"verdict": "good"}).raise_for_status()
        client.put("/v1/models/line-3/rate", json={"rate": 0.06}).raise_for_status()
    with serving([f"line-3={small}"], tmp_path) as client:
        chosen = client.service.model("line-3")
        assert f"set to a false-alarm rate of 0.06, but the {second.held_out.count} held-out" in chosen.note
        assert f"support {least:.3g} at the least" in chosen.note
        [told] = client.get("/v1/models").json()["models"]
        assert told["sha256"] == second.sha256 and told["false_alarm_rate"] == told["smallest_rate"] == least
        assert told["threshold"] == second.at_rate(least).threshold
        assert client.get("/v1/drift").json()["parts"] == 0
        assert client.get("/v1/review").json()["counts"]["inspections"] == 0
        new = client.post("/v1/inspect", files=image(png(1))).json()
        assert new["false_alarm_rate"] == least and client.get("/v1/drift").json()["parts"] == 1
        listed = client.get("/v1/inspections", params={"model": "line-3"}).json()["inspections"]
        assert [each["id"] for each in listed] == [new["id"], *(each["id"] for each in old[::-1])]
        kept = [client.service.store.get(each["id"]).model_sha256 for each in (new, *old)]
        assert kept == [second.sha256, *3 * [first.sha256]]
    with serving([f"line-3={model}"], tmp_path) as client:  # the rate was kept for a file that supports it
        assert client.get("/v1/models").json()["models"][0]["false_alarm_rate"] == 0.06
        assert client.service.model("line-3").note == rate_note("line-3", first, 0.06)
        assert client.get("/v1/drift").json()["parts"] == 3


def test_a_rate_other_than_the_files_is_told_of(model):
    own = load_model(model)
    assert rate_note("line-3", own, own.false_alarm_rate) is None
    assert rate_note("line-3", own, 0.5) == (
        "line-3 judges at the false-alarm rate of 0.5 it was set to, not at its file's 0.2"
    )


def test_two_who_change_the_rate_at_once_leave_one_rate(model, tmp_path, monkeypatch):
    """The first to come is slow to write; the store and the model end up with the same rate all the same."""
    with serving([model], tmp_path) as client:
        served, store = client.service.model("part"), client.service.store
        write, begun, slow = store.set_rate, threading.Event(), []

        def delayed(name, rate, *who):
            write(name, rate, *who)
            if not slow:
                slow.append(rate)
                begun.set()
                time.sleep(0.3)

        monkeypatch.setattr(store, "set_rate", delayed)
        first = threading.Thread(target=served.set_rate, args=(0.3,))
        first.start()
        assert begun.wait(10)
        served.set_rate(0.4)
        first.join()
        assert store.rate("part") == served.model.false_alarm_rate == 0.4


def test_parts_that_are_kept_while_the_rate_changes_are_all_in_the_monitor(model, tmp_path):
    with serving([model], tmp_path) as client:
        served, stop = client.service.model("part"), threading.Event()

        def change():
            for rate in itertools.cycle((0.3, 0.4)):
                served.set_rate(rate)
                if stop.is_set():
                    return

        changing = threading.Thread(target=change)
        changing.start()
        for seed in range(12):
            client.post("/v1/inspect", files=image(png(seed))).raise_for_status()
        stop.set()
        changing.join()
        assert served.monitor.state().photos == 12


@pytest.mark.parametrize("own", [0.11, 0.2, 0.25])
def test_no_two_rates_are_offered_for_one_threshold(small, own):
    model = load_model(small).at_rate(own)
    told = thresholds(model)
    assert len(set(told.values())) == len(told) > 1 and own in told
    assert all(threshold == model.held_out.at(rate)[0] for rate, threshold in told.items())
