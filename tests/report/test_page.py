import base64
import gc
import hashlib
import os
import re
import tracemalloc
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from browser import objections
from markup import Balanced
from PIL import Image

from nfad.errors import NfadError
from nfad.records import Geometry, Prediction
from nfad.report.page import Page, Strong

NASTY = "/data/<script>alert(1)< b>/x\"><img src=x onerror='alert(2)'>&amp;.jpg"


@pytest.fixture
def photo():
    rows, columns = np.mgrid[:90, :120]
    return np.stack([rows, columns, rows + columns], axis=-1).astype(np.uint8)


@pytest.fixture
def anomalous():
    view = np.zeros((28, 28), dtype=np.float32)
    view[10:16, 4:9] = 12.0
    return Prediction(
        score=7.5,
        is_anomalous=True,
        threshold=4.0,
        map=view,
        detection_map=view,
        unfiltered_map=view + 1,
        gate=0.62,
        participation=0.2,
        nuisance_fraction=0.3,
        nuisance_by_family={"photometric": 0.2, "background": 0.1},
        unfiltered_score=8.0,
        unfiltered_threshold=4.5,
        p_value=1 / 1234,
        geometry=Geometry(90, 120, top=5, left=20, box_height=80, box_width=80),
        source="/data/line 3/a.jpg",
    )


@pytest.fixture
def cleared(anomalous):
    return replace(anomalous, score=2.0, is_anomalous=False, p_value=0.6)


@pytest.fixture
def strange(anomalous):
    reason = "does not look like the fitted part"
    return replace(anomalous, is_anomalous=False, strangeness=1.5, why_not_judged=reason)


def written(path):
    return path.read_text(encoding="utf-8")


def counted(text):
    return [int(number) for number in re.findall(r"<li><b>(\d+)</b>", text)]


def test_the_page_is_whole_balanced_and_needs_nothing_else(tmp_path, photo, anomalous, cleared):
    path = tmp_path / "page.html"
    with Page(path, "Line 3", metadata=[("Model", "a & b"), ("Images", 3)]) as page:
        page.add_table("AUROC", ["Domain", "unfiltered", "filtered"], [["same", "99.0", Strong("99.1")]])
        page.add_section("First", "the day shift")
        page.add(photo, anomalous)
        page.add_failure("b.jpg", "the file is cut off")
        page.add_section("Later", "the night shift")
        page.add(photo, cleared)
        page.add_table("After", ["Domain", "n"], [["dark", 2]])
    text = written(path)
    parsed = Balanced(text)
    assert os.listdir(tmp_path) == ["page.html"]
    assert not re.search(r"https?://|//cdn|@import", text)
    assert parsed.all("html") == [{"lang": "en"}]
    assert not parsed.all("link")
    sources = [image["src"] for image in parsed.all("img")]
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert all("alt" in image for image in parsed.all("img"))
    assert "<strong>99.1</strong>" in text
    assert text.count("the day shift") == 1 and text.count('<div class="items">') == 2
    assert "a &amp; b" in text
    assert text.index("AUROC") < text.index("a.jpg") < text.index("b.jpg") < text.index("Later") < text.index("After")


def test_the_policy_lets_the_page_s_own_script_run(tmp_path, photo, anomalous):
    with Page(tmp_path / "page.html", "x") as page:
        page.add(photo, anomalous)
    text = written(tmp_path / "page.html")
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in text


def test_text_from_strangers_stays_text(tmp_path, photo, anomalous):
    path = tmp_path / "page.html"
    with Page(path, NASTY, metadata=[(NASTY, NASTY)]) as page:
        page.add(photo, replace(anomalous, source=NASTY, nuisance_by_family={NASTY: 0.3}))
        page.add_failure(NASTY, NASTY)
        page.add_section(NASTY, NASTY)
        page.add_table(NASTY, [NASTY, Strong(NASTY)], [[NASTY, Strong(NASTY)]])
    parsed = Balanced(written(path))
    assert len(parsed.all("script")) == 1
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert NASTY in parsed.texts
    assert any(attributes.get("aria-label") == NASTY for _, attributes in parsed.tags)


def test_a_name_that_is_not_unicode_does_not_cost_the_report(tmp_path):
    with Page(tmp_path / "page.html", "x") as page:
        page.add_failure(os.fsdecode(b"caf\xe9.jpg"), "unreadable")
    assert "caf?.jpg" in written(tmp_path / "page.html")


