"""The paper's tables: which fits each one needs, and how their results are laid out. See docs/paper.md."""

from __future__ import annotations

import numpy as np

from nfad.config import BASES, Config
from nfad.errors import NfadError
from nfad.evaluation.tally import EVERYWHERE, METRICS
from nfad.paper.estimates import Entry, Estimate, domains_of, entry, estimate, mean_of, pooled_domain
from nfad.paper.plugins import HOSTS
from nfad.paper.published import lookup
from nfad.paper.table import (
    FOUNDATIONS,
    SEEDS,
    Block,
    Options,
    Table,
    Variant,
    compare,
    nearest_published,
    paper_value,
)

ERRORS = ("false_alarms", "detections", "verdict_error")  # at the threshold: never one without the other
IMAGE, PIXEL, SHORT = METRICS[:3], ("p_auroc", "aupro"), ("i_auroc", "p_auroc", "aupro")
CATEGORY_TABLES = {"mvtec-ad": "categories-mvtec", "visa": "categories-visa", "real-iad": "categories-real-iad"}


def _one(_config: Config, _options: Options) -> list[Variant]:
    return [Variant("NFAD")]


def _aebad(block: Block) -> list[Entry]:
    [results] = block.results.values()
    found = []
    for domain in [*domains_of(results[0]), None, EVERYWHERE]:
        label = "pooled" if domain == EVERYWHERE else domain or "mean"
        for column in (*METRICS, *ERRORS):
            control, ours = (estimate(results, arm, column, domain) for arm in ("unfiltered", "filtered"))
            found.append(entry(block.sheet, f"{label}/Control", column, control))
            paper = paper_value("aebad-domains", "aebad-s", label, column)
            found.append(entry(block.sheet, f"{label}/NFAD", column, ours, control, paper))
    return found


def _standard(block: Block) -> list[Entry]:
    [results] = block.results.values()
    table = CATEGORY_TABLES.get(block.dataset)
    found = []
    for category, result in [*zip(block.categories, results, strict=True), ("mean", None)]:
        these = results if result is None else [result]
        for column in METRICS:
            control, ours = (estimate(these, arm, column) for arm in ("unfiltered", "filtered"))
            paper = lookup(table, block.dataset, category, column) if table else None
            found.append(entry(block.sheet, f"{category}/Control", column, control))
            found.append(entry(block.sheet, f"{category}/NFAD", column, ours, control, paper))
    return found


def _detection_variants(_config: Config, _options: Options) -> list[Variant]:
    return [Variant("Projection", {"basis": "scatter"}), Variant("Projection+MIR", {"basis": "mir"})]


def _detection(block: Block) -> list[Entry]:
    near = nearest_published("detection-ablation", block.dataset, len(domains_of(block.first)))
    rows = {"Control": ("Projection+MIR", "unfiltered")} | {row: (row, "filtered") for row in block.results}
    return compare(block, "detection-ablation", near, rows, IMAGE, "Control")


def _localization_variants(_config: Config, _options: Options) -> list[Variant]:
    gated = {"localization": "global"}
    return [
        Variant("Projection+Vg", gated | {"basis": "scatter"}),
        Variant("Projection+Vg+MIR", gated | {"basis": "mir"}),
    ]


def _localization(block: Block) -> list[Entry]:
    near = nearest_published("localization-ablation", block.dataset, len(domains_of(block.first)))
    rows = {
        "Control": ("Projection+Vg+MIR", "unfiltered"),
        "Projection": ("Projection+Vg", "full"),
        "Projection+Vg": ("Projection+Vg", "filtered"),
        "Projection+MIR": ("Projection+Vg+MIR", "full"),
        "Projection+Vg+MIR": ("Projection+Vg+MIR", "filtered"),
    }
    return compare(block, "localization-ablation", near, rows, PIXEL, "Control")


def _corrupted_variants(_config: Config, options: Options) -> list[Variant]:
    return [Variant("clean")] + [Variant(name.replace(":", "/s="), corruption=name) for name in options.corruptions]


def _corrupted(block: Block) -> list[Entry]:
    found = []
    for row, results in block.results.items():
        for column in ("i_auroc", *ERRORS, "p_auroc", "aupro"):
            control, ours = (estimate(results, arm, column) for arm in ("unfiltered", "filtered"))
            papers = [paper_value("visa-c", "visa-c", f"{row}/{arm}", column) for arm in ("Control", "Ours")]
            found.append(entry(block.sheet, f"{row}/Control", column, control, paper=papers[0]))
            found.append(entry(block.sheet, f"{row}/Ours", column, ours, control, papers[1]))
    return found


