import json
import re
from html import unescape

import numpy as np
import pytest
from PIL import Image

from nfad.data.catalog import load
from nfad.evaluation.foreign import evaluate_maps
from nfad.report.results import write_foreign

LIGHTS = {"train/good": 8, "test/good": 6, "test/good/dark": 6, "test/dent": 6, "test/dent/dark": 6}


@pytest.fixture
def root(tmp_path):
    """Grey photos in two lights, with masks."""
    root, mask = tmp_path / "parts", np.zeros((24, 32), np.uint8)
    mask[6:12, 8:16] = 255
    for place, count in LIGHTS.items():
        for i in range(count):
            path = root / place / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 24), (90, 90, 90)).save(path)
            if "dent" in place:
                truth = root / place.replace("test", "ground_truth") / f"{i}.png"
                truth.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(mask).save(truth)
    return root


def program(root, out, found, unit=1.0, seed=0, train=True):
    """Noise in some unit, and `found` more where the defect is."""
    rng = np.random.default_rng(seed)
    for path in sorted(root.glob("t*/**/*.png" if train else "test/**/*.png")):
        values = rng.uniform(0, 0.5, (24, 32))
        if "dent" in path.parts:
            values[6:12, 8:16] += found
        target = out / path.relative_to(root).with_suffix(".npy")
        target.parent.mkdir(parents=True, exist_ok=True)
        np.save(target, unit * values)
    return out


def written(root, folder, *places, rate=0.2):
    findings = evaluate_maps(root, load("folder", root), list(places), rate=rate, size=64)
    paths = write_foreign(findings, folder)
    [page] = [path.read_text() for path in paths if path.suffix == ".html"]
    numbers = json.loads(unescape(re.search(r'<pre id="json"[^>]*>(.*?)</pre>', page, re.DOTALL)[1]))
    return findings[0], page, numbers


def test_one_program_has_the_page_that_a_detector_of_ours_has(root, tmp_path):
    finding, page, numbers = written(root, tmp_path / "out", program(root, tmp_path / "rival<b>", 0.004))
    for words in ("ROC, all", "PRO, all", "False alarms", "Missed defects", "Not judged", "AUROC", 'class="heat"'):
        assert words in page
    assert not any(words in page for words in ("the filter", "Every image is judged twice", "Both maps"))
    assert "Gain" not in page and "rival<b>" not in page and "rival&lt;b&gt;" in page
    arm = finding.arms[0]
    judged = np.array(numbers["images"]["score"]) > numbers["threshold"]
    assert (judged == (np.array(arm.scores) > arm.threshold)).all()
    row = numbers["rows"][-1]["rival<b>"]
    assert row["false_alarms"] == pytest.approx(judged[~np.array(numbers["images"]["bad"])].mean(), abs=1e-5)
    assert row["detections"] == pytest.approx(judged[np.array(numbers["images"]["bad"])].mean(), abs=1e-5)


def test_two_programs_are_compared_on_one_scale_whatever_their_units(root, tmp_path):
    places = program(root, tmp_path / "first", 0.004), program(root, tmp_path / "second", 0.4, unit=1e-4, seed=1)
    finding, page, numbers = written(root, tmp_path / "out", *places)
    assert "first → second" in page and "Gain in AUROC" in page and "Found by second alone" in page
    gain = finding.rows[-1].gains["i_auroc"]
    assert numbers["rows"][-1]["gain"] == pytest.approx(gain.value, abs=1e-5)
    first, second = (np.array(numbers["images"][name]) for name in ("unfiltered_score", "score"))
    good = ~np.array(numbers["images"]["bad"])
    assert np.median(np.abs(first[good])) < 5 and np.median(np.abs(second[good])) < 5  # z-scores, both


def test_without_a_threshold_nothing_is_judged_and_the_page_says_so(root, tmp_path):
    _, page, numbers = written(root, tmp_path / "out", program(root, tmp_path / "rival", 0.3, train=False))
    assert not any(numbers["images"]["judged"]) and numbers["threshold"] is None
    assert "24 parts without a verdict" in page and "nothing is judged" in page


def test_scores_alone_have_curves_and_no_pictures(root, tmp_path):
    rng, lines = np.random.default_rng(0), ["image,score"]
    for path in sorted(root.glob("t*/**/*.png")):
        lines.append(f"{path.relative_to(root).as_posix()},{rng.uniform() + ('dent' in path.parts)}")
    listed = tmp_path / "listed.csv"
    listed.write_text("\n".join(lines))
    _, page, _ = written(root, tmp_path / "out", listed)
    assert "ROC, all" in page and 'class="heat"' not in page and "There are no masks, or no maps" in page
