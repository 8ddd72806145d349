import base64
import re
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from nfad.errors import NfadError
from nfad.records import Geometry, Prediction
from nfad.report.card import MARKS, card_of, changed
from nfad.report.rendering import rendered
from nfad.stats.conformal import Ranks


@pytest.fixture
def prediction():
    view = np.zeros((32, 32), dtype=np.float32)
    return Prediction(
        score=1.0,
        is_anomalous=False,
        threshold=4.0,
        map=view,
        detection_map=view,
        unfiltered_map=view,
        gate=1.0,
        participation=0.5,
        nuisance_fraction=0.5,
        geometry=Geometry(480, 480, top=0, left=0, box_height=480, box_width=480),
    )


@pytest.fixture
def photo():
    return np.full((480, 480, 3), 90, dtype=np.uint8)


def shown(*arguments, **more):
    return rendered("card.html", card=card_of(*arguments, **more))


def truth_of(card):
    encoded = re.search(r"--truth: url\(data:image/png;base64,([\w+/=]+)\)", card)[1]
    return np.asarray(Image.open(BytesIO(base64.b64decode(encoded))).convert("RGBA"))


def test_the_truth_is_outlined_around_the_defect_in_all_three_pictures(photo, prediction):
    mask = np.zeros((32, 32), dtype=bool)
    mask[8:16, 12:20] = True
    card = shown(photo, prediction, 10.0, "a.png", mask)
    assert card.count('<i class="truth"></i>') == 3
    assert card.count("--truth") == 1
    drawn = truth_of(card)
    rows, columns = np.nonzero(drawn[..., 3])
    # A view pixel is 15 of the photo's; the line lies just outside, two pixels wide.
    assert abs(rows.min() - (8 * 15 - 2)) <= 2 and abs(rows.max() - (16 * 15 + 1)) <= 2
    assert abs(columns.min() - (12 * 15 - 2)) <= 2 and abs(columns.max() - (20 * 15 + 1)) <= 2
    assert not drawn[125:235, 185:295, 3].any()
    assert {tuple(colour) for colour in drawn[rows, columns]} == {(255, 255, 255, 255), (0, 0, 0, 255)}


def test_without_a_defect_there_is_no_outline(photo, prediction):
    assert "truth" not in shown(photo, prediction, 10.0, "a.png", np.zeros((32, 32), dtype=bool))
    assert "truth" not in shown(photo, prediction, 10.0, "a.png")


def test_a_mask_of_another_view_is_refused(photo, prediction):
    with pytest.raises(NfadError, match=r"\(32, 32\); got \(480, 480\)"):
        shown(photo, prediction, 10.0, "a.png", np.ones((480, 480), dtype=bool))


def test_tags_are_text(photo, prediction):
    card = shown(photo, prediction, 10.0, "a.png", tags=("Truth: <b>", "Domain: dark"))
    assert '<bdi class="tag">Truth: &lt;b&gt;</bdi><bdi class="tag">Domain: dark</bdi>' in card


@pytest.fixture
def strange(prediction):
    view = np.full((32, 32), 9.0, np.float32)
    view[:4] = 0
    return replace(
        prediction, score=9.0, map=view, unfiltered_map=view, unfiltered_score=8.0, unfiltered_threshold=4.0,
        p_value=0.1, normals=9, strangeness=1.5, why_not_judged="does not look like the fitted part",
    )  # fmt: skip


def test_what_is_not_judged_is_told_by_word_mark_and_class_and_never_looks_good_or_bad(photo, strange):
    card = card_of(photo, strange, 10.0, "a.png")
    assert (card.verdict, card.mark) == ("not judged", MARKS["not judged"]) and len(set(MARKS.values())) == 3
    assert not card.changed and not changed(strange)
    assert card.score == ""  # it is not sorted among the judged
    assert not any(bar.over for bar in card.bars) and not any(layers.outline for layers in card.maps)
    text = shown(photo, strange, 10.0, "a.png")
    assert 'class="card not-judged"' in text and f"{MARKS['not judged']}</span> Not judged" in text
    assert "Not judged: does not look like the fitted part." in text
    assert "Strangeness 1.50" in text and "held-out normals" not in text and "normal parts" not in text
    judged = card_of(photo, replace(strange, why_not_judged="", is_anomalous=True), 10.0, "a.png")
    assert all(layers.outline for layers in judged.maps) and all(bar.over for bar in judged.bars)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_card_bears_numbers_that_are_none(photo, strange, number):
    view = np.full((32, 32), number, np.float32)
    broken = replace(
        strange, score=number, unfiltered_score=number, map=view, unfiltered_map=view, gate=number,
        nuisance_fraction=number, nuisance_by_family={"sensor": number}, p_value=number, strangeness=float("nan"),
        participation=number, why_not_judged="the model found no finite score for this photo",
    )  # fmt: skip
    text = shown(photo, broken, 10.0, "a.png")
    assert "no finite score" in text and not re.search(r"\b(nan|inf)\b", re.sub(r"base64,[\w+/=]+", "", text))


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=60), st.floats(-9, 9))
def test_above_all_held_out_normals_is_told_as_that_and_not_as_a_share(held, score):
    view = np.zeros((2, 2), np.float32)
    one = Prediction(score, False, 10.0, view, view, 0.5, 0.5, p_value=Ranks.of(held).p_value(score), normals=len(held))
    meaning = card_of(np.zeros((8, 8, 3), np.uint8), one, 10.0, "a.png").meaning
    assert (meaning == f"above the highest score to be expected of {len(held)} normal parts") == (score > max(held))
    assert score > max(held) or "normal parts" in meaning
