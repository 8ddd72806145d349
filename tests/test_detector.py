import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from parts import part, parts, tiny
from PIL import Image

from nfad import Config, Detector, NfadError
from nfad.fitting import views
from nfad.fitting.crossfit import ACQUIRED
from nfad.fitting.nuisance import families_of
from nfad.vision.images import load_part

NORMALS = parts(20)
VARIANTS = [
    {"reference": "linear", "order": "filter-then-fit"},
    {"reference": "linear", "order": "filter-then-fit", "common_mode": False, "foreground": True},
    {"reference": "linear", "order": "fit-then-filter", "localization": "global", "incidence": "rotated"},
    {"reference": "nearest", "order": "filter-then-fit", "localization": "global", "nudges": 2},
    {"reference": "nearest", "order": "fit-then-filter", "localization": "global", "gate": "magnitude"},
    {"reference": "student", "order": "fit-then-filter"},
    {"reference": "linear", "beside": "embedded-fast"},
    {"reference": "nearest", "beside": "embedded-fast", "nudges": 1, "foreground": True},
]


@pytest.fixture(scope="module")
def detector():
    return Detector.fit(NORMALS, tiny())


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_every_reference_and_order_fits_predicts_and_survives_the_disk(variant, tmp_path):
    fitted = Detector.fit(NORMALS, tiny(**variant))
    image = part(99, size=80, defect=True)
    first = fitted.predict(image)
    assert np.isfinite([first.score, first.unfiltered_score, first.participation]).all()
    assert 0 < first.participation <= 1 + 1e-5 and 0 <= first.nuisance_fraction <= 1
    assert first.map.shape == first.unfiltered_map.shape == (64, 64)
    if fitted.config.localization == "global":
        assert 0 <= first.gate <= 1 and first.detection_map.shape == (64, 64)
    else:  # what would be constant, or the same twice, is not there
        assert first.gate is None and first.detection_map is None
    assert first.in_original(first.map).shape == (80, 80)
    again = Detector.load(fitted.save(tmp_path / "m.nfad")).predict(image)
    tolerance = 1e4 * np.finfo(np.float32).eps * max(1, abs(first.score))
    assert abs(again.score - first.score) <= tolerance
    assert again.threshold == first.threshold and again.is_anomalous == first.is_anomalous
    np.testing.assert_allclose(again.map, first.map, atol=tolerance)


@pytest.mark.parametrize("reference", ["linear", pytest.param("nearest", marks=pytest.mark.slow)])
def test_a_model_that_has_seen_nudges_bears_them_better(reference):
    """Parts that all lie in the same place, then a camera that was nudged by half a token."""
    photos = [part(i, 144) for i in range(24)]
    placed, aside = [each[8:136, 8:136] for each in photos], [each[12:140, 5:133] for each in photos[16:]]

    def excess(nudges):
        settings = {"reference": reference, "nudges": nudges, "pose": "as taken"}
        config = Config.preset("embedded-fast", size=128, pairs=2, **settings)
        fitted = Detector.fit(placed[:16], config)
        moved, still = (np.array([p.score for p in fitted.predict(images)]) for images in (aside, placed[16:]))
        return (moved - still).mean() / still.std()

    assert excess(2) < 0.7 * excess(0)


def test_a_defect_scores_higher_than_every_good_part():
    real = Detector.fit([part(i, 128) for i in range(20)], Config.preset("embedded-fast", size=128, pairs=2))
    good = [p.score for p in real.predict([part(50 + i, 128) for i in range(6)])]
    judged = real.predict([part(60 + i, 128, defect=True) for i in range(6)])
    assert min(p.score for p in judged) > max(good)
    for prediction in judged:  # and the map points at it: the defect is 21² pixels from the centre on
        row, column = np.unravel_index(prediction.map.argmax(), prediction.map.shape)
        assert 56 <= row <= 92 and 56 <= column <= 92


def test_same_seed_same_model_other_seed_another(detector):
    twin, other = Detector.fit(NORMALS, tiny()), Detector.fit(NORMALS, tiny(seed=1))
    image = part(7)
    assert twin.predict(image).score == detector.predict(image).score
    assert twin.held_out == detector.held_out
    assert other.held_out != detector.held_out


def test_batch_size_and_order_do_not_change_scores(detector):
    images = parts(7, start=30)
    singly = [detector.predict(image).score for image in images]
    together = [p.score for p in detector.predict(images)]
    backwards = [p.score for p in detector.predict(images[::-1])][::-1]
    larger = dataclasses.replace(detector, config=dataclasses.replace(detector.config, batch=7))
    tolerance = 1e4 * np.finfo(np.float32).eps * max(np.abs(singly))  # sums run in another order
    for scores in (together, backwards, [p.score for p in larger.predict(images)]):
        np.testing.assert_allclose(scores, singly, atol=tolerance)


def test_rank_zero_is_the_control():
    detector = Detector.fit(NORMALS, tiny(acquisitions=0))
    bare = Detector.fit(NORMALS, tiny(rank={}, common_mode=False, acquisitions=0))
    prediction = bare.predict(part(7))
    assert prediction.nuisance_fraction == 0
    np.testing.assert_allclose(prediction.map, prediction.unfiltered_map, atol=1e-4)
    np.testing.assert_allclose(
        prediction.unfiltered_map, detector.predict(part(7)).unfiltered_map, atol=1e-3
    )  # the filter does not touch the control


