import csv
import dataclasses
import shutil

import pytest
from parts import tiny

from nfad import Config, NfadError
from nfad.data.catalog import load, recognise
from nfad.data.demo import DEFECTS, write_demo
from nfad.paper.cells import Cell
from nfad.paper.layout import FIELDS, as_csv, as_markdown
from nfad.paper.plan import announced, plan
from nfad.paper.published import lookup
from nfad.paper.running import jobs, run_table, table_named, write_table
from nfad.paper.table import Options
from nfad.paper.tables import TABLES, methods
from nfad.reference import training
from nfad.reference.student import Student
from nfad.system.results import ResultCache

OPTIONS = Options(teachers=("vit_tiny_patch16_224",), severities=(1,), seeds=(1, 2), ranks=(2, 4))
ROWS = {
    "aebad": {"same/Control", "same/NFAD", "illumination/NFAD", "mean/NFAD", "pooled/NFAD"},
    "standard": {"blob/Control", "blob/NFAD", "mean/NFAD"},
    "detection-ablation": {"Control", "Projection", "Projection+MIR"},
    "localization-ablation": {"Control", "Projection", "Projection+Vg", "Projection+Vg+MIR"},
    "visa-c": {"clean/Ours", "contrast/s=1/Control", "gaussian_noise/s=1/Ours"},
    "foundations": {"vit_tiny_patch16_224/Control", "vit_tiny_patch16_224/Delta"},
    "seeds": {"seed=1", "seed=2", "mean", "std"},
    "basis": {"scatter", "generalized", "ratio", "mir"},
    "incidence": {"rotation-invariant", "magnitude", "NFAD"},
    "rank": {"Control", "d=2", "d=4"},
    "entanglement": {"nearest/dim=32", "nearest/dim=64/same", "linear/dim=32"},
    "mechanism": {"same", "illumination", "pooled"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return ResultCache(tmp_path_factory.mktemp("cells"))


def test_every_table_is_tried():
    assert set(ROWS) | {"plugins"} == set(TABLES)  # plugins: test_plugins.py


@pytest.mark.parametrize("name", ROWS)
def test_every_table_runs_on_any_data_with_any_teacher(name, dataset, store):
    entries = run_table(TABLES[name], [dataset], tiny(order="fit-then-filter"), OPTIONS, store)
    assert {entry.row for entry in entries} >= ROWS[name]
    assert {entry.sheet for entry in entries} == {"demo blob · fit-then-filter"}
    assert all(entry.low <= entry.value <= entry.high for entry in entries if entry.low == entry.low)
    by_row = {row: {e.column: e.value for e in entries if e.row == row} for row in {entry.row for entry in entries}}
    for columns in by_row.values():  # never one error without the other
        errors = {"false_alarms", "detections", "verdict_error"} & set(columns)
        assert len(errors) in (0, 3)
        if errors:
            wanted = (columns["false_alarms"] + 100 - columns["detections"]) / 2
            assert columns["verdict_error"] == pytest.approx(wanted)


def test_closed_form_references_are_measured_in_both_orders(dataset, store):
    found = jobs(TABLES["basis"], [dataset], tiny(), OPTIONS)
    assert {job.method for job in found} == {"filter-then-fit", "fit-then-filter"} and len(found) == 8
    papers = methods(tiny())["fit-then-filter"]
    assert papers.interventions == "paper" and papers.rank == {"photometric": 16, "background": 16}
    assert list(methods(tiny(reference="student", order="fit-then-filter"))) == ["fit-then-filter"]


@pytest.mark.parametrize("name", TABLES)
def test_no_table_knows_acquisitions_and_its_cells_are_found_by_what_was_fitted(name, dataset):
    """Whatever a config says of them: the paper's tables are of the paper's method."""
    cells = [
        [job.cell for job in jobs(TABLES[name], [dataset], config, OPTIONS)]
        for config in (tiny(acquisitions=14), tiny(acquisitions=300), tiny(acquisitions=0))
    ]
    assert all(cell.config.acquisitions == 0 and cell.config.holdout == 0.3 for cell in cells[0])
    assert all(cell.settings["config"]["acquisitions"] == 0 for cell in cells[0])
    assert [cell.key for cell in cells[0]] == [cell.key for cell in cells[1]] == [cell.key for cell in cells[2]]


def test_the_papers_values_stand_beside_ours(dataset, store):
    entries = run_table(TABLES["aebad"], [dataset], tiny(order="fit-then-filter"), OPTIONS, store)
    [same] = [entry for entry in entries if (entry.row, entry.column) == ("same/NFAD", "aupro")]
    assert same.paper == lookup("aebad-domains", "aebad-s", "same", "aupro") == 90.2


def test_a_table_of_domains_refuses_a_set_without(dataset, store):
    one = dataclasses.replace(dataset, test=tuple(s for s in dataset.test if s.domain == "same"))
    with pytest.raises(NfadError, match="compares acquisition domains.*only same"):
        jobs(TABLES["aebad"], [one], tiny(), OPTIONS)


def test_what_cannot_be_is_told_before_the_first_fit(dataset, tmp_path):
    wrong = dataclasses.replace(OPTIONS, severities=(9,), ranks=(2, 500))
    with pytest.raises(NfadError, match="severity"):
        jobs(TABLES["visa-c"], [dataset], tiny(), wrong)
    ranks = dataclasses.replace(OPTIONS, ranks=(2, 500))
    with pytest.raises(NfadError, match="must lie in 0..192.*--ranks"):
        run_table(TABLES["rank"], [dataset], tiny(order="fit-then-filter"), ranks, ResultCache(tmp_path))
    assert not list(tmp_path.iterdir())


def test_foundations_have_the_settings_of_their_kind():
    both = Options(teachers=("embedded-cnn", "dinov3"))
    for preset in ("embedded", "embedded-fast"):
        cnn, vit = (variant.changes for variant in TABLES["foundations"].variants(Config.preset(preset), both))
        assert Config.preset(preset, **cnn).blocks == (2, 3) and Config.preset(preset, **vit).prior_blocks == (9, 11)


def test_an_unknown_table_is_answered_with_those_there_are():
    with pytest.raises(NfadError, match="there is no table 'tabel'.*aebad, standard"):
        table_named("tabel")


def test_csv_and_markdown_tell_the_same(dataset, store, tmp_path):
    table = TABLES["rank"]
    entries = run_table(table, [dataset], tiny(order="fit-then-filter"), OPTIONS, store)
    written = write_table(table, entries, ["a note"], tmp_path, "rank-demo")
    with (tmp_path / "rank-demo.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == FIELDS and len(rows) == len(entries)
    assert [float(row["value"]) for row in rows] == pytest.approx([entry.value for entry in entries], rel=1e-4)
    text = written[1].read_text()
    assert "- a note" in text and "Supplement D.4" in text
    for entry in entries:
        assert f"{entry.value:.1f}" in text
    # A difference inside its interval is never bold.
    calm = [dataclasses.replace(entry, strong=False) for entry in entries]
    assert "**" not in as_markdown(calm) and as_csv(calm) != as_csv(
        [dataclasses.replace(entry, strong=True) for entry in entries]
    )


def test_a_dry_run_counts_what_a_run_would_do(dataset, tmp_path):
    store, config = ResultCache(tmp_path), tiny(order="fit-then-filter")
    wanted = [job.cell for job in jobs(TABLES["visa-c"], [dataset], config, OPTIONS)]
    before = plan(wanted, store)
    assert (before.cells, before.finished) == (5, 0)
    assert (before.training_images, before.test_images) == (12, 12)
    moved = before.teacher_passes - 12 - 5 * 12
    assert moved > 0 and moved % 2 == 0, "each intervention on two images"
    assert before.hours > 0 and before.student_passes == 0
    # 12 views of 64² in 16 bits; tokens of two blocks on a 4² grid in 16 bits, and a prior
    assert before.disk == 12 * (2 * 3 * 64**2 + 2 * 16 * 2 * 192 + 4 * 16)
    assert before.operations > 0 and before.card_hours == pytest.approx(before.operations / 20e12 / 3600)
    run_table(TABLES["visa-c"], [dataset], config, OPTIONS, store)
    after = plan(wanted, store)
    assert (after.finished, after.teacher_passes, after.hours) == (5, 0, 0)


def test_a_dry_run_of_the_papers_settings_names_its_weights(dataset, tmp_path):
    small = {"student": "untrained-test_vit", "epochs": 3, "size": 64, "resize": 72}
    config = tiny(reference="student", order="fit-then-filter", **small)
    found = plan([job.cell for job in jobs(TABLES["standard"], [dataset], config, OPTIONS)], ResultCache(tmp_path))
    assert found.student_passes == 3 * 12 * 3 + 12
    assert "untrained" in found.told() and "On this machine about" in found.told()
    assert "GB of views and tokens" in found.told() and "reckoned, not measured" in found.told()
    parameters = sum(each.numel() for each in Student.build(config, (768, 768), initial=False).parameters())
    assert found.memory > 16 * parameters


def test_the_papers_settings_run_on_aebads_layout(tmp_path):
    """Rendered blades in the folders of AeBAD-S, a student trained for an epoch: what a card would run, but small."""
    write_demo(tmp_path / "demo", train=12, good=2, bad=1)
    shutil.move(tmp_path / "demo" / "train" / "good" / "same", tmp_path / "demo" / "train" / "good" / "background")
    (tmp_path / "demo" / "demo.json").unlink()
    shutil.move(tmp_path / "demo", tmp_path / "AeBAD_S")
    [blade] = load(recognise(tmp_path), tmp_path)
    assert blade.name == "aebad-s" and len(blade.train) == 12 and len(blade.test) == 4 * (2 + len(DEFECTS))
    small = {"teacher": "vit_tiny_patch16_224", "weights": "untrained", "student": "untrained-test_vit", "epochs": 1}
    config = Config.preset("paper", **small, size=64, resize=64, basis_size=64, holdout=0.3, pairs=2)
    entries = run_table(TABLES["aebad"], [blade], config, OPTIONS, ResultCache(tmp_path / "cells"))
    rows = {entry.row for entry in entries}
    assert {f"{domain}/NFAD" for domain in ("same", "background", "illumination", "view", "mean", "pooled")} <= rows
    assert next(e for e in entries if e.row == "view/NFAD" and e.column == "i_auroc").paper is not None


def test_a_student_is_trained_once_for_all_tables(dataset, tmp_path, monkeypatch):
    small = {"student": "untrained-test_vit", "epochs": 1, "size": 64, "resize": 72}
    config, store = tiny(reference="student", order="fit-then-filter", **small), ResultCache(tmp_path)
    trained = []
    real = training._train_epoch
    monkeypatch.setattr(training, "_train_epoch", lambda *given: trained.append(1) or real(*given))
    for table in ("detection-ablation", "basis"):  # several bases on the same student
        run_table(TABLES[table], [dataset], config, OPTIONS, store)
    assert len(trained) == 1
    run_table(TABLES["detection-ablation"], [dataset], config.changed(epochs=2), OPTIONS, store)
    assert len(trained) == 3


def test_a_set_that_is_not_at_hand_is_planned_by_its_published_counts(tmp_path):
    sets = announced("visa")
    assert len({Cell(each, tiny()).key for each in sets}) == 12, "equal counts are not equal images"
    assert len(announced("visa", ["candle"])) == 1
    with pytest.raises(NfadError, match="no category 'nope'"):
        announced("visa", ["nope"])
    assert len(sets) == 12 and sum(len(each.train) for each in sets) == 8659
    [whole] = announced("real-iad")
    assert (len(whole.train), len(whole.test)) == (36465, 114585)
    cells = [job.cell for job in jobs(TABLES["aebad"], announced("aebad-s"), tiny(), OPTIONS)]
    found = plan(cells, ResultCache(tmp_path))
    assert (found.training_images, found.test_images) == (521, 1639)
    with pytest.raises(NfadError, match="give its folder"):
        announced("folder")
