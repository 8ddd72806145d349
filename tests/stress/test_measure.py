import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from parts import part, parts, tiny
from PIL import Image

from nfad import Config, Detector, NfadError
from nfad.deploy.parity import LIMITS, TIE
from nfad.model import load_model
from nfad.stress.axes import AXES, both, photographed
from nfad.stress.findings import judge
from nfad.stress.measure import VISIBLE, at_strength, damage, image_scores, measure, read_parts
from nfad.system.results import ResultCache
from nfad.vision.images import load_part, pixels_of, to_view
from nfad.vision.render import render


def test_strength_0_is_exactly_what_predict_says(detector, chosen):
    step = at_strength(detector, chosen, None, 0)
    judged = detector.predict(list(chosen.paths))
    assert step.normal["filtered"] == tuple(prediction.score for prediction in judged)
    assert step.normal["unfiltered"] == tuple(prediction.unfiltered_score for prediction in judged)
    assert step.damaged["filtered"] != step.normal["filtered"]


def test_a_strength_is_what_predict_says_of_the_changed_views(detector, chosen):
    axis = AXES["noise"]
    step = at_strength(detector, chosen, axis, 10)
    judged = [detector.predict_views(chosen.under(axis, 10, index)[None])[0] for index in range(len(chosen.paths))]
    assert step.normal["filtered"] == pytest.approx([prediction.score for prediction in judged], rel=1e-4)


def test_defects_lie_on_the_part_can_be_seen_and_depend_on_seed_and_place_alone():
    view = to_view(part(5), 64, None)[0]
    on_part = torch.zeros(64, 64, dtype=torch.bool)
    on_part[16:48, 16:48] = True
    for index in range(12):
        changed = damage(view, on_part, 3, index)
        difference = (changed - view).abs().mean(dim=0)
        touched = difference > 0
        assert 0 < touched.sum() < 64 * 64 / 5
        assert on_part[touched].float().mean() > 0.85 and difference[touched].mean() > VISIBLE
        assert torch.equal(changed, damage(view, on_part, 3, index))
        assert not torch.equal(changed, damage(view, on_part, 4, index))


def test_a_seeded_choice_in_the_folders_order_passes_over_what_cannot_be_read(detector, normals, tmp_path):
    shutil.copytree(normals, tmp_path / "normals")
    (tmp_path / "normals" / "03.png").write_bytes(b"no image")
    paths, skipped = sorted((tmp_path / "normals").iterdir()), []
    read = read_parts(detector, paths, 13, skip=lambda path, reason: skipped.append(path.name))
    assert skipped == ["03.png"] and len(read.paths) == 13 and list(read.paths) == sorted(read.paths)
    chosen = [read_parts(detector, paths[4:], 4, seed).paths for seed in (0, 0, 1, 2)]
    assert chosen[0] == chosen[1] and len(set(chosen)) > 1 and len(chosen[0]) == 4
    with pytest.raises(NfadError, match="03.png"):
        read_parts(detector, [paths[3]], 4)
    with pytest.raises(NfadError, match="none of the normals can be read"):
        read_parts(detector, [paths[3]], 4, skip=lambda *_: None)


def test_finished_strengths_are_found_again_for_the_same_model_images_and_seed_only(
    detector, chosen, few_axes, tmp_path
):
    detector, cache = replace(detector, sha256="model"), ResultCache(tmp_path / "kept")
    first = measure(detector, chosen, few_axes, cache)
    files = sorted(cache.folder.iterdir())
    assert len(files) == len(first) == 1 + sum(len(axis.strengths) for axis in few_axes.values())
    for path in files:  # marked, so that what is read back is told from what is measured again
        text = json.loads(path.read_text())
        text["result"]["normal"]["filtered"][0] = 123.0
        path.write_text(json.dumps(text))
    again = measure(detector, chosen, few_axes, cache)
    assert all(step.normal["filtered"][0] == 123.0 for step in again.values())
    files[0].unlink()
    repaired = measure(detector, chosen, few_axes, cache)
    assert sum(step.normal["filtered"][0] == 123.0 for step in repaired.values()) == len(files) - 1
    other = measure(replace(detector, sha256="another"), chosen, {"noise": few_axes["noise"]}, cache)
    assert all(step.normal["filtered"][0] != 123.0 for step in other.values())
    fewer = read_parts(detector, chosen.paths, len(chosen.paths) - 1)
    assert all(step.normal["filtered"][0] != 123.0 for step in measure(detector, fewer, few_axes, cache).values())
    for content in ("{", "[]", "{}"):
        files[1].write_text(content)
        with pytest.raises(NfadError, match="is not a finished result; delete it"):
            measure(detector, chosen, few_axes, cache)


def test_progress_counts_every_view_that_is_still_to_be_judged(detector, chosen, few_axes, tmp_path):
    seen = []

    def progress(stage, done, total):
        seen.append((done, total))

    detector, cache = replace(detector, sha256="model"), ResultCache(tmp_path)
    steps = measure(detector, chosen, few_axes, cache, progress)
    views = 2 * len(chosen.paths)
    assert seen[-1] == (len(steps) * views,) * 2 and [done for done, _ in seen] == sorted({done for done, _ in seen})
    next(tmp_path.iterdir()).unlink()
    measure(detector, chosen, few_axes, cache, progress)
    assert seen[-1] == (views, views)


def test_an_interrupted_run_goes_on_where_it_stopped(detector, chosen, few_axes, tmp_path):
    detector, cache = replace(detector, sha256="model"), ResultCache(tmp_path)
    whole = measure(detector, chosen, few_axes)

    def interrupt(stage, done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(detector, chosen, few_axes, cache, interrupt)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert 0 < len(files) < len(whole)
    assert repr(measure(detector, chosen, few_axes, cache)) == repr(whole)  # NaN is not even equal to itself
    assert files.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}.items()