def test_changing_the_rate_needs_no_refit(detector):
    strict, lax = detector.at_rate(0.01), detector.at_rate(0.5)
    assert strict.false_alarm_rate == detector.held_out.smallest_rate == 1 / 21  # all 20 are cross-fitted
    assert lax.threshold < strict.threshold
    assert strict.predict(part(3)).score == lax.predict(part(3)).score


def test_calibration_images_do_not_find_themselves_in_the_bank():
    copies = [NORMALS[i % 5] for i in range(20)]  # without leaving out, every image is its own neighbour
    fitted = Detector.fit(NORMALS, tiny(reference="nearest", order="fit-then-filter", bank=10**6))
    assert fitted.normal_maps["control"][0] > 1e-3
    twins = Detector.fit(copies, tiny(reference="nearest", order="fit-then-filter", bank=10**6))
    assert twins.normal_maps["control"][0] < fitted.normal_maps["control"][0]


def test_bad_images_are_told_of_or_raised(tmp_path):
    paths = []
    for index, image in enumerate(NORMALS):
        paths.append(tmp_path / f"{index}.png")
        Image.fromarray(image).save(paths[-1])
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 40)
    with pytest.raises(NfadError, match=r"broken\.png"):
        Detector.fit([*paths, broken], tiny())
    told = []
    fitted = Detector.fit([*paths, broken], tiny(), skip=lambda image, why: told.append((image, why)))
    assert [image for image, _ in told] == [broken]
    told.clear()
    judged = list(fitted.predict_stream([paths[0], broken, paths[1]], skip=lambda *what: told.append(what)))
    assert [p.source for p in judged] == [str(paths[0]), str(paths[1])] and len(told) == 1


def test_a_photo_is_decoded_once_however_often_the_fit_looks_at_it(monkeypatch):
    decoded = []
    monkeypatch.setattr(views, "load_part", lambda image: decoded.append(1) or load_part(image))
    Detector.fit(NORMALS, tiny(nudges=1))
    assert len(decoded) == len(NORMALS)


def test_views_that_do_not_fit_on_the_disk_are_decoded_again(monkeypatch):
    monkeypatch.setattr(views.shutil, "disk_usage", lambda _: SimpleNamespace(free=4 * 6 * 64 * 64 * 10))  # ten views
    short = Detector.fit(NORMALS, tiny())
    monkeypatch.undo()
    assert short.predict(part(3)).score == pytest.approx(Detector.fit(NORMALS, tiny()).predict(part(3)).score, rel=1e-3)


def test_too_few_images_are_refused():
    with pytest.raises(NfadError, match="at least 8"):
        Detector.fit(NORMALS[:5], tiny())


def test_arguments_are_not_modified(detector):
    image = part(4)
    before = image.copy()
    detector.predict(image)
    np.testing.assert_array_equal(image, before)


def test_predict_streams(detector):
    drawn = []

    def endless():
        while True:
            drawn.append(1)
            yield part(len(drawn))

    stream = detector.predict_stream(endless())
    for _ in range(5):
        next(stream)
    assert len(drawn) <= 5 + detector.config.batch


def test_the_tensor_door_gives_the_same_as_the_array_door(detector):
    image = part(8)
    views = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
    assert float(detector.predict_tensor(views).score[0]) == pytest.approx(detector.predict(image).score, abs=1e-4)


def test_unknown_families_and_settings_are_named():
    with pytest.raises(NfadError, match="geometric"):
        families_of(tiny(rank={"geometric": 4}))
    with pytest.raises(NfadError, match="unknown setting 'epoch'"):
        Config.preset("embedded", epoch=3)
    with pytest.raises(NfadError, match="preset must be one of"):
        Config.preset("best")


@pytest.mark.parametrize("basis", ["scatter", "generalized", "ratio"])
def test_the_other_bases_have_the_same_size(basis, detector):
    other = Detector.fit(NORMALS, tiny(basis=basis))
    sizes = [b.shape for b in detector.scorer.operator.bases]
    assert [b.shape for b in other.scorer.operator.bases] == sizes


def test_a_teacher_tied_to_one_size_says_so():
    changes = {"teacher": "beitv2_base_patch16_224", "size": 64, "basis_size": 32, "blocks": (0,), "prior_blocks": (1,)}
    with pytest.raises(NfadError, match="set basis_size=64"):
        Detector.fit(NORMALS[:8], tiny(**changes))


def test_the_held_out_normals_numbers_are_kept_one_an_image_and_survive_saving(detector, tmp_path):
    normals = detector.normals
    told = [score in normals["score"] for score in detector.held_out.filtered]  # which has acquisitions above all
    assert 0 < sum(told) <= -(-(len(told) - sum(told)) // ACQUIRED)
    assert sorted(normals["unfiltered_score"]) == list(detector.held_out.unfiltered)
    assert {len(values) for values in normals.values()} == {detector.held_out.count}
    families = {name.removeprefix("nuisance:") for name in normals if name.startswith("nuisance:")}
    assert families == {family for names in detector.scorer.operator.families for family in names}
    assert Detector.load(detector.save(tmp_path / "a.nfad")).normals == normals