def test_the_counts_are_right(tmp_path, photo, anomalous, cleared, strange):
    found = replace(anomalous, unfiltered_score=1.0)
    unmeasured = replace(anomalous, unfiltered_score=float("nan"), unfiltered_threshold=float("nan"))
    with Page(tmp_path / "page.html", "x") as page:
        for prediction in (anomalous, cleared, cleared, found, unmeasured):
            page.add(photo, prediction)
        page.add(photo, strange)
        page.add(photo, strange)
        page.add_failure("a", "b")
    text = written(tmp_path / "page.html")
    assert counted(text) == [5, 3, 3, 2, 1]
    assert "2 rejected only unfiltered, 1 only filtered" in text
    assert re.findall(r'data-show="([\w-]+)"[^>]*>([\w ]+) <span>(\d+)', text) == [
        ("all", "All", "8"),
        ("anomalous", "Anomalous", "3"),
        ("changed", "Verdict changed", "3"),
        ("not-judged", "Not judged", "2"),
        ("failed", "Could not be read", "1"),
    ]
    kinds = re.findall(r'<article class="card ?([\w -]*)"', text)
    assert kinds == [
        "anomalous", "normal changed", "normal changed", "anomalous changed", "anomalous", "not-judged", "not-judged",
        "failed",
    ]  # fmt: skip


def test_unreadable_is_not_called_not_judged_nor_the_other_way_round(tmp_path, photo, strange):
    with Page(tmp_path / "page.html", "x") as page:
        page.add(photo, strange)
        page.add_failure("a", "b")
    first, second = written(tmp_path / "page.html").split("<article")[1:]
    assert "Not judged: does not look like the fitted part." in first and "Could not be read" not in first
    assert "Could not be read" in second and "Not judged" not in second


def test_every_choice_hides_all_other_cards(tmp_path, photo, anomalous, cleared, strange):
    """The style sheet does the hiding: each kind that can be chosen has its rule."""
    with Page(tmp_path / "page.html", "x") as page:
        page.add(photo, anomalous)
    text = written(tmp_path / "page.html")
    kinds = re.findall(r'data-show="([\w-]+)"', text)
    assert all(f"[data-show={kind}] .card:not(.{kind})" in text for kind in kinds if kind != "all") and len(kinds) == 5


def test_what_not_judged_means_is_told_where_there_is_such_a_part(tmp_path, photo, anomalous, strange):
    for prediction in (anomalous, strange):
        with Page(tmp_path / "page.html", "x") as page:
            page.add(photo, prediction)
        assert ("neither good nor bad" in written(tmp_path / "page.html")) == (prediction is strange)


def test_an_image_says_what_speaks_for_its_verdict(tmp_path, photo, anomalous, cleared):
    with Page(tmp_path / "page.html", "x") as page:
        page.add(photo, anomalous)
        page.add(photo, replace(cleared, source=""))
        page.add(photo, replace(cleared, p_value=float("nan"), score=float("nan"), nuisance_by_family={}))
        page.add(photo, replace(cleared, p_value=0.0))
    first, second, third, fourth = written(tmp_path / "page.html").split("<article")[1:]
    for words in (
        "</span> Anomalous",
        "7.50 &gt; 4.00",
        "8.00 &gt; 4.50",
        "at most 1 in 1,200 normal parts scores this high",
        "20% illumination-like",
        "70% the rest: texture, noise, defects",
        "Gate 0.62",
        anomalous.explain(),
    ):
        assert words in first
    assert "Verdict changed" not in first
    assert "Image 2" in second
    assert "</span> Normal" in second
    assert "Verdict changed" in second
    assert "60% of normal parts" in second
    assert 'data-score=""' in third
    assert "not measured" in third
    assert "normal parts" not in third
    assert "30% acquisition-like" in third
    assert "No normal part" in fourth


def test_the_photo_and_both_maps_are_there_at_bounded_size(tmp_path, anomalous):
    large = np.random.default_rng(0).integers(0, 256, (1500, 2000, 3), dtype=np.uint8)  # noise: the worst to compress
    with Page(tmp_path / "page.html", "x") as page:
        page.add(large, anomalous)
    text = written(tmp_path / "page.html")
    kinds_and_images = re.findall(r"data:image/(\w+);base64,([\w+/=]+)", text)
    assert [kind for kind, _ in kinds_and_images] == ["jpeg", "png", "png", "png", "png"]
    for _, encoded in kinds_and_images:
        with Image.open(BytesIO(base64.b64decode(encoded))) as image:
            width, height = image.size
            assert max(width, height) <= 480
            assert abs(width / height - 4 / 3) < 0.02
    assert len(text.split("<article")[1]) < 15e6 / 200


