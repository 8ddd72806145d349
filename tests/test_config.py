import json

import pytest

from nfad import Config, NfadError
from nfad.presets import PRESETS


def test_the_paper_preset_is_the_papers():
    paper = Config.preset("paper")
    assert (paper.teacher, paper.student) == ("dinov3", "vit_base_patch16_224.mae")
    assert (paper.blocks, paper.prior_blocks) == ((2, 4, 6, 8), (9, 11))
    assert (paper.size, paper.resize, paper.basis_size) == (224, 256, 224)
    assert (paper.reference, paper.order, paper.interventions) == ("student", "fit-then-filter", "paper")
    assert paper.rank == {"photometric": 16, "background": 16} and list(paper.rank) == ["photometric", "background"]
    assert (paper.displacements, paper.local_share, paper.gate) == (4000, 0.25, "participation")
    assert (paper.epochs, paper.batch, paper.learning_rate, paper.mask, paper.seed) == (200, 16, 1e-3, 0.4, 54)
    assert (paper.sigma, paper.top_fraction) == (4.0, 0.01)
    assert paper.localization == "global" and paper.incidence == "columns"
    assert not paper.common_mode and not paper.foreground


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name):
    config = Config.preset(name)
    assert Config.from_dict(json.loads(json.dumps(config.as_dict()))) == config


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"size": 100}, "multiple of 16"),
        ({"size": 256.5}, "whole number"),
        ({"resize": 128}, "at least size"),
        ({"variance": 1.5}, "between 0 and 1"),
        ({"variance": float("nan")}, "must be a number"),
        ({"reference": "student", "order": "filter-then-fit"}, "fit-then-filter"),
        ({"gate": "magnitude"}, "no effect with localization='detection'"),
        ({"local_share": 0.1}, "no effect with localization='detection'"),
        ({"localization": "global", "gate": "wide"}, "gate must be one of"),
        ({"reference": "oracle"}, "one of student, nearest, linear"),
        ({"rank": {"photometric": -1}}, "a number for each family"),
        ({"common_mode": 1}, "true or false"),
        ({"teacher": None}, "must be a word"),
        ({"batch": 0}, "at least 1"),
        ({"seed": -1}, "seed must lie between 0 and 4294967295; got -1"),
        ({"seed": 10**20}, "seed must lie between 0 and"),
        ({"nudges": -1}, "number of copies"),
        ({"acquisitions": -1}, "acquisitions must be 0 or a number of views; got -1"),
        ({"evidence": "raw"}, "evidence must be one of auto, filtered, placed, regional"),
        ({"holdout": 0.3}, "no effect on a cross-fitted reference.* set acquisitions=0"),
        ({"acquisitions": 0, "holdout": 1.0}, "holdout must lie between 0 and 1"),
        ({"acquisitions": 0, "evidence": "placed"}, "evidence='placed' needs acquisitions"),
        ({"localization": "global", "evidence": "placed"}, "localization='detection'"),
        ({"reference": "student", "evidence": "placed"}, "a reference other than the student"),
        ({"nudges": 1, "reference": "student", "order": "fit-then-filter"}, "0 for a student"),
    ],
)
def test_bad_settings_are_named_with_their_rule(changes, sentence):
    with pytest.raises(NfadError, match=sentence):
        Config.preset("embedded", **changes)


def test_a_student_brings_its_order_and_a_gated_map_its_gate():
    assert Config.preset("embedded", reference="student").order == "fit-then-filter"
    gated = Config.preset("embedded").changed(localization="global")
    assert (gated.gate, gated.incidence, gated.local_share) == ("participation", "columns", 0.25)
    assert gated.changed(localization="detection") == Config.preset("embedded")
    assert gated.changed(gate="magnitude").changed(size=512).gate == "magnitude"


def test_a_setting_is_known_by_the_name_it_once_had():
    assert Config.preset("embedded", top=0.02).top_fraction == Config.from_dict({"top": 0.02}).top_fraction == 0.02


def test_a_share_is_held_out_where_nothing_is_cross_fitted():
    assert Config().cross_fitted and Config().holdout is None
    for changes in ({"acquisitions": 0}, {"reference": "student"}):
        changed = Config().changed(**changes)
        assert not changed.cross_fitted and changed.holdout == 0.3
        assert changed.changed(holdout=0.1).holdout == changed.changed(holdout=0.1, seed=1).holdout == 0.1
        assert changed.changed(acquisitions=9, reference="linear").holdout is None  # and comes back as it was
    assert Config.preset("paper").acquisitions == 0 and Config.preset("paper").holdout == 0.02


def test_without_acquisitions_every_intervention_is_seen_on_more_images():
    assert (Config().pairs, Config().changed(acquisitions=0).pairs) == (6, 12)
    assert Config().changed(acquisitions=0).changed(acquisitions=9).pairs == 6
    assert Config().changed(acquisitions=0, pairs=5).pairs == Config(pairs=5).changed(acquisitions=0).pairs == 5
    assert Config.preset("paper").changed(acquisitions=300).pairs is None


@pytest.mark.parametrize(
    ("changes", "candidates"),
    [
        ({}, ("filtered", "placed", "regional")),
        ({"reference": "nearest"}, ("filtered", "placed", "regional")),
        ({"evidence": "placed"}, ("placed",)),
        ({"evidence": "regional"}, ("regional",)),
        ({"evidence": "filtered"}, ("filtered",)),
        ({"acquisitions": 0}, ("filtered",)),
        ({"reference": "student"}, ("filtered",)),
        ({"localization": "global"}, ("filtered",)),
    ],
)
def test_evidence_by_place_is_a_candidate_where_it_can_be_made(changes, candidates):
    assert Config.preset("embedded", **changes).candidates == candidates


def test_the_look_beside_has_its_presets_teacher_and_the_rest_of_the_first():
    both = Config.preset("embedded-both", size=128, seed=3, acquisitions=40, foreground=True)
    fast = Config.preset("embedded-fast", size=128, seed=3, acquisitions=40, foreground=True)
    alone = Config.preset("embedded", size=128, seed=3, acquisitions=40, foreground=True)
    assert both.looks == (alone, fast) and fast.looks == (fast,)
    assert Config.preset("embedded-both", rank={}).looks[1].rank == {}  # what is not filtered here is not there either


@pytest.mark.parametrize(
    "changes", [{"acquisitions": 0}, {"reference": "student"}, {"localization": "global"}, {"teacher": "dinov3"}]
)
def test_where_there_can_be_no_second_look_there_is_none(changes):
    assert Config.preset("embedded-both", **changes).beside == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"beside": "embedded-both"}, "beside must be one of paper, embedded, embedded-fast"),
        ({"beside": "embedded"}, "a look by the same teacher, embedded-vit"),
        ({"beside": "embedded-fast", "acquisitions": 0}, "beside needs acquisitions"),
        ({"beside": "embedded-fast", "localization": "global"}, "beside needs acquisitions"),
    ],
)
def test_a_second_look_that_cannot_be_is_refused(changes, told):
    with pytest.raises(NfadError, match=told):
        Config(**changes)
