import csv
import json
import shutil

import pytest
from parts import part, tiny
from PIL import Image

from nfad import NfadError
from nfad.data.catalog import load
from nfad.deploy.folder import write_metadata
from nfad.deploy.parity import LIMITS
from nfad.evaluation.session import evaluate_dataset
from nfad.records import Dataset, Sample
from nfad.report.results import write_results


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("parts")
    for kind, start, count in (("train/good", 0, 16), ("test/good", 100, 5), ("test/<square>", 200, 5)):
        (root / kind).mkdir(parents=True)
        for index in range(count):
            Image.fromarray(part(start + index, 80, "square" in kind)).save(root / kind / f"{index}.png")
    [dataset] = load("folder", root)
    return dataset


@pytest.fixture(scope="module")
def findings(dataset):
    return evaluate_dataset(dataset, tiny(false_alarm_rate=0.2), ["contrast:2"])


def test_a_set_is_judged_as_it_is_and_under_each_corruption(findings):
    assert [str(finding.corruption or "") for finding in findings] == ["", "contrast:2"]
    assert findings[0].detector is findings[1].detector
    plain, changed = ([image.score for image in finding.evaluation.images] for finding in findings)
    assert plain != changed
    told = json.loads(json.dumps(findings[1].as_dict()))
    assert told["corruption"] == "contrast:2" and len(told["rows"]) == 1


def test_results_scores_and_reports_are_written(findings, tmp_path):
    written = write_results(findings, tmp_path / "out")
    assert [path.name for path in written][:2] == ["results.csv", "scores.csv"]
    assert len([path for path in written if path.suffix == ".html"]) == 2
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["corruption"], row["arm"]) for row in rows] == [
        ("", "unfiltered"), ("", "filtered"), ("contrast:2", "unfiltered"), ("contrast:2", "filtered"),
    ]  # fmt: skip
    assert float(rows[1]["i_auroc"]) == pytest.approx(findings[0].evaluation.rows[0].arms["filtered"].i_auroc, rel=1e-5)
    for row in rows:  # both errors, each with its interval
        for rate in ("false_alarms", "detections"):
            assert float(row[f"{rate}_low"]) <= float(row[rate]) <= float(row[f"{rate}_high"])
        error = (float(row["false_alarms"]) + 1 - float(row["detections"])) / 2
        assert float(row["verdict_error"]) == pytest.approx(error)  # all were judged
        assert row["good_not_judged"] == row["bad_not_judged"] == "0"
    with (tmp_path / "out" / "scores.csv").open() as file:
        images = list(csv.DictReader(file))
    flagged = [image["verdict"] == "anomalous" for image in images if image["anomalous"] == "0"]
    assert sum(flagged) == sum(round(5 * float(row["false_alarms"])) for row in rows if row["arm"] == "filtered")
    assert len(images) == 20 and sum(int(image["anomalous"]) for image in images) == 10
    page = written[-1].read_text()
    assert "contrast:2" in page and "<square>" not in page and "&lt;square&gt;" in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page


def test_an_exported_model_is_evaluated_like_its_file(dataset, shipped, tmp_path):
    by_file, by_folder = (
        evaluate_dataset(dataset, tiny(), ["contrast:2"], model=model, rate=0.4)
        for model in (shipped.model, shipped.folder)
    )
    for wanted, found in zip(by_file, by_folder, strict=True):
        assert found.as_dict()["config"] == wanted.as_dict()["config"]
        assert found.detector.threshold == wanted.detector.threshold
        for ours, theirs in zip(found.evaluation.images, wanted.evaluation.images, strict=True):
            assert ours.score == pytest.approx(theirs.score, rel=LIMITS["fp32"].score, abs=LIMITS["fp32"].score)
    pages = [path.read_text() for path in write_results(by_folder, tmp_path) if path.suffix == ".html"]
    assert len(pages) == 2 and all("fp32, onnx, from part.nfad" in page for page in pages)


def test_a_graph_for_one_size_of_photo_is_refused_before_any_image_is_read(shipped, tmp_path):
    folder = shutil.copytree(shipped.folder, tmp_path / "framed")
    facts = json.loads((folder / "model.json").read_text())
    facts["input"]["frame"] = [80, 80]
    write_metadata(folder, facts)  # sealed anew
    absent = Dataset("folder", "", (), (Sample(tmp_path / "absent.png", False),))
    with pytest.raises(NfadError, match="takes frames of 80×80 pixels"):
        evaluate_dataset(absent, tiny(), ["contrast:2"], model=folder)
    with pytest.raises(NfadError, match=r"absent\.png does not exist"):
        evaluate_dataset(absent, tiny(), model=folder)