def _foundation_variants(config: Config, options: Options) -> list[Variant]:
    """Each with the settings of its kind: a CNN has no CLS token and too few channels for a ViT's ranks."""
    cnn = {"blocks": (2, 3), "prior_blocks": (), "rank": {"photometric": 0.0625}}
    vit = {"blocks": Config().blocks, "prior_blocks": Config().prior_blocks, "rank": Config().rank}
    made = []
    for name in options.teachers:
        is_cnn = name == "embedded-cnn"
        as_it_is = is_cnn == (config.teacher == "embedded-cnn")
        changes = {} if as_it_is else cnn if is_cnn else vit
        made.append(Variant(FOUNDATIONS.get(name, name), {"teacher": name} | changes))
    return made


def _foundations(block: Block) -> list[Entry]:
    found = []
    for row, results in block.results.items():
        for column in SHORT:
            control, ours = (estimate(results, arm, column) for arm in ("unfiltered", "filtered"))
            arms = (("Control", control, None), ("Ours", ours, control), ("Delta", ours - control, None))
            for arm, own, against in arms:
                paper = lookup("foundations", "aebad-s", f"{row}/{arm}", column)
                found.append(entry(block.sheet, f"{row}/{arm}", column, own, against, paper))
    return found


def _seed_variants(_config: Config, options: Options) -> list[Variant]:
    return [Variant(f"seed={seed}", {"seed": seed}) for seed in options.seeds or SEEDS]


def _seeds(block: Block) -> list[Entry]:
    found = []
    for column in METRICS:
        each = {row: estimate(results, "filtered", column) for row, results in block.results.items()}
        values = [own.value for own in each.values()]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
        rows = each | {"mean": Estimate(float(np.mean(values))), "std": Estimate(spread)}
        for row, own in rows.items():
            found.append(entry(block.sheet, row, column, own, paper=lookup("seeds", "aebad-s", row, column)))
    return found


def _basis_variants(_config: Config, _options: Options) -> list[Variant]:
    return [Variant(basis, {"basis": basis}) for basis in ("scatter", *BASES[2:], "mir")]


def _basis(block: Block) -> list[Entry]:
    return compare(block, "basis", "aebad-s", {row: (row, "filtered") for row in block.results}, SHORT, "mir")


def _incidence_variants(_config: Config, _options: Options) -> list[Variant]:
    gated = {"localization": "global"}
    return [
        Variant("rotation-invariant", gated | {"incidence": "rotated"}),
        Variant("magnitude", gated | {"gate": "magnitude"}),
        Variant("NFAD", gated),
    ]


def _incidence(block: Block) -> list[Entry]:
    return compare(block, "incidence", "aebad-s", {row: (row, "filtered") for row in block.results}, PIXEL, "NFAD")


def _rank_variants(config: Config, options: Options) -> list[Variant]:
    return [Variant(f"d={d}", {"rank": dict.fromkeys(config.rank, d)}) for d in options.ranks]


def _rank(block: Block) -> list[Entry]:
    rows = {"Control": (next(iter(block.results)), "unfiltered")} | {row: (row, "filtered") for row in block.results}
    return compare(block, "rank", "aebad-s", rows, ("i_auroc", "aupro"), "Control")


