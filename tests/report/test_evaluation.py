import json
import math
import os
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from browser import objections
from markup import Balanced
from parts import part, tiny

from nfad import Detector, NfadError
from nfad.evaluation import metrics
from nfad.evaluation.curves import roc_curve
from nfad.evaluation.evaluate import evaluate
from nfad.evaluation.scores import Scores, grouped, worth_showing
from nfad.report.evaluation import GROUPS, PROTOCOLS, Picture, as_numbers, report_of, write_report

NASTY = "<script>alert(1)< b>\"><img src=x onerror='alert(2)'>&amp;"


@pytest.fixture(scope="module")
def judged(in_two_lights):
    """A real evaluation: two domains, one of them darker than anything the detector was fitted on."""
    samples = in_two_lights(24, 0.4)
    detector = Detector.fit([part(i, 80) for i in range(20)], tiny(false_alarm_rate=0.2))
    predictions = []
    evaluation = evaluate(detector, samples, on_result=lambda sample, prediction: predictions.append(prediction))
    return samples, predictions, evaluation


@pytest.fixture(scope="module")
def report(judged):
    samples, predictions, evaluation = judged
    bare = report_of(evaluation, "Set, part", {"Teacher": "tiny & small"}, notes=["2 images < 3"], rate=0.2)
    mask = np.zeros((64, 64), dtype=bool)
    mask[32:42, 32:42] = True
    pictures = {
        group: [Picture(samples[i], predictions[i], mask if samples[i].anomalous else None) for i in indices]
        for group, indices in worth_showing(bare.scores).items()
    }
    assert sum(map(len, pictures.values()))  # else the tests below would say nothing of pictures
    return replace(bare, pictures=pictures)


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    return write_report(report, tmp_path_factory.mktemp("out") / "report.html").read_text(encoding="utf-8")


def numbers_in(page):
    return json.loads(unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[1]))


def test_the_page_is_whole_balanced_and_needs_nothing_else(page):
    parsed = Balanced(page)
    assert not re.search(r"https?://|//cdn|@import|<link", page)
    assert len(parsed.all("script")) == 1
    assert all(image["src"].startswith("data:image/png;base64,") for image in parsed.all("img"))
    for words in ("Set, part", "tiny &amp; small", "2 images &lt; 3", "mvtec", "prefers-color-scheme: dark"):
        assert words in page
    targets = {attributes["id"] for _, attributes in parsed.tags if "id" in attributes}
    assert {link["href"][1:] for link in parsed.all("a")} <= targets


def test_every_domain_has_its_numbers_its_histograms_and_its_curves(page, report):
    svgs = [svg["aria-label"] for svg in Balanced(page).all("svg")]
    for domain in ("same", "dark", "all"):
        for name in ("unfiltered", "filtered"):
            assert svgs.count(f"Scores, {domain}, {name}") == 1
        assert svgs.count(f"ROC, {domain}") == svgs.count(f"PRO, {domain}") == 1
    assert len(svgs) == 12
    for row in report.rows:
        for arm in ("unfiltered", "filtered"):
            assert f"{row.arms[arm].i_auroc:.3f}" in page and f"{row.arms[arm].aupro:.3f}" in page


def test_the_curves_are_those_of_the_scores(page, report):
    labels = report.scores.label[report.scores.domain == "dark"]
    for arm, scores in (("unfiltered", report.scores.unfiltered_score), ("filtered", report.scores.score)):
        svg = re.search(r'<svg[^>]*aria-label="ROC, dark".*?</svg>', page)[0]
        line = next(d for d in re.findall(rf'class="{arm}" d="(M[^"]*)"', svg) if "L" in d)
        corners = roc_curve(scores[report.scores.domain == "dark"], labels)
        assert line.count("L") + 1 == len(corners[0])


def test_pictures_stand_in_their_groups_with_what_is_known_of_them(page, report):
    places = [page.index(f"<h2>{title}</h2>") for title, _ in GROUPS.values()] + [page.index('id="numbers"')]
    members = grouped(report.scores)
    for (group, (_, words)), start, end in zip(GROUPS.items(), places, places[1:]):
        section = page[start:end]
        assert section.count("<article") == len(report.pictures[group])
        assert (f"{len(members[group])} {words}." in section) == bool(len(members[group]))
        for picture in report.pictures[group]:
            assert picture.prediction.explain() in section
            assert f"Truth: {picture.sample.kind}" in section and f"Domain: {picture.sample.domain}" in section
            assert f"{picture.prediction.score:.2f}" in section and f"{picture.prediction.threshold:.2f}" in section
        assert section.count("--truth") == sum(picture.sample.anomalous for picture in report.pictures[group])


def test_all_numbers_can_be_read_back(page, report):
    found = numbers_in(page)
    assert found == json.loads(json.dumps(as_numbers(report)))
    assert found["images"]["score"] == pytest.approx(report.scores.score.tolist(), rel=1e-5)
    assert found["images"]["bad"] == report.scores.label.tolist()
    assert found["rows"][0]["filtered"]["i_auroc"] == pytest.approx(report.rows[0].arms["filtered"].i_auroc, rel=1e-5)
    assert {row["domain"] for row in found["rows"]} == {"same", "dark", "all"}
    assert len(found["pro_curves"]["dark"]["unfiltered"][0]) == 200


