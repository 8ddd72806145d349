import dataclasses
import json

import pytest
from parts import tiny

from nfad import Detector, NfadError
from nfad.paper.cells import Cell, measure, run
from nfad.system.results import ResultCache


@pytest.fixture(scope="module")
def detector(dataset):
    return Detector.fit([sample.path for sample in dataset.train], tiny())


def test_a_cell_is_its_images_settings_and_measurement(dataset, tmp_path):
    cell = Cell(dataset, tiny())
    assert cell.key == Cell(dataset, tiny()).key
    fewer = dataclasses.replace(dataset, test=dataset.test[1:])
    others = [
        Cell(dataset, tiny(seed=1)), Cell(dataset, tiny(false_alarm_rate=0.2)), Cell(dataset, tiny(batch=7)),
        Cell(dataset, tiny(), "mechanism"), Cell(dataset, tiny(), "metrics", "contrast:1"),
        Cell(fewer, tiny()), Cell(dataclasses.replace(dataset, category="other"), tiny()),
    ]  # fmt: skip
    assert len({cell.key, *(other.key for other in others)}) == 8


def test_what_is_measured_is_kept_and_not_measured_again(dataset, tmp_path, monkeypatch):
    store, cells = ResultCache(tmp_path), [Cell(dataset, tiny()), Cell(dataset, tiny(), "mechanism")]
    fits = []
    fit = Detector.fit.__func__
    monkeypatch.setattr(Detector, "fit", classmethod(lambda cls, *a, **k: fits.append(1) or fit(cls, *a, **k)))
    seen = []
    first = run(cells, store, on_cell=lambda done, total: seen.append((done, total)))
    assert len(fits) == 1, "cells of one fit share it"
    assert seen == [(0, 2), (1, 2), (2, 2)]
    again = run(cells, store)
    assert len(fits) == 1 and json.dumps(again) == json.dumps(first)


def test_an_interrupted_run_goes_on_where_it_stopped(dataset, tmp_path):
    store, cells = ResultCache(tmp_path), [Cell(dataset, tiny()), Cell(dataset, tiny(), corruption="contrast:5")]

    def stop(done, total):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(cells, store, on_cell=stop)
    assert store.get(cells[0].settings) is not None and store.get(cells[1].settings) is None
    assert set(run(cells, store)) == {cell.key for cell in cells}


def test_a_torn_cell_is_named(dataset, tmp_path):
    store, cell = ResultCache(tmp_path), Cell(dataset, tiny())
    (tmp_path / f"{cell.key}.json").write_text('{"settings":')
    with pytest.raises(NfadError, match="delete it and run again"):
        store.get(cell.settings)


@pytest.mark.parametrize("kind", ["entanglement", "mechanism"])
def test_analyses_are_of_every_domain_and_ready_for_json(detector, dataset, kind):
    result = measure(detector, Cell(dataset, tiny(), kind))
    assert [row["domain"] for row in result["rows"]] == ["same", "illumination", "all"]
    json.dumps(result, allow_nan=False)


def test_metrics_carry_their_resamples(detector, dataset):
    result = measure(detector, Cell(dataset, tiny()))
    assert set(result["resamples"]) == {"same", "illumination", "all"}
    drawn = result["resamples"]["same"]["filtered"]
    assert len(drawn["i_auroc"]) == 1000 and len(drawn["aupro"]) == 200
    json.dumps(result, allow_nan=False)
