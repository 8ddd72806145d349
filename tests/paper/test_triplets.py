from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled import write_samples
from matplotlib.colors import to_rgba
from matplotlib.contour import ContourSet
from matplotlib.text import Text
from parts import parts, tiny
from PIL import Image
from sklearn.metrics import roc_auc_score

from nfad.detector import Detector
from nfad.errors import NfadError
from nfad.evaluation.evaluate import ImageResult, evaluate
from nfad.evaluation.tally import mask_of
from nfad.paper.triplets import TRUTH, choose, figure, triplets
from nfad.records import Geometry, Prediction, Sample
from nfad.report.pictures import overlay

SIZE = 32


def picture(seed=0, defect=True, label="view · scratch", **changes):
    """A photo 48 high and 80 wide whose central 32² the model saw, pixel by pixel."""
    random = np.random.default_rng(seed)
    photo = random.integers(0, 256, (48, 80, 3), dtype=np.uint8)
    control, ours = random.normal(4, 4, (2, SIZE, SIZE)).astype(np.float32)
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    mask[8:16, 10:20] = True
    prediction = Prediction(
        score=3.25, is_anomalous=False, threshold=4.0, map=ours, detection_map=ours, unfiltered_map=control, gate=0.5,
        participation=0.2, nuisance_fraction=0.3, unfiltered_score=12.5, unfiltered_threshold=4.5,
        geometry=Geometry(48, 80, top=8, left=24, box_height=SIZE, box_width=SIZE),
    )  # fmt: skip
    return photo, replace(prediction, **changes), mask if defect else None, label


def shown(page):
    """The pictures of every triplet, in order; the first axes are the page itself."""
    return [ax for ax in page.axes[1:] if ax.images]


def contours(ax):
    return [each for each in ax.collections if isinstance(each, ContourSet)]


def said(page):
    return [text.get_text() for text in page.findobj(Text) if text.get_text()]


def test_a_triplet_is_what_the_model_saw_and_both_maps_over_it():
    photo, prediction, mask, label = picture()
    axes = shown(figure([(photo, prediction, mask, label)]))
    view = photo[8:40, 24:56]
    expected = (view, overlay(view, prediction.unfiltered_map), overlay(view, prediction.map))
    assert len(axes) == 3
    for ax, pixels in zip(axes, expected):
        assert np.array_equal(ax.images[0].get_array(), pixels)


def test_both_maps_have_one_scale_and_it_can_be_set():
    photo, prediction, mask, label = picture()
    equal = replace(prediction, unfiltered_map=prediction.map)
    _, control, ours = (ax.images[0].get_array() for ax in shown(figure([(photo, equal, mask, label)], high=20)))
    assert np.array_equal(control, ours)
    assert np.array_equal(ours, overlay(photo[8:40, 24:56], prediction.map, high=20))


def test_a_smaller_copy_of_the_photo_shows_the_same_part():
    photo, prediction, mask, label = picture()
    grey = np.repeat(np.linspace(0, 250, 80).astype(np.uint8)[None, :, None], 48, 0).repeat(3, 2)
    small = np.asarray(Image.fromarray(grey).resize((40, 24), Image.Resampling.BOX))
    large, reduced = (
        shown(figure([(each, prediction, mask, label)]))[0].images[0].get_array().astype(int) for each in (grey, small)
    )
    assert np.abs(large - reduced).max() <= 250 / 80 * 2  # a pixel of the small copy is two of the photo's
    assert photo.shape != small.shape


def test_the_truth_is_outlined_in_green_and_only_where_there_is_one():
    page = figure([picture(), picture(1, defect=False)])
    with_truth, without = shown(page)[:3], shown(page)[3:]
    for ax in with_truth:
        [line] = contours(ax)
        assert tuple(line.get_edgecolor()[0]) == to_rgba(TRUTH)
        corners = np.concatenate([path.vertices for path in line.get_paths()])
        # half a pixel around the mask's outermost pixels' centres
        assert corners.min(0).tolist() == [10, 8] and corners.max(0).tolist() == [20, 16]
    assert not any(contours(ax) for ax in without)
    assert "ground truth" in said(page) and "ground truth" not in said(figure([picture(defect=False)]))


