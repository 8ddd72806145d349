import dataclasses

import numpy as np
import pytest
import torch
from parts import part, parts, tiny

from nfad import Detector
from nfad.fitting.crossfit import Looked, folds_of, map_numbers
from nfad.fitting.seen import RATES
from nfad.fitting.verdicts import learn, log_scores_of
from nfad.reference.judgeable import RATE
from nfad.reference.placed import Placed
from nfad.reference.scoring import Operator, Scorer
from nfad.stats.conformal import conformal_threshold

CONFIG = tiny(size=64, sigma=1.0)
IMAGES, EACH, TOKENS = 20, 8, 16
BASES = (torch.eye(6)[:, :3],)
REGIONAL = Placed(torch.zeros(4, 6, 6), torch.zeros(TOKENS, 6))


def looked(seed, damaged=False, light=0.5, filtered=1.0, placed=1.0, regional=0.5):
    """Views of parts, whose maps grow with the light they are in; defects stand out of either map as told."""
    random = np.random.default_rng(seed)
    images = np.repeat(np.arange(IMAGES), EACH)
    taken = np.arange(len(images)) % EACH == 0
    found = random.normal(size=(len(images), 3)) * ~taken[:, None]
    factor = np.exp(light * found[:, 0])[:, None]
    maps, token_maps = {}, {}
    strengths = {"unfiltered": 1.0, "filtered": filtered, "placed": placed, "regional": regional}
    for name, strength in strengths.items():
        noise = random.gamma(4.0, 0.25, size=(len(images), TOKENS))
        noise[:, 5] += 6 * strength * damaged
        token_maps[name] = torch.from_numpy(noise * factor).float()
        maps[name] = map_numbers(CONFIG, token_maps[name])
    return Looked(
        images=torch.from_numpy(images),
        taken=torch.from_numpy(taken),
        maps=maps,
        token_maps=token_maps,
        coordinates=torch.from_numpy(found).float(),
        content=torch.from_numpy(random.normal(size=(len(images), 12))).float(),
        numbers=torch.from_numpy(random.normal(size=(len(images), 8))).float(),
        spread={"participation": torch.from_numpy(random.random(len(images)))},
    )


def learned(normals, damaged=None, **changes):
    scorer = Scorer(Operator(BASES, (("photometric",),)), (), ())
    config = dataclasses.replace(CONFIG, **changes)
    return learn(config, scorer, {"placed": (), "regional": (REGIONAL,)}, folds_of(IMAGES, 0), normals, damaged)


@pytest.mark.parametrize(("wanted", "kept"), [("filtered", None), ("placed", ()), ("regional", (REGIONAL,))])
def test_the_evidence_that_finds_more_synthetic_defects_is_taken(wanted, kept):
    strengths = dict.fromkeys(("filtered", "placed", "regional"), 0.2) | {wanted: 1.0}
    found = learned(looked(0), looked(1, damaged=True, **strengths))
    assert found.choice.evidence == wanted and set(found.choice.found) == set(strengths)
    assert found.choice.found[wanted] == max(found.choice.found.values()) > min(found.choice.found.values())
    assert found.scorer.placed == kept and (found.scorer.filtered is None) == (wanted != "filtered")


def test_without_defects_to_try_the_first_candidate_stands():
    found = learned(looked(0))
    assert found.choice is None and found.scorer.placed is None and found.scorer.filtered is not None


def test_all_normals_under_all_acquisitions_set_the_threshold():
    normals = looked(0)
    held_out = learned(normals).held_out
    assert held_out.count == IMAGES and len(held_out.filtered) == IMAGES * EACH and len(held_out.unfiltered) == IMAGES
    assert held_out.smallest_rate == 1 / (IMAGES + 1)
    assert list(held_out.filtered) == sorted(held_out.filtered)
    assert list(held_out.unfiltered) == sorted(held_out.unfiltered)
    assert sorted(held_out.images) == sorted(normals.images.tolist())
    for image in range(IMAGES):
        assert held_out.images.count(image) == EACH
    assert held_out.at(0.1)[0] == conformal_threshold(held_out.filtered, 0.1, held_out.images)


def test_a_view_that_is_not_judged_raises_no_threshold():
    """It is not flagged either, however high its score."""
    seen = learned(looked(0)).seen
    odd = int(seen.scores.argmax())
    higher = torch.where(torch.arange(len(seen.scores)) == odd, 100.0, seen.scores)
    strange = torch.where(torch.arange(len(seen.scores)) == odd, 1.5, 0.5)
    before, judged, refused = (
        dataclasses.replace(seen, scores=scores, strangeness=strangeness).held_out()
        for scores, strangeness in ((seen.scores, 0 * strange), (higher, 0 * strange), (higher, strange))
    )
    assert refused.at(0.01)[0] <= before.at(0.01)[0] < judged.at(0.01)[0]
    assert refused.highest == 100 and len(refused.lines) == IMAGES


