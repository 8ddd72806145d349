"""Several candidates are fitted, one is kept."""

import json

import pytest
from commands import nfad
from hypothesis import given
from hypothesis import strategies as st
from parts import parts, tiny
from PIL import Image

import nfad as package
from nfad import auto
from nfad.errors import NfadError
from nfad.verdict.choice import Candidate, Choice, first_of_the_best

SETTINGS = tiny().as_dict()
PLAIN = {name: SETTINGS[name] for name in ("teacher", "weights", "blocks", "prior_blocks", "rank", "interventions")}
CANDIDATES = {
    "small": ("embedded", PLAIN | {"size": 64}),
    "large": ("embedded", PLAIN | {"size": 96}),
}


@pytest.fixture(autouse=True)
def tiny_candidates(monkeypatch):
    monkeypatch.setattr(auto, "CANDIDATES", CANDIDATES)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(1, 500))
def test_the_first_within_a_standard_error_of_the_best_is_kept(found, defects):
    candidates = [Candidate(str(place), 1.0, "placed", share) for place, share in enumerate(found)]
    best = max(found)
    enough = best - (best * (1 - best) / defects) ** 0.5
    kept = int(first_of_the_best(candidates, defects))
    assert found[kept] >= enough and all(share < enough for share in found[:kept])


def test_what_was_too_slow_is_never_kept():
    candidates = [Candidate("slow", 99.0), Candidate("quick", 1.0, "placed", 0.2)]
    assert first_of_the_best(candidates, 84) == "quick"


def test_the_model_says_what_was_tried_and_keeps_it(tmp_path):
    images = parts(16)
    told = []
    detector = package.fit_auto(
        images, pairs=2, acquisitions=20, false_alarm_rate=0.2, progress=lambda task, *_: told.append(task)
    )
    choice = detector.choice
    assert [each.name for each in choice.candidates] == ["small", "large"] and choice.defects > 0
    assert choice.chosen == first_of_the_best(choice.candidates, choice.defects)
    assert detector.config.size == CANDIDATES[choice.chosen][1]["size"]
    assert {task.split(":")[0] for task in told} == {"small", "large"}
    loaded = package.Detector.load(detector.save(tmp_path / "m.nfad"))
    assert loaded.choice == choice and Choice.from_dict(json.loads(json.dumps(choice.as_dict()))) == choice


def test_an_interrupted_fit_goes_on_and_comes_to_the_same(tmp_path, monkeypatch):
    images, changes = parts(16), {"pairs": 2, "acquisitions": 20, "false_alarm_rate": 0.2, "workdir": tmp_path}
    fit, done = auto.Detector.fit, []

    def once(*arguments, **named):
        if done:
            raise KeyboardInterrupt
        done.append(1)
        return fit(*arguments, **named)

    monkeypatch.setattr(auto.Detector, "fit", once)
    with pytest.raises(KeyboardInterrupt):
        auto.fit_auto(images, **changes)
    done.clear()
    resumed = auto.fit_auto(images, **changes)
    assert len(done) == 1  # the other was there
    monkeypatch.setattr(auto.Detector, "fit", fit)
    whole = auto.fit_auto(images, **changes | {"workdir": None})
    assert resumed.held_out == whole.held_out and resumed.choice.chosen == whole.choice.chosen


def test_doubts_are_told_once_also_by_a_fit_that_goes_on(tmp_path):
    images = parts(16)
    changes = {"pairs": 2, "acquisitions": 20, "false_alarm_rate": 0.2, "workdir": tmp_path}
    for done in (0, 1):  # candidates that are there already
        told = []
        auto.fit_auto([*images, images[0]], doubt=lambda _, why, told=told: told.append(why), **changes)
        assert len([why for why in told if "is a copy" in why]) == 1, done
        sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)[-1].unlink()


def test_strict_is_not_forgotten_by_a_fit_that_goes_on(tmp_path):
    images = parts(16)
    changes = {"pairs": 2, "acquisitions": 20, "false_alarm_rate": 0.2, "workdir": tmp_path}
    auto.fit_auto([*images, images[0]], **changes)
    for _ in range(2):
        with pytest.raises(NfadError, match="image 16 is a copy"):
            auto.fit_auto([*images, images[0]], strict=True, **changes)


def test_a_budget_nobody_keeps_is_refused_with_the_fastest():
    with pytest.raises(NfadError, match=r"no candidate looks at a photo in 1e-06 ms.* takes .* ms; raise the budget"):
        auto.fit_auto(parts(16), budget=1e-6)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--preset", "auto", "--size", "128"), "chooses the size itself"),
        (("--preset", "auto", "--set", "teacher=dinov3"), "chooses the teacher itself"),
        (("--budget", "20ms"), "goes with --preset auto"),
        (("--preset", "fast"), "embedded-lite2, auto; got 'fast'"),
        (("--preset", "auto", "--budget", "0.001ms"), "raise the budget"),
        (("--preset", "auto", "--budget", "fast"), "must be a time a photo with its unit, e.g. 20ms"),
        (("--preset", "auto", "--budget", "60"), "with its unit, e.g. 20ms or 0.1s; got '60'"),
        (("--preset", "auto", "--set", "acquisitions=0"), "chooses by synthetic defects, which need acquisitions"),
    ],
)
def test_what_does_not_go_with_auto_is_told(tmp_path, arguments, sentence):
    for index, image in enumerate(parts(12)):
        Image.fromarray(image).save(tmp_path / f"{index}.png")
    assert sentence in " ".join(nfad("fit", tmp_path, "-o", tmp_path / "m.nfad", *arguments, code=2).stderr.split())
    assert not list(tmp_path.glob("m.nfad*"))


def test_the_command_shows_a_table_and_leaves_nothing_beside_the_model(tmp_path):
    for index, image in enumerate(parts(16)):
        Image.fromarray(image).save(tmp_path / f"{index}.png")
    (tmp_path / "out").mkdir()
    model = tmp_path / "out" / "m.nfad"
    settings = [each for pair in ("pairs=2", "acquisitions=20") for each in ("--set", pair)]
    said = nfad("fit", tmp_path, "-o", model, "--preset", "auto", "--false-alarm-rate", "0.2", *settings).stdout
    assert "small" in said and "large" in said and "is kept" in said and list(model.parent.iterdir()) == [model]
    assert "chosen by auto" in nfad("info", model).stdout
