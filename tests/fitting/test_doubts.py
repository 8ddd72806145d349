"""What a fit finds odd about its own photos."""

import numpy as np
import pytest
import torch
from parts import part, parts, tiny

from nfad import Config, Detector
from nfad.errors import NfadError
from nfad.fitting.doubts import doubts_of_scores, doubts_of_views, thumbnails
from nfad.fitting.views import ViewCache

GOOD = parts(12)


def doubts(images, tmp_path):
    views = ViewCache.read(images, 64, None, tmp_path)
    return dict(doubts_of_views(thumbnails(views), views.images))


def test_good_photos_raise_no_doubt(tmp_path):
    assert doubts(GOOD, tmp_path) == {}


@pytest.mark.parametrize(("level", "word"), [(0, "black"), (255, "white"), (128, "grey")])
def test_an_empty_photo_is_named(level, word, tmp_path):
    found = doubts([*GOOD, np.full((64, 64, 3), level, np.uint8)], tmp_path)
    assert list(found) == [12] and word in found[12]


def test_a_copy_is_named_and_a_similar_part_is_not(tmp_path):
    similar = GOOD[4].copy()
    similar[10:40, 10:40] //= 2
    found = doubts([*GOOD, GOOD[3], similar], tmp_path)
    assert list(found) == [12] and "is a copy of" in found[12]


def test_what_stands_out_is_named_by_image():
    random = torch.Generator().manual_seed(0)
    scores, content = torch.randn(30, generator=random), torch.randn(30, 8, generator=random)
    scores[7], content[20] = 12.0, 1000.0
    found = dict(doubts_of_scores(torch.arange(100, 130), scores, content))
    assert set(found) == {107, 120} and "defect" in found[107] and "another part" in found[120]


def test_a_fit_tells_its_doubts_and_a_strict_one_ends_with_all_of_them():
    told = []
    Detector.fit([*GOOD, GOOD[0]], tiny(), doubt=lambda image, why: told.append(why))
    assert any("copy" in why for why in told)

    strays = [GOOD[0], np.zeros_like(GOOD[0]), GOOD[1]]
    with pytest.raises(NfadError, match="(?s)nothing was written.*image 12 is a copy.*13 shows nothing.*14 is a copy"):
        Detector.fit([*GOOD, *strays], tiny(), strict=True)


@pytest.mark.parametrize("stray", ["black", "other"])
def test_a_stray_photo_among_the_good_ones_does_not_open_the_door_to_its_like(stray):
    """One in thirty is more of normals × acquisitions than may be refused: it would set the limit by itself."""
    stripes = [np.roll(np.kron(np.indices((8, 8)).sum(0) % 2, np.ones((8, 8))), by, 0) for by in (0, 3)]
    checked = [np.stack([255 * each] * 3, axis=-1).astype(np.uint8) for each in stripes]
    others = {"black": [np.zeros((64, 64, 3), np.uint8)] * 2, "other": checked}
    real = Config.preset("embedded-fast", size=64, pairs=2, acquisitions=60, false_alarm_rate=0.05)
    told = []
    detector = Detector.fit([*parts(30), others[stray][0]], real, doubt=lambda image, why: told.append(why))
    assert len(told) == 1 and detector.fitted_on == (30 if stray == "black" else 31)
    assert all(each.verdict != "normal" for each in detector.predict(others[stray]))
    assert sum(each.verdict == "normal" for each in detector.predict(parts(20, start=200))) >= 16


def test_photos_that_show_nothing_make_no_fit():
    with pytest.raises(NfadError, match="at least 8 readable normal images that show something; got 7"):
        Detector.fit([*GOOD[:7], *[np.zeros((64, 64, 3), np.uint8)] * 5], tiny())


def test_a_defect_among_many_good_parts_is_named():
    told = {}
    images = [*parts(50), part(99, defect=True)]
    real = Config.preset("embedded-fast", size=64, pairs=2, acquisitions=255)
    Detector.fit(images, real, doubt=lambda image, why: told.setdefault(image.tobytes(), why))
    assert list(told) == [images[-1].tobytes()]
