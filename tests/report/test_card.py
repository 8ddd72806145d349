import base64
import re
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from nfad.errors import NfadError
from nfad.records import Geometry, Prediction
from nfad.report.card import card_of
from nfad.report.rendering import rendered


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
