import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import part, parts, tiny

import nfad.detector
from nfad import Detector
from nfad.fitting.calibration import Calibrated
from nfad.fitting.joining import HIGH, TOGETHER, joined
from nfad.fitting.seen import Seen
from nfad.reference.judgeable import RATE, Judgeable
from nfad.reference.scoring import Operator, Scorer
from nfad.stats.conformal import conformal_threshold
from nfad.vision.maps import image_score, pixel_maps

NORMALS = parts(16)
CONFIG = tiny(beside="embedded-fast", acquisitions=48, false_alarm_rate=0.1)


@pytest.fixture(scope="module")
def fit():
    """A pair, what it was joined of, and what became of that."""
    seen = {}

    def spying(looks, config):
        seen["before"] = looks
        seen["after"] = joined(looks, config)
        return seen["after"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nfad.detector, "joined", spying)
        seen["pair"] = Detector.fit(NORMALS, CONFIG)
    return seen


VIEWS = torch.from_numpy(np.stack([part(70 + k, defect=k % 2 == 1) for k in range(6)])).permute(0, 3, 1, 2) / 255


def test_a_pair_says_what_the_mean_map_of_two_fits_made_apart_does(fit):
    pair = fit["pair"]
    alone = [Detector.fit(NORMALS, look) for look in CONFIG.looks]
    both, first, second = (each.predict_tensor(VIEWS) for each in (pair, *alone))
    told = fit["before"][0].seen.told
    scores = [each.seen.scores[told].numpy() for each in fit["before"]]
    (middle, high), (other, other_high) = (np.quantile(each, [0.5, HIGH]) for each in scores)
    in_units = middle + (second.maps["detection"].numpy() - other) * (high - middle) / (other_high - other)
    flat = ((first.maps["detection"].numpy() + in_units) / 2).reshape(len(VIEWS), -1)
    highest = np.sort(flat, axis=1)[:, -int(CONFIG.scored_fraction * flat.shape[1]) :]
    np.testing.assert_allclose(both.score, highest.mean(axis=1), rtol=1e-4)
    assert [look.architecture for look in alone] == pair.architecture.split(", ")


def test_of_three_all_count_alike_each_in_units_of_the_first():
    config = dataclasses.replace(CONFIG, beside=("embedded-fast", "embedded-lite1"))
    three = Detector.fit(NORMALS, config)
    assert [look.config.teacher for look in three.looks] == ["vit_tiny_patch16_224", "embedded-cnn", "embedded-lite1"]
    first, second, third = (
        dataclasses.replace(look, beside=None).predict_tensor(VIEWS).maps["detection"] for look in three.looks
    )
    whole = three.predict_tensor(VIEWS)
    torch.testing.assert_close(whole.maps["detection"], (first + second + third) / 3)
    torch.testing.assert_close(whole.score, image_score(whole.maps["detection"], config.scored_fraction))
    pair = Detector.fit(NORMALS, CONFIG)  # in whose units the second is the same
    assert pair.beside.normal_maps == three.beside.normal_maps


def test_of_tiles_the_mean_of_both_scores_counts(tmp_path):
    """A fit does not hold the maps of all its large views at once."""
    normals = [part(seed, size=128) for seed in range(10)]
    pair = Detector.fit(normals, tiny(beside="embedded-fast", size=128, tile=64, acquisitions=16, batch=2))
    views = torch.rand(2, 3, 128, 128, generator=torch.Generator().manual_seed(0))
    both, first, second = (
        each.predict_tensor(views) for each in (pair, dataclasses.replace(pair, beside=None), pair.beside)
    )
    torch.testing.assert_close(both.score, (first.score + second.score) / 2)
    loaded = Detector.load(pair.save(tmp_path / "m.nfad"))
    assert pair.joined == loaded.joined == "scores" and torch.equal(loaded.predict_tensor(views).score, both.score)


def test_its_threshold_is_that_of_the_mean_maps_of_its_own_views(fit):
    pair, (first, second) = fit["pair"], fit["after"]
    told = first.seen.told
    assert torch.equal(first.seen.images, second.seen.images)
    maps = [each.token_maps["detection"][told] for each in (fit["before"][0].seen, second.seen)]
    means = sum(pixel_maps(each, CONFIG.size, CONFIG.sigma) for each in maps) / 2
    scores = image_score(means, CONFIG.scored_fraction).double().numpy()
    wanted = conformal_threshold(scores, pair.false_alarm_rate, first.seen.images[told].numpy())
    assert pair.threshold == pytest.approx(wanted, rel=1e-12)
    assert pair.held_out.count == len(NORMALS)
    assert pair.normals["score"] == pytest.approx(first.seen.scores[first.seen.taken].tolist())