def test_defects_stand_above_a_dotted_line_and_normals_below_it():
    page = figure([picture(0, defect=False), picture(1), picture(2), picture(3), picture(4)], across=3)
    [dotted] = [line for line in page.axes[0].lines if line.get_linestyle() == ":"]
    height = 1 - dotted.get_ydata()[0] / page.get_figheight()
    tops = [ax.get_position().y1 for ax in shown(page)]
    assert sum(top > height for top in tops) == 4 * 3 and sum(top < height for top in tops) == 3
    assert len({round(top, 6) for top in tops}) == 3  # two lines of defects, one of normals
    assert not [line for line in figure([picture()]).axes[0].lines if line.get_linestyle() == ":"]


def test_scores_and_per_image_pixel_auroc_are_told():
    photo, prediction, mask, label = picture()
    aurocs = [100 * roc_auc_score(mask.ravel(), m.ravel()) for m in (prediction.unfiltered_map, prediction.map)]
    text = said(figure([(photo, prediction, mask, label)]))
    assert label in text
    assert "score 12.50 (> 4.50) → 3.25 (≤ 4.00)" in text
    assert f"pixel AUROC {aurocs[0]:.1f} → {aurocs[1]:.1f}" in text
    normal = said(figure([picture(defect=False)]))
    assert "score 12.50 (> 4.50) → 3.25 (≤ 4.00)" in normal and not any("AUROC" in each for each in normal)


def test_what_is_not_known_is_a_dash():
    photo, prediction, mask, label = picture(unfiltered_score=float("nan"))
    text = said(figure([(photo, prediction, np.zeros_like(mask), label)]))
    assert "score – → 3.25 (≤ 4.00)" in text and "pixel AUROC – → –" in text


def test_no_words_are_small_or_in_the_way_of_others():
    long = "illumination · a defect whose name is longer than anyone could wish it to be"
    page = figure([picture(i, i % 3 > 0, long, score=1234.5, unfiltered_score=98765.4) for i in range(9)])
    page.canvas.draw()
    found = [(text, text.get_window_extent()) for text in page.findobj(Text) if text.get_text()]
    assert min(text.get_fontsize() for text, _ in found) >= 8
    for index, (text, box) in enumerate(found):
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.bbox.x1 and box.y1 <= page.bbox.y1, text
        assert not any(box.overlaps(other) for _, other in found[index + 1 :]), text


