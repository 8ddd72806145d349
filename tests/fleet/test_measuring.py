import dataclasses

import parts
import pytest

from nfad import Config
from nfad.data.catalog import load
from nfad.data.demo import write_demo
from nfad.detector import Detector
from nfad.evaluation.evaluate import evaluate
from nfad.fleet.cluster import Cluster
from nfad.fleet.measuring import judging, measure_cells
from nfad.paper.cells import Cell, run
from nfad.paper.plugins import HostCell, run_hosts
from nfad.paper.verdict import cells_of, run_verdicts
from nfad.system.files import strict_json
from nfad.system.results import ResultCache
from nfad.vision.corruptions import Corruption


@pytest.fixture(scope="module")
def cluster():
    with Cluster(workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = write_demo(tmp_path_factory.mktemp("demo"), train=10, good=3, bad=1)
    [dataset] = load("demo", root, None)
    return dataset


@pytest.mark.parametrize("corruption", [None, Corruption.parse("gaussian_noise:2")])
def test_a_test_set_in_shards_gives_the_numbers_of_a_serial_run_to_the_last_digit(cluster, dataset, corruption):
    detector = Detector.fit([sample.path for sample in dataset.train], parts.tiny(batch=2), device="cpu")
    found = [
        evaluate(detector, dataset.test, corruption=corruption, judge=judge)
        for judge in (None, judging(cluster, device="cpu"))
    ]
    assert len(dataset.test) > 16  # two shards at least
    told = [strict_json([row.as_dict() for row in each.rows]) for each in found]
    assert told[0] == told[1]
    assert found[0].images == found[1].images


def test_cells_over_workers_are_those_of_a_serial_run(cluster, dataset, tmp_path):
    config = parts.tiny(acquisitions=0)
    sets = [dataset, dataclasses.replace(dataset, category="another", test=dataset.test[::-1])]
    cells = [Cell(each, config.changed(seed=seed)) for each in sets for seed in (1, 2)]
    serial, spread = ResultCache(tmp_path / "serial"), ResultCache(tmp_path / "spread")
    heard = []
    measure_cells(cells, spread, cluster, lambda *words: heard.append(words), device="cpu")
    assert heard[-1] == (4, 4)
    assert run(cells, serial, device="cpu") == {cell.key: spread.get(cell.settings) for cell in cells}


def test_hosts_over_workers_are_those_of_a_serial_run(cluster, dataset, tmp_path):
    config = Config.preset("embedded-fast", size=64, pairs=2, batch=4, false_alarm_rate=0.2, acquisitions=0)
    cells = [HostCell(dataset, config, name, (0, 16), steps=2) for name in ("patchcore", "rd4ad")]
    serial, spread = ResultCache(tmp_path / "serial"), ResultCache(tmp_path / "spread")
    spread.put(cells[0].settings, serial_first := run_hosts(cells[:1], serial, device="cpu")[cells[0].key])
    heard = []
    measure_cells(cells[1:], spread, cluster, lambda *words: heard.append(words), device="cpu")
    assert heard == [(1, 1)] and serial_first
    measure_cells(cells, spread, cluster, lambda *words: heard.append(words), device="cpu")
    assert len(heard) == 1  # nothing was left to do
    assert strict_json(run_hosts(cells, serial, device="cpu")) == strict_json(
        {cell.key: spread.get(cell.settings) for cell in cells}
    )


def test_verdicts_over_workers_are_those_of_a_serial_run(cluster, dataset, tmp_path):
    config = parts.tiny(acquisitions=2)
    sets = [dataset, dataclasses.replace(dataset, category="another")]
    cells = cells_of(sets, config, ("unfiltered", "filter alone", "nfad"), (1,), normals=8, photos=1)
    serial, spread = ResultCache(tmp_path / "serial"), ResultCache(tmp_path / "spread")
    heard = []
    measure_cells(cells, spread, cluster, lambda *words: heard.append(words), device="cpu")
    assert heard[-1] == (4, 4)  # both arms of one fit are one cell
    assert strict_json(run_verdicts(cells, serial, device="cpu")) == strict_json(
        [spread.get(cell.settings) for cell in cells]
    )