def test_both_looks_have_the_same_units(fit):
    one, two = fit["before"][0].seen, fit["after"][1].seen
    at = torch.tensor([0.5, HIGH], dtype=torch.float64)
    for name, rows in (("scores", one.told), ("unfiltered", one.taken)):
        wanted, found = (getattr(each, name)[rows].double().quantile(at) for each in (one, two))
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_maps_are_means_and_so_is_how_strange_a_photo_is(fit):
    pair = fit["pair"]
    both, first, second = (
        each.predict_tensor(VIEWS) for each in (pair, dataclasses.replace(pair, beside=None), pair.beside)
    )
    for name, found in both.maps.items():
        torch.testing.assert_close(found, (first.maps[name] + second.maps[name]) / 2)
    for name in ("strangeness", "outside"):
        torch.testing.assert_close(getattr(both, name), (getattr(first, name) + getattr(second, name)) / 2)
    earlier = dataclasses.replace(pair, strange_to="any").predict_tensor(VIEWS)  # before format 16
    assert torch.equal(earlier.strangeness, torch.maximum(first.strangeness, second.strangeness))
    for row in range(len(VIEWS)):
        stranger = max(first, second, key=lambda each: each.strangeness[row])
        assert torch.equal(earlier.outside[row], stranger.outside[row])
    assert both.nuisance_by_family.keys() == first.nuisance_by_family.keys()
    assert torch.equal(both.participation, first.participation)


def test_as_many_of_its_normals_are_refused_as_by_one_look(fit):
    strange = fit["after"][0].seen.strangeness
    strange = strange[~strange.isnan()]
    limit = float(fit["pair"].judgeable.limit / fit["before"][0].judgeable.limit)
    refused, fewer = (float((strange / limit > edge).float().mean()) for edge in (1 + 1e-6, 1 - 1e-6))
    assert refused <= RATE < fewer
    assert float(fit["pair"].beside.judgeable.limit / fit["before"][1].judgeable.limit) == pytest.approx(limit)


def test_the_choice_tells_what_each_finds_and_both_together(fit):
    choice = fit["pair"].choice
    assert choice.evidence == TOGETHER and set(choice.found) == {CONFIG.teacher, "embedded-cnn", TOGETHER}
    for name, before in zip(choice.found, fit["before"], strict=False):
        assert choice.found[name] == pytest.approx(before.seen.found())  # units change no order
        assert choice.found[name] == pytest.approx(max(before.choice.found.values()))


@given(st.floats(0.1, 10), st.floats(-5, 5))
def test_the_units_of_the_second_do_not_matter(factor, offset):
    """A teacher whose scores are ten times as large counts no more than another."""
    random = np.random.default_rng(0)
    one, two = made(random.normal(size=60)), made(random.normal(size=60))
    other = made(offset + factor * two.seen.scores.numpy())
    plain, scaled = (joined([one, each], CONFIG)[0] for each in (two, other))
    assert scaled.held_out.filtered == pytest.approx(plain.held_out.filtered, abs=1e-5)


def made(scores):
    """What a fit leaves behind whose out-of-fold scores are these."""
    count = len(scores)
    values = torch.from_numpy(scores)
    maps = dict.fromkeys(("control", "detection"), values.float()[:, None].expand(-1, 16))  # plain, so each its score
    seen = Seen(
        torch.arange(count) // 6, torch.arange(count) % 6 == 0, values, values, maps, {},
        torch.rand(count, generator=torch.Generator().manual_seed(0)), None,
    )  # fmt: skip
    judgeable, _ = Judgeable.fit(torch.rand(count, 12), torch.rand(count, 8), torch.arange(count) % 5)
    maps = {"control": (0.0, 1.0), "detection": (0.0, 1.0)}
    return Calibrated(Scorer(Operator((), ()), ()), maps, seen.held_out(), seen.normals(), judgeable, seen=seen)