def test_scores_are_read_by_a_reading_that_has_not_seen_the_part():
    """What light did to them is gone; unread it would be seen in every score."""
    normals = looked(0, light=0.5)
    found = learned(normals)
    log_scores = log_scores_of(normals.maps["filtered"])
    mean, spread = found.normal_maps["detection"]
    by_score = np.argsort(np.argsort(np.asarray(found.held_out.filtered), kind="stable"))
    assert len(by_score) == len(log_scores)
    read = np.log(np.asarray(found.held_out.filtered) * spread + mean)
    assert np.std(read) < 0.7 * float(log_scores.std())
    light = normals.coordinates[:, 0].numpy()
    assert np.corrcoef(light, log_scores.numpy())[0, 1] > 0.8
    still = learned(looked(0, light=0.0))
    assert found.scorer.reading.weights[0] > 5 * abs(float(still.scorer.reading.weights[0]))


def test_a_part_does_not_move_its_own_reading():
    """Scores of one fold change: those of the others are read otherwise, and its own are read as they were."""
    normals, folds = looked(0), folds_of(IMAGES, 0)
    mine = folds[normals.images] == 0
    thrice = torch.where(mine[:, None], torch.tensor([3.0, 3.0, 9.0]), 1.0)
    changed = normals.maps | {"filtered": normals.maps["filtered"] * thrice}
    other = dataclasses.replace(normals, maps=changed)

    def read(looked):
        found = learned(looked)
        mean, spread = found.normal_maps["detection"]
        values = np.asarray(found.held_out.filtered) * spread + mean
        by_image = {}
        for image, value in zip(found.held_out.images, values):
            by_image.setdefault(image, []).append(value)
        return {image: np.sort(each) for image, each in by_image.items()}

    before, after = read(normals), read(other)
    for image in range(IMAGES):
        if int(folds[image]) == 0:
            np.testing.assert_allclose(after[image], 3 * before[image], rtol=1e-4)


def test_what_normals_leave_behind_is_of_them_as_taken():
    normals = looked(0)
    found = learned(normals)
    assert set(found.normals) == {"score", "unfiltered_score", "participation"}
    assert all(len(values) == IMAGES for values in found.normals.values())
    assert found.normals["participation"] == tuple(normals.spread["participation"][normals.taken].tolist())
    assert sorted(found.normals["unfiltered_score"]) == pytest.approx(list(found.held_out.unfiltered))


def test_what_the_filter_buys_and_costs_is_counted_at_the_models_rate():
    found = learned(looked(0), looked(1, damaged=True), false_alarm_rate=0.1)
    choice = found.choice
    assert choice.rate == 0.1 and set(choice.flagged) == set(choice.found_as_taken) == {"filtered", "unfiltered"}
    assert choice.found_as_taken["filtered"] > choice.flagged["filtered"]
    assert choice.flagged["filtered"] < choice.flagged["unfiltered"]  # which light moves, and nothing reads
    assert choice.found["filtered"] > max(RATES)


def test_nothing_to_remove_tells_nothing_of_light():
    normals = dataclasses.replace(looked(0), coordinates=torch.zeros(IMAGES * EACH, 0))
    found = learned(normals)
    assert found.scorer.reading is None and len(found.held_out.filtered) == IMAGES * EACH


@pytest.fixture(scope="module")
def detector():
    return Detector.fit(parts(20), tiny(acquisitions=160, false_alarm_rate=0.1))


def test_a_fit_uses_every_normal_for_everything(detector):
    assert detector.fitted_on == 20 and detector.held_out.count == 20
    assert len(detector.held_out.filtered) == 20 + 160 and detector.held_out.smallest_rate == 1 / 21


def test_about_the_stated_share_of_its_own_normals_is_not_judged(detector):
    """In the light they were taken in, whose share of what was looked at is a ninth."""
    strange = [not each.is_judged for each in detector.predict(parts(20))]
    assert np.mean(strange) <= 9 * RATE
    covered = detector.predict(np.zeros((64, 64, 3), np.uint8))
    assert covered.verdict == "not judged" and covered.why_not_judged.startswith("darker")
    assert detector.predict(part(50)).is_judged


def test_a_student_holds_normals_out_and_its_score_is_read_all_the_same():
    student = Detector.fit(parts(12), tiny(reference="student", order="fit-then-filter"))
    held = round(0.3 * 12)
    assert student.fitted_on == 12 - held and student.held_out.count == held
    assert student.scorer.reading is not None and student.judgeable is not None


def test_without_acquisitions_all_is_as_the_paper_has_it():
    plain = Detector.fit(parts(12), tiny(acquisitions=0))
    assert plain.held_out.images == () and plain.held_out.count == round(0.3 * 12) == 12 - plain.fitted_on
    assert plain.judgeable is None and plain.choice is None and plain.scorer.reading is None
    assert np.isnan(plain.predict(part(50)).strangeness)