def test_a_stretched_view_is_shown_in_the_photo_s_proportions():
    photo, prediction, mask, label = picture()
    stretched = replace(prediction, geometry=Geometry(48, 80, 0, 0, 48, 80))
    ax = shown(figure([(photo, stretched, mask, label)]))[0]
    left, right, bottom, top = ax.images[0].get_extent()
    assert (bottom - top) / (right - left) == pytest.approx(48 / 80)


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_the_file_is_the_same_every_time_and_no_argument_is_modified(suffix, tmp_path):
    pictures = [picture(0), picture(1, defect=False)]
    arrays = [array for photo, p, mask, _ in pictures for array in (photo, p.map, p.unfiltered_map)]
    before = [array.copy() for array in arrays]
    first, second = (triplets(pictures, tmp_path / f"{name}{suffix}") for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert all(map(np.array_equal, arrays, before))
    if suffix == ".png":
        with Image.open(first) as image:
            assert 600 < image.width < 3000 and 600 < image.height < 3000


def test_what_does_not_fit_is_told(tmp_path):
    photo, prediction, mask, label = picture()
    with pytest.raises(NfadError, match=r"the model's view, \(32, 32\); got \(31, 32\) for view · scratch"):
        figure([(photo, prediction, mask[1:], label)])
    with pytest.raises(NfadError, match="proportions"):
        figure([(photo[:, :40], prediction, mask, label)])
    with pytest.raises(NfadError, match="got 0 and 3"):
        figure([])
    with pytest.raises(NfadError, match=r"written as \.png or \.pdf"):
        triplets([picture()], tmp_path / "figure.gif")


def result(index, anomalous, domain, control, score):
    return ImageResult(Sample(Path(f"{index}.png"), anomalous, domain=domain), score, control, 0.5, 0.5)


results = st.lists(
    st.tuples(
        st.booleans(), st.sampled_from(["same", "dark", "bright"]), *[st.integers(0, 6).map(float)] * 2
    ), min_size=1, max_size=40,
).map(lambda rows: [result(index, *row) for index, row in enumerate(rows)])  # fmt: skip


def rank(image, images, score):
    """Its part in the domain's AUROC."""
    normals = [i for i in images if i.sample.domain == image.sample.domain and not i.sample.anomalous]
    return np.mean([(score(image) > score(i)) + (score(image) == score(i)) / 2 for i in normals]) if normals else 0.5


@given(results, st.integers(1, 3))
def test_the_chosen_are_shifted_and_eligible_and_as_many_as_there_are(images, count):
    chosen = choose(images, count)
    assert len(set(chosen)) == len(chosen) and chosen == choose(list(images), count)
    shifted = {image.sample.domain for image in images} - {"same"} or {"same"}
    found = Counter((images[index].sample.domain, images[index].sample.anomalous) for index in chosen)
    for domain in shifted:
        here = [image for image in images if image.sample.domain == domain]
        seen = [
            i for i in here if i.sample.anomalous
            and rank(i, images, lambda i: i.unfiltered_score) >= 0.5 and rank(i, images, lambda i: i.score) >= 0.5
        ]  # fmt: skip
        normals = [i for i in here if not i.sample.anomalous]
        high = [i for i in normals if i.unfiltered_score >= np.median([n.unfiltered_score for n in normals])]
        assert found[domain, True] == min(count, len(seen))
        assert found[domain, False] == min(count, len(high))
        assert all(images[i] in seen + high for i in chosen if images[i].sample.domain == domain)
    assert {domain for domain, _ in found} <= shifted


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=15))
def test_the_first_normal_is_the_one_in_the_middle(scores):
    images = [result(index, False, "dark", *map(float, pair)) for index, pair in enumerate(scores)]
    [chosen] = choose(images, 1)
    high = [i for i in images if i.unfiltered_score >= np.median([n.unfiltered_score for n in images])]
    falls = np.array([i.unfiltered_score - i.score for i in high])
    own = images[chosen].unfiltered_score - images[chosen].score
    # neither more than half fall less nor more than half fall more: it flatters nobody
    assert (falls < own).sum() <= len(falls) / 2 and (falls > own).sum() <= len(falls) / 2


def test_domains_take_turns_defects_first():
    domains = ("same", "dark", "bright")
    images = [result(i, i % 2 == 0, domains[i % 3], i % 5 + 9 * (i % 2 == 0), i % 7) for i in range(60)]
    kinds = [(images[i].sample.anomalous, images[i].sample.domain) for i in choose(images, 2)]
    turns = ["dark", "bright", "dark", "bright"]  # in the order of the images
    assert kinds == [(True, domain) for domain in turns] + [(False, domain) for domain in turns]
    assert {images[i].sample.domain for i in choose(images, 1, source="dark")} == {"same", "bright"}


def test_from_a_real_evaluation_to_the_figure(tmp_path):
    detector = Detector.fit(parts(8), tiny())
    kept = {}
    found = evaluate(detector, write_samples(tmp_path), on_result=lambda s, p: kept.setdefault(s.path, p))
    pictures = []
    for index in choose(found.images, 1):
        sample = found.images[index].sample
        prediction = kept[sample.path]
        mask = mask_of(sample, prediction.geometry, detector.config.size) if sample.anomalous else None
        pictures.append((np.asarray(Image.open(sample.path)), prediction, mask, f"{sample.domain} · {sample.kind}"))
    assert {label for *_, label in pictures} <= {"dark · square", "dark · good"} and len(pictures) >= 1
    with Image.open(triplets(pictures, tmp_path / "figure.png")) as image:
        assert image.width > 600