def test_what_is_undefined_is_null_in_the_numbers_and_a_dash_on_the_page(judged, tmp_path):
    evaluation = judged[2]
    good = [image for image in evaluation.images if not image.sample.anomalous]
    row = replace(evaluation.rows[0], bad=0)
    undefined = dict.fromkeys(("i_auroc", "i_ap", "i_f1", "p_auroc", "p_ap", "p_f1", "aupro"), math.nan)
    arms = {name: replace(arm, **undefined, detections=math.nan, intervals={}) for name, arm in row.arms.items()}
    bare = replace(evaluation, rows=(replace(row, arms=arms, gains={}),), images=tuple(good), pro_curves={})
    page = write_report(report_of(bare, "x", {}), tmp_path / "report.html").read_text()
    assert numbers_in(page)["rows"][0]["filtered"]["i_auroc"] is None
    visible = re.sub(r"<(style|script|pre)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"\b(nan|inf|None)\b", visible)
    assert "no bad images" in visible and "no masks" in visible and "needs good and bad images" in visible
    Balanced(page)


def test_text_from_strangers_stays_text(report, tmp_path):
    domains = np.where(report.scores.domain == "dark", NASTY, "same")
    pictures = {
        group: [replace(picture, sample=replace(picture.sample, kind=NASTY, domain=NASTY)) for picture in shown]
        for group, shown in report.pictures.items()
    }
    strange = replace(
        report,
        title=NASTY,
        metadata={NASTY: NASTY},
        notes=[NASTY],
        rows=[replace(row, domain=NASTY if row.domain == "dark" else row.domain) for row in report.rows],
        scores=replace(report.scores, domain=domains, names=[f"{NASTY}/\udce9.png"] * len(domains)),
        pro={NASTY: report.pro["dark"]},
        pictures=pictures,
    )
    page = write_report(strange, tmp_path / "report.html").read_text(encoding="utf-8")
    parsed = Balanced(page)
    assert len(parsed.all("script")) == 1
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert numbers_in(page)["title"] == NASTY
    assert numbers_in(page)["images"]["name"][0].endswith("\udce9.png")


def test_a_mean_over_domains_has_numbers_but_no_curves(report, tmp_path):
    mean = replace(report.rows[0], domain="mean")
    page = write_report(replace(report, rows=[*report.rows, mean], pictures={}), tmp_path / "r.html").read_text()
    assert page.count("<bdi>mean</bdi>") == 3  # one a table
    assert "ROC, mean" not in page
    assert "<article" not in page and 'class="bar"' not in page and "Not shown here" in page


def test_a_photo_that_is_not_the_file_can_be_given(report, tmp_path):
    group, picture = next((group, shown[0]) for group, shown in report.pictures.items() if shown)
    elsewhere = replace(picture, sample=replace(picture.sample, path=tmp_path / "not there.png"))
    with pytest.raises(NfadError, match="not there"):
        write_report(replace(report, pictures={group: [elsewhere]}), tmp_path / "r.html")
    assert os.listdir(tmp_path) == []
    given = replace(elsewhere, photo=np.zeros((80, 80, 3), np.uint8))
    assert "not there.png" in write_report(replace(report, pictures={group: [given]}), tmp_path / "r.html").read_text()


def test_what_the_pixel_metrics_leave_out_is_noted(judged):
    noted = report_of(replace(judged[2], without_mask=3, pixel_error=2e-4), "x", {}, notes=["first"]).notes
    assert noted[0] == "first" and "3 bad images have no mask" in noted[1] and "off by 0.0002" in noted[2]
    assert report_of(judged[2], "x", {}).notes == []


def test_every_protocol_has_words():
    assert set(PROTOCOLS) == set(metrics.PROTOCOLS)


def test_an_empty_report_is_refused(report):
    with pytest.raises(NfadError, match="not empty"):
        replace(report, rows=[])
    with pytest.raises(NfadError, match="not empty"):
        replace(report, scores=Scores([], [], [], [], 1.0, 1.0))


def test_the_page_stays_small(page, report):
    shown = sum(map(len, report.pictures.values()))
    assert len(page) < 250_000 + 75_000 * shown  # all groups full: below 3 MB


def test_the_gate_is_explained_only_where_there_is_one(judged, page, tmp_path):
    assert not re.search(r"\bgate\b", page, re.IGNORECASE)
    evaluation = judged[2]
    gated = replace(evaluation, images=tuple(replace(image, gate=0.5) for image in evaluation.images))
    assert "The gate says" in write_report(report_of(gated, "x", {}), tmp_path / "r.html").read_text()


def test_axe_finds_nothing_to_object_to(page, tmp_path):
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    assert objections(tmp_path / "report.html") == {}


def test_a_photo_that_is_not_judged_is_shown_as_such_and_counted_apart(judged, refusing, tmp_path):
    samples, _, _ = judged
    detector = Detector.fit([part(i, 80) for i in range(20)], tiny(false_alarm_rate=0.2))
    strange = {sample.path for sample in samples if sample.domain == "dark"}
    for score in (None, math.nan):
        found = evaluate(refusing(detector, strange.__contains__, score), samples)
        page = write_report(report_of(found, "x", {}), tmp_path / "report.html").read_text()
        assert f"{len(strange)} parts without a verdict" in unescape(page)
        numbers = numbers_in(page)
        assert numbers["images"]["judged"] == [sample.path not in strange for sample in samples]
        dark = next(row for row in numbers["rows"] if row["domain"] == "dark")
        assert dark["filtered"]["good_not_judged"] == dark["filtered"]["bad_not_judged"] == len(strange) / 2
        assert dark["filtered"]["verdict_error"] == 0
        Balanced(page)
