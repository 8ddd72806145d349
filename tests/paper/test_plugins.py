import dataclasses

import pytest
import torch

from nfad import Config, NfadError
from nfad.evaluation.metrics import image_metrics
from nfad.fitting.calibration import split
from nfad.hosts import score_images
from nfad.paper import plugins
from nfad.paper.plan import plan
from nfad.paper.plugins import HostCell, columns, measure_host, worn
from nfad.paper.running import jobs, run_table
from nfad.paper.table import Options
from nfad.paper.tables import TABLES
from nfad.system.results import ResultCache
from nfad.vision.images import load_part, to_view

CONFIG = Config.preset("embedded-fast", size=64, pairs=2, batch=4, false_alarm_rate=0.2)
OPTIONS = Options(ranks=(16, 64), hosts=("patchcore",))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return ResultCache(tmp_path_factory.mktemp("cells"))


@pytest.fixture(scope="module")
def entries(dataset, store):
    return run_table(TABLES["plugins"], [dataset], CONFIG, OPTIONS, store)


def test_every_rank_stands_beside_the_bare_host_and_the_paper(entries):
    assert list(dict.fromkeys(entry.row for entry in entries)) == [f"PatchCore/d={d}" for d in (0, 16, 64)]
    [bare] = [entry for entry in entries if entry.row == "PatchCore/d=0" and entry.column == "i_auroc"]
    assert bare.paper == 68.52 and not bare.strong


def test_an_arm_is_the_host_itself_and_the_host_under_its_filter(dataset, store, entries):
    [cell] = [job.cell for job in jobs(TABLES["plugins"], [dataset], CONFIG, OPTIONS)]
    result = store.get(cell.settings)
    views = torch.stack([to_view(load_part(sample.path), 64, None)[0] for sample in dataset.test])
    normals = torch.stack([to_view(load_part(sample.path), 64, None)[0] for sample in dataset.train])
    normals = normals[split(len(normals), CONFIG)[1]]
    host = plugins.fit_host("patchcore", normals, CONFIG)
    for d in (0, 64):
        arm = worn(host, d, normals, CONFIG)
        for row in result["rows"]:
            here = [row["domain"] in (sample.domain, "all") for sample in dataset.test]
            labels = torch.tensor([sample.anomalous for sample in dataset.test])[here].numpy()
            found = image_metrics(score_images(arm, views[here]).image.numpy(), labels)
            assert row["arms"][f"d={d}"]["i_auroc"] == pytest.approx(found.auroc)
    assert result["columns"] == {"d=16": [1, 4], "d=64": [5, 14]}


def test_a_small_network_gives_up_the_papers_share():
    assert columns(16, [512, 1024]) == 16
    assert columns(64, [40, 112]) == 64 / 512


def test_what_is_on_disk_is_not_fitted_again(dataset, store, entries, monkeypatch):
    monkeypatch.setattr(plugins, "measure_host", None)
    assert run_table(TABLES["plugins"], [dataset], CONFIG, OPTIONS, store) == entries
    cells = [job.cell for job in jobs(TABLES["plugins"], [dataset], CONFIG, OPTIONS)]
    assert plan(cells, store).finished == 1
    other = dataclasses.replace(OPTIONS, ranks=(8,))
    planned = plan([job.cell for job in jobs(TABLES["plugins"], [dataset], CONFIG, other)], store)
    assert planned.finished == 0 and planned.teacher_passes > 2 * len(dataset.test)


def test_an_unknown_host_is_told_before_the_first_fit(dataset):
    with pytest.raises(NfadError, match=r"no host 'svm'; the hosts are rd4ad"):
        jobs(TABLES["plugins"], [dataset], CONFIG, dataclasses.replace(OPTIONS, hosts=("patchcore", "svm")))


@pytest.mark.slow
@pytest.mark.parametrize("name", plugins.HOSTS)
def test_every_host_takes_the_embedded_network(dataset, name):
    result = measure_host(HostCell(dataset, CONFIG, name, (0, 16), steps=2))
    assert set(result["rows"][0]["arms"]) == {"d=0", "d=16"}