def test_both_maps_share_one_scale(tmp_path, photo, anomalous):
    same = replace(anomalous, unfiltered_map=anomalous.map, unfiltered_threshold=anomalous.threshold)
    with Page(tmp_path / "page.html", "x", high=20) as page:
        page.add(photo, same)
        page.add(photo, replace(same, map=same.map * 1.5))
    (first, second), (third, fourth) = (
        re.findall(r'class="heat" alt="" src="([^"]+)"', card)
        for card in written(tmp_path / "page.html").split("<article")[1:]
    )
    assert first == second == third
    assert third != fourth


@pytest.mark.parametrize("old", [None, "yesterday's"])
def test_after_an_exception_nothing_new_is_left(tmp_path, photo, anomalous, old):
    path = tmp_path / "page.html"
    if old:
        path.write_text(old)
    with pytest.raises(ZeroDivisionError), Page(path, "x") as page:
        page.add(photo, anomalous)
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == (["page.html"] if old else [])
    assert not old or path.read_text() == old


def test_an_image_that_is_refused_leaves_no_trace(tmp_path, photo, anomalous):
    with Page(tmp_path / "page.html", "x") as page:
        with pytest.raises(NfadError):
            page.add(photo[:, :60], anomalous)
        with pytest.raises(NfadError, match="3 headings; got 2"):
            page.add_table("t", ["a", "b", "c"], [[1, 2]])
        page.add_failure("a.jpg", "refused")
    assert counted(written(tmp_path / "page.html")) == [0, 0, 0, 0, 1]
    Balanced(written(tmp_path / "page.html"))


def test_a_missing_folder_is_told_before_the_work_begins(tmp_path):
    with pytest.raises(NfadError, match="existing folder"), Page(tmp_path / "nowhere" / "page.html", "x"):
        pytest.fail("the block must not be entered")


def test_memory_does_not_grow_with_the_number_of_images(tmp_path, anomalous):
    photo = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)  # noise: large in the page

    def held():
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    with Page(tmp_path / "page.html", "x") as page:
        page.add(photo, anomalous)  # templates are compiled, caches filled
        tracemalloc.start()
        before = held()
        for _ in range(60):
            page.add(photo, anomalous)
        grown = held() - before
        tracemalloc.reset_peak()
    written = tracemalloc.get_traced_memory()[1] - before  # at most, while the page was put together
    tracemalloc.stop()
    size = (tmp_path / "page.html").stat().st_size
    assert size > 1_000_000
    assert grown < 50_000  # the file's buffer and Python's own caches
    assert written < size / 4


def test_a_page_of_tables_alone_has_no_controls(tmp_path):
    with Page(tmp_path / "page.html", "x") as page:
        page.add_table("t", ["a", "b"], [["r", 1]])
    parsed = Balanced(written(tmp_path / "page.html"))
    assert not parsed.all("button")
    assert parsed.all("table")


def test_the_gate_is_shown_and_explained_only_where_there_is_one(tmp_path, photo, anomalous):
    with Page(tmp_path / "page.html", "x") as page:
        page.add(photo, replace(anomalous, gate=None))
    assert not re.search(r"\bgate\b", written(tmp_path / "page.html"), re.IGNORECASE)
    with Page(tmp_path / "page.html", "x") as page:
        page.add(photo, anomalous)
    assert "The gate says" in written(tmp_path / "page.html")


def test_axe_finds_nothing_to_object_to(tmp_path, photo, anomalous, cleared, strange):
    with Page(tmp_path / "page.html", "Line 3", metadata=[("Model", "bottle")]) as page:
        page.add_table("AUROC", ["Domain", "unfiltered", "filtered"], [["same", "99.0", Strong("99.1")]])
        page.add_section("Morning", "the first shift")
        page.add(photo, anomalous)
        page.add(photo, cleared)
        page.add(photo, strange)
        page.add_failure("b.jpg", "the file is cut off")
    assert objections(tmp_path / "page.html") == {}