def _entanglement_variants(config: Config, _options: Options) -> list[Variant]:
    """The config's own reference, and the student-free nearest normal token, at both of the paper's dimensions."""
    families = ("photometric", "background")
    made = []
    for reference in dict.fromkeys((config.reference, "nearest")):
        for dim in (32, 64):
            changes = {"reference": reference, "rank": dict.fromkeys(families, dim // 2)}
            made.append(Variant(f"{reference}/dim={dim}", changes, "entanglement"))
    return made


def _entanglement(block: Block) -> list[Entry]:
    found = []
    for row, results in block.results.items():
        reference, dim = row.split("/dim=")
        pooled = pooled_domain(results[0])
        places = [("all", [result], category) for result, category in zip(results, block.categories, strict=True)]
        places = [(domain, results, domain) for domain in domains_of(results[0])] if len(results) == 1 else places
        for column in ("f_def", "f_norm", "f_disc", "chance"):
            near = nearest_published("entanglement-rank", block.dataset, len(domains_of(results[0])))
            label = "DINOv3-B/16" if reference == "nearest" else "reconstruction"
            near = "mvtec-ad" if reference == "nearest" else near
            name = "entanglement-backbones" if reference == "nearest" else "entanglement-datasets"
            paper = paper_value("entanglement-rank", near, f"{label}/dim={dim}", column)
            paper = paper_value(name, near, label, column) if paper is None and dim == "32" else paper
            found.append(entry(block.sheet, row, column, Estimate(mean_of(results, column, pooled)), paper=paper))
            for domain, these, place in places if len(places) > 1 else []:
                domain = pooled_domain(these[0]) if domain == "all" else domain
                own = Estimate(mean_of(these, column, domain))
                theirs = dim == "32" and reference != "nearest" and column == "f_disc"
                paper = paper_value("entanglement-categories", block.dataset, place, column) if theirs else None
                found.append(entry(block.sheet, f"{row}/{place}", column, own, paper=paper))
    return found


def _mechanism_variants(_config: Config, _options: Options) -> list[Variant]:
    return [Variant("NFAD", measure="mechanism")]


def _mechanism(block: Block) -> list[Entry]:
    [results] = block.results.values()
    found = []
    for domain in domains_of(results[0], together=True):
        row = "pooled" if domain == pooled_domain(results[0]) and len(results[0]["rows"]) > 1 else domain
        for column in ("rms_before", "rms_after", "energy_removed", "contrast_before", "contrast_after", "spearman"):
            value = mean_of(results, column, domain) * (100 if column == "energy_removed" else 1)
            paper = lookup("mechanism", "aebad-s", row, column)
            found.append(entry(block.sheet, row, column, Estimate(value), paper=paper))
    return found


def _plugin_variants(config: Config, options: Options) -> list[Variant]:
    for name in options.hosts:
        if name not in HOSTS:
            raise NfadError(f"there is no host {name!r}; the hosts are {', '.join(HOSTS)}")
    seeds = options.seeds or (config.seed,)  # results of one row, so that its values are means over them
    return [Variant(HOSTS[name], {"seed": seed}, host=name) for name in options.hosts for seed in seeds]


def _plugins(block: Block) -> list[Entry]:
    found = []
    for host, results in block.results.items():
        for arm in results[0]["rows"][0]["arms"]:
            for column in (*METRICS, *ERRORS):
                bare, own = estimate(results, "d=0", column), estimate(results, arm, column)
                paper = paper_value("plugins", "aebad-s", f"{host}/{arm}", column)
                found.append(entry(block.sheet, f"{host}/{arm}", column, own, None if arm == "d=0" else bare, paper))
    return found


TABLES = {
    table.name: table
    for table in (
        Table("aebad", "Every metric by acquisition domain", _one, _aebad, ("comparison", "aebad-domains"), "domains"),
        Table("standard", "Every metric by category", _one, _standard, ("standard", *CATEGORY_TABLES.values())),
        Table(
            "detection-ablation", "What detection gains from projection, then from MIR", _detection_variants,
            _detection, ("detection-ablation",),
        ),
        Table(
            "localization-ablation", "What localization gains from projection, gated V_g and MIR",
            _localization_variants, _localization, ("localization-ablation",),
        ),
        Table(
            "visa-c", "Under corruptions of growing severity", _corrupted_variants, _corrupted, ("visa-c",),
            options=("severities",),
        ),
        Table(
            "foundations", "Other teachers", _foundation_variants, _foundations, ("foundations",),
            options=("teachers",),
        ),
        Table("seeds", "Other seeds", _seed_variants, _seeds, ("seeds",), options=("seeds",)),
        Table("basis", "Four ways to a basis", _basis_variants, _basis, ("basis",), baseline="mir"),
        Table(
            "incidence", "Another sub-basis, another gate", _incidence_variants, _incidence, ("incidence",),
            baseline="NFAD",
        ),
        Table("rank", "Columns a family", _rank_variants, _rank, ("rank",), options=("ranks",)),
        Table(
            "entanglement", "Residual energy inside the nuisance subspace", _entanglement_variants, _entanglement,
            ("entanglement-datasets", "entanglement-backbones", "entanglement-rank", "entanglement-categories"),
        ),
        Table(
            "mechanism", "Residuals and scores before and after projection", _mechanism_variants, _mechanism,
            ("mechanism",), "domains",
        ),
        Table(
            "plugins", "Other detectors wearing the filter", _plugin_variants, _plugins, ("plugins",), "domains",
            baseline="the bare host (d = 0)", both_orders=False, options=("ranks", "hosts", "steps", "seeds"),
        ),
    )
}  # fmt: skip


def methods(config: Config) -> dict[str, Config]:
    """The config as it is and, for a closed-form reference, the paper's order with the paper's interventions."""
    made = {config.order: config}
    if config.order == "filter-then-fit":
        # The paper's 16 + 16; of a CNN's 40 channels that would be nearly all, so a share there.
        rank = 1 / 16 if config.teacher == "embedded-cnn" else 16
        made["fit-then-filter"] = config.changed(
            order="fit-then-filter",
            interventions="paper",
            common_mode=False,
            localization="global",
            local_share=0.25,
            rank={"photometric": rank, "background": rank},
        )
    return made