def test_what_was_made_up_is_not_counted_and_all_else_is(detector, chosen):
    def arms(axis, strength):
        views = torch.stack([chosen.under(AXES[axis], strength, index) for index in range(len(chosen.paths))])
        judged = detector.predict_tensor(views)
        return image_scores(detector, views, AXES[axis], strength), judged

    counted, judged = arms("gamma", 1)
    assert torch.equal(counted["filtered"], judged.score)
    assert torch.equal(counted["unfiltered"], judged.unfiltered_score)
    lower = []
    for axis in (axis for axis in AXES.values() if axis.moves):
        for strength in (axis.strengths[0], axis.strengths[-1]):
            counted, judged = arms(axis.name, strength)
            known = photographed(axis, strength, 64)
            for arm, name in (("filtered", "detection"), ("unfiltered", "control")):
                highest = judged.maps[name][:, known].topk(int(detector.config.top_fraction * 64 * 64), dim=1).values
                assert torch.allclose(counted[arm], highest.mean(dim=1))
            lower += (counted["filtered"] < judged.score).tolist()
    assert any(lower)  # or nothing of the kind was ever among the highest


def test_a_model_that_tells_the_part_has_its_defects_there(normals):
    detector = Detector.fit(parts(12), tiny(foreground=True))
    read = read_parts(detector, sorted(normals.iterdir()), 6)
    assert 0 < read.part.float().mean() < 1
    bare = read_parts(detector, sorted(normals.iterdir()), 6, separate=False)
    assert bare.part.all()


def test_a_filter_for_light_holds_further_than_its_control_on_rendered_parts(tmp_path):
    """Real weights: the promise itself, small."""
    images = [render(seed)[0] for seed in range(20)]
    for seed in range(6):
        Image.fromarray(render(1000 + seed)[0]).save(tmp_path / f"{seed}.png")
    config = Config.preset("embedded-fast", size=128, pairs=2, false_alarm_rate=0.15)
    detector = Detector.fit(images, config)
    read = read_parts(detector, sorted(tmp_path.iterdir()), 6)
    axes = {"exposure": replace(AXES["exposure"], strengths=both(0.5, 1, 2))}
    filtered, control = detector.held_out.at(0.15)
    found = judge(
        measure(detector, read, axes), axes, [path.name for path in read.paths],
        {"unfiltered": control, "filtered": filtered}, 0.15,
    )  # fmt: skip
    reach = {arm: [side.holds for side in found.both(axes["exposure"], arm)] for arm in ("unfiltered", "filtered")}
    assert reach["filtered"][0] <= reach["unfiltered"][0] and reach["filtered"][1] >= reach["unfiltered"][1]
    assert np.ptp(reach["filtered"]) > np.ptp(reach["unfiltered"]) + 0.5
    assert found.normal.found["filtered"].value > 0.5  # it holds, and not because it is blind


@pytest.mark.parametrize(
    ("name", "strength"), [("", 0), ("exposure", -1), ("noise", 10), ("shift-x", 8), ("rotation", 3)]
)
def test_fitted_and_exported_give_the_same_scores_and_verdicts(shipped, normals, name, strength):
    """The same views in 8 bits differ by the graph's arithmetic alone; not rounded, mostly by a tenth of a spread."""
    detector, exported, axis = shipped.detector, load_model(shipped.folder), AXES.get(name)
    read = read_parts(exported, sorted(normals.iterdir()), 6)
    seen = torch.stack([read.under(axis, strength, index) if axis else read.views[index] for index in range(6)])
    eight = torch.stack([torch.from_numpy(pixels_of(view)).permute(2, 0, 1) / 255 for view in seen])
    assert not torch.equal(eight, seen)
    found = at_strength(exported, read, axis, strength).normal
    wanted = image_scores(detector, eight, axis, strength)
    unrounded = at_strength(detector, read, axis, strength).normal
    filtered, control = detector.held_out.at(0.3)
    for arm, threshold in (("filtered", filtered), ("unfiltered", control)):
        scores, by_torch, plain = np.array(found[arm]), wanted[arm].numpy(), np.array(unrounded[arm])
        judged = ~np.isnan(by_torch)
        assert (np.isnan(scores) != judged).all()
        scores, by_torch, plain = scores[judged], by_torch[judged], plain[judged]
        assert (abs(scores - by_torch) <= LIMITS["fp32"].score * np.maximum(1, abs(by_torch))).all()
        clear = abs(by_torch - threshold) > TIE * np.maximum(1, abs(by_torch))
        assert clear.any() and ((scores > threshold) == (by_torch > threshold))[clear].all()
        # Not of every image: rounding may turn a token of the part into background, which is all or nothing.
        assert np.nanmedian(abs(scores - plain) / np.maximum(1, abs(plain))) < 0.1


def test_an_export_cannot_be_asked_for_the_part(shipped, normals):
    paths = sorted(normals.iterdir())
    assert read_parts(load_model(shipped.folder), paths, 6).part.all()
    assert not read_parts(shipped.detector, paths, 6).part.all()


def test_pixels_are_those_of_the_models_view(detector, chosen):
    assert torch.equal(chosen.views[0], to_view(load_part(chosen.paths[0]), 64, None)[0])


def test_results_of_a_model_without_a_file_cannot_be_told_apart(detector, chosen, few_axes, tmp_path):
    with pytest.raises(NfadError, match="save it and load it again"):
        measure(detector, chosen, few_axes, ResultCache(tmp_path))
