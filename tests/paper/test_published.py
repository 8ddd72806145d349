"""The paper's numbers against each other: a slip of ours would show, and so do those of the paper, which are listed."""

import re
import statistics
from collections import Counter
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

import pytest

from nfad.errors import NfadError
from nfad.paper.published import COLUMNS, TABLES, Value, lookup, published
from nfad.paper.tables import TABLES as COMMANDS

SEVEN = ("i_auroc", "i_ap", "i_f1", "p_auroc", "p_ap", "p_f1", "aupro")
THREE = ("i_auroc", "p_auroc", "aupro")
DOMAINS = ("same", "background", "illumination", "view")
CATEGORIES = {"mvtec-ad": "categories-mvtec", "visa": "categories-visa", "real-iad": "categories-real-iad"}
DOCUMENT = Path(__file__).parents[2] / "docs" / "paper.md"
COUNTS = {
    "comparison": 9 * 7,
    "aebad-domains": (4 + 1) * 7,
    "standard": 9 * 3 * 3 - 1,  # PatchCore's pixel AUROC on Real-IAD is n/a
    "detection-ablation": 3 * 3 * 3,
    "localization-ablation": 4 * 3 * 2,
    "entanglement-datasets": 3 * 4,
    "entanglement-backbones": 3 * 4,
    "entanglement-rank": 6 * 2 * 3,  # each row with its caption's chance
    "entanglement-categories": 15 + 12 + 4 + 3,  # AeBAD-S's domains and its mean stand in the text
    "mechanism": 4 * 6 + 1,  # the pooled correlation stands in the caption
    "seeds": (5 + 2) * 7,
    "basis": 4 * 3,
    "incidence": 3 * 2,
    "rank": 4 * 2,
    "foundations": 8 * (3 * 3 + 1),
    "visa-c": 4 * 3 * 2 + 2,  # the clean pair stands in the text
    "plugins": 5 * 5 * 7,
    "categories-mvtec": (15 + 1) * 7,
    "categories-visa": (12 + 1) * 7,
    "categories-real-iad": (30 + 1) * 7,
    "datasets": 4 * 5 + 4,  # AeBAD-S's domains stand in the text
}

# Printed means that are not the mean of the printed parts, and why.
UNEVEN_MEANS = {
    ("entanglement-categories", "aebad-s", "f_disc"): "the domains average to 0.560, weighted by images to 0.570; "
    "0.581 may be one direction over all patches together",
}

# Numbers printed twice and differently, and why.
TWICE = {
    ("visa-c", "visa-c", "clean/Control", "detection-ablation", "visa", "Control"): "98.8 here, 98.2 there",
    ("visa-c", "visa-c", "clean/Ours", "detection-ablation", "visa", "Projection+MIR"): "98.8 here, 98.9 there",
}


def find(table, dataset, row, column):
    [found] = [v for v in published(table) if (v.dataset, v.row, v.column) == (dataset, row, column)]
    return Decimal(found.printed)


def unit(number):
    return Decimal(1).scaleb(number.as_tuple().exponent)


def agree(a, b):
    """Could both be roundings of one number? To equal digits only if they are equal."""
    return a == b if unit(a) == unit(b) else abs(a - b) <= (unit(a) + unit(b)) / 2


def parts(table, dataset, column):
    """What a mean or deviation is taken over: the other rows."""
    here = [v for v in published(table) if (v.dataset, v.column) == (dataset, column)]
    return [Decimal(v.printed) for v in here if v.row not in ("mean", "std")]


def summaries(row):
    return [(table, v.dataset, v.column) for table in TABLES for v in published(table) if v.row == row]


def test_every_file_is_a_table_and_every_table_a_file():
    found = {Path(each.name).stem for each in files("nfad.paper.published").iterdir() if each.name.endswith(".csv")}
    assert found == set(TABLES) == set(COUNTS)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_whole_and_well_formed(table):
    values = published(table)
    assert len(values) == COUNTS[table]
    assert max(Counter((v.dataset, v.row, v.column) for v in values).values()) == 1
    for v in values:
        assert v.dataset and v.row and v.column in COLUMNS, v
        assert re.fullmatch(r"-?\d+(\.\d+)?", v.printed), v


def test_every_column_is_used_and_every_number_possible():
    values = [v for table in TABLES for v in published(table)]
    assert {v.column for v in values} == set(COLUMNS)
    for v in values:
        if COLUMNS[v.column].endswith("%"):
            assert v.row.endswith("/Delta") or 0 < v.value <= 100, v
        elif "share" in COLUMNS[v.column] or v.column == "spearman":
            assert 0 < v.value < 1, v


@pytest.mark.parametrize("where", summaries("mean"), ids="/".join)
def test_a_mean_is_that_of_its_rows(where):
    terms, printed = parts(*where), find(*where[:2], "mean", where[2])
    # each term may be half its last digit off, and so may their mean
    even = abs(statistics.mean(terms) - printed) <= (unit(terms[0]) + unit(printed)) / 2
    assert even != (where in UNEVEN_MEANS)


def test_the_listed_means_exist():
    assert set(UNEVEN_MEANS) <= set(summaries("mean"))


@pytest.mark.parametrize("where", summaries("std"), ids="/".join)
def test_a_deviation_is_that_of_a_sample(where):
    printed = find(*where[:2], "std", where[2])
    assert abs(statistics.stdev(parts(*where)) - printed) <= unit(printed) / 2


def test_a_foundations_gain_is_ours_less_control():
    gains = [v for v in published("foundations") if v.row.endswith("/Delta")]
    assert len(gains) == 8 * 3
    for v in gains:
        name = v.row.removesuffix("/Delta")
        ours, control = (find("foundations", v.dataset, f"{name}/{arm}", v.column) for arm in ("Ours", "Control"))
        assert ours - control == Decimal(v.printed), v


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_energy_removed_follows_from_the_magnitudes(domain):
    before, after, removed = (
        find("mechanism", "aebad-s", domain, column) for column in ("rms_before", "rms_after", "energy_removed")
    )
    half = unit(before) / 2
    least = 100 * (1 - ((after + half) / (before - half)) ** 2)
    most = 100 * (1 - ((after - half) / (before + half)) ** 2)
    assert least - unit(removed) / 2 <= removed <= most + unit(removed) / 2


def restated():
    """Pairs of rows that report one experiment, with the columns they share."""
    whole = ("aebad-domains", "aebad-s", "mean")
    yield whole, ("comparison", "aebad-s", "NFAD"), SEVEN
    yield whole, ("seeds", "aebad-s", "seed=54"), SEVEN
    yield whole, ("foundations", "aebad-s", "DINOv3/Ours"), THREE
    yield whole, ("basis", "aebad-s", "mir"), THREE
    yield whole, ("rank", "aebad-s", "d=16"), ("i_auroc", "aupro")
    yield whole, ("incidence", "aebad-s", "NFAD"), ("p_auroc", "aupro")
    yield whole, ("detection-ablation", "aebad-s", "Projection+MIR"), SEVEN[:3]
    yield whole, ("localization-ablation", "aebad-s", "Projection+Vg+MIR"), ("p_auroc", "aupro")
    control = ("foundations", "aebad-s", "DINOv3/Control")
    yield control, ("detection-ablation", "aebad-s", "Control"), ("i_auroc",)
    yield control, ("localization-ablation", "aebad-s", "Control"), ("p_auroc", "aupro")
    yield ("basis", "aebad-s", "scatter"), ("detection-ablation", "aebad-s", "Projection"), ("i_auroc",)
    yield ("basis", "aebad-s", "scatter"), ("localization-ablation", "aebad-s", "Projection+Vg"), ("p_auroc", "aupro")
    for dataset, table in CATEGORIES.items():
        yield (table, dataset, "mean"), ("standard", dataset, "NFAD"), THREE
    for dataset in ("mvtec-ad", "visa"):
        mean = (CATEGORIES[dataset], dataset, "mean")
        yield mean, ("detection-ablation", dataset, "Projection+MIR"), SEVEN[:3]
        yield mean, ("localization-ablation", dataset, "Projection+Vg+MIR"), ("p_auroc", "aupro")
    for host in ("RD4AD", "PatchCore"):
        yield ("plugins", "aebad-s", f"{host}/d=0"), ("comparison", "aebad-s", host), SEVEN
    shares = ("f_def", "f_norm", "chance")
    for dataset in ("aebad-s", "mvtec-ad", "visa"):
        one = ("entanglement-datasets", dataset, "reconstruction")
        yield one, ("entanglement-rank", dataset, "reconstruction/dim=32"), shares
        yield one, ("entanglement-categories", dataset, "mean"), ("f_disc",)
    for backbone in ("DINOv3-B/16", "DINOv2-B/14", "WideResNet-50"):
        one = ("entanglement-backbones", "mvtec-ad", backbone)
        yield one, ("entanglement-rank", "mvtec-ad", f"{backbone}/dim=32"), shares
    for pair in TWICE:
        yield pair[:3], pair[3:], ("i_auroc",)


@pytest.mark.parametrize(("one", "other", "columns"), restated(), ids=lambda value: "/".join(value))
def test_what_is_printed_twice_agrees(one, other, columns):
    same = all(agree(find(*one, column), find(*other, column)) for column in columns)
    assert same != ((*one, *other) in TWICE)


def test_counts_add_up():
    for dataset in ("aebad-s", "mvtec-ad", "visa", "real-iad"):
        normal, anomalous, test = (
            lookup("datasets", dataset, "all", name) for name in ("test_normal", "test_anomalous", "test")
        )
        assert normal + anomalous == test
    domains = [lookup("datasets", "aebad-s", domain, "test") for domain in DOMAINS]
    assert sum(domains) == lookup("datasets", "aebad-s", "all", "test")


@pytest.mark.parametrize("dataset", ["mvtec-ad", "visa", "real-iad"])
def test_there_is_a_row_a_category(dataset):
    names = {v.row for v in published(CATEGORIES[dataset])} - {"mean"}
    assert len(names) == lookup("datasets", dataset, "all", "categories")
    overlap = {v.row for v in published("entanglement-categories") if v.dataset == dataset} - {"mean"}
    assert overlap in (names, set())  # Real-IAD has none


def test_a_value_keeps_its_digits_and_is_a_number():
    first = published("categories-mvtec")[0]
    assert first == Value("mvtec-ad", "bottle", "i_auroc", "100.00") and first.value == 100.0
    assert lookup("foundations", "aebad-s", "BEiTv2/Delta", "aupro") == -1.76


def test_what_the_paper_lacks_is_none_and_a_slip_is_told():
    assert lookup("standard", "real-iad", "PatchCore", "p_auroc") is None
    assert lookup("standard", "real-iad", "PatchCore", "aupro") == 94.0
    with pytest.raises(NfadError, match="unknown table 'tabel'"):
        lookup("tabel", "visa", "NFAD", "aupro")
    with pytest.raises(NfadError, match="unknown column 'auroc'"):
        lookup("standard", "visa", "NFAD", "auroc")


def test_the_document_lists_every_table():
    line = r"^\| ([^|]+) \| .* \| ([^|]+) \| \[[\w-]+\]\(\.\./nfad/paper/published/([\w-]+)\.csv\)"
    listed = re.findall(line, DOCUMENT.read_text(encoding="utf-8"), re.M)
    assert [(file, place) for place, _, file in listed] == list(TABLES.items())
    for _, command, file in listed:
        if command.startswith("`nfad benchmark"):
            assert file in COMMANDS[command.strip("`").split()[-1]].published
    assert {file for table in COMMANDS.values() for file in table.published} | {"plugins", "datasets"} == set(TABLES)


def column_of(table, dataset, column):
    """A column by row."""
    here = [v for v in published(table) if (v.dataset, v.column) == (dataset, column)]
    return {v.row: Decimal(v.printed) for v in here}


def findings():
    """The document's disagreements by their bold words: what the tables give, as the document writes it."""
    f_disc = column_of("entanglement-categories", "aebad-s", "f_disc")
    images = column_of("datasets", "aebad-s", "test")
    weighted = sum(f_disc[domain] * images[domain] for domain in DOMAINS) / images["all"]
    visa = statistics.mean(parts("entanglement-categories", "visa", "f_disc"))
    plain = statistics.mean(parts("entanglement-categories", "aebad-s", "f_disc"))
    yield "f_disc on AeBAD-S", [f"{plain:.3f}", f"{weighted:.3f}", f"{visa:.4f}"]

    yield "Chance for WideResNet-50", [f"{(k / 512 + k / 1024) / 2:.3f}" for k in (32, 64)]

    ours, *others = sorted(column_of("comparison", "aebad-s", "p_auroc").values(), reverse=True)
    yield "Table 2", [f"{ours} − {others[0]} = {ours - others[0]}"]

    ranked = sorted(column_of("standard", "real-iad", "i_auroc").values(), reverse=True)
    pixel = sorted(column_of("standard", "mvtec-ad", "p_auroc").values(), reverse=True)
    assert ranked.index(find("standard", "real-iad", "NFAD", "i_auroc")) == 2
    yield "Table 4", [f"both at {ranked[0]}", f"both at {ranked[1]}", f"{pixel[0]}, is {pixel[0] - pixel[1]} above"]

    aupro = column_of("localization-ablation", "mvtec-ad", "aupro")
    yield "Table 6", [f"from {aupro['Projection']} to {aupro['Projection+Vg']}"]

    tables = [*published("entanglement-datasets"), *published("entanglement-backbones")]
    for column in ("f_def", "f_disc"):
        over = [v.value / (32 / 768) for v in tables if v.column == column and v.row != "WideResNet-50"]
        yield "Table 1", [f"{min(over):.1f}", f"{max(over):.1f}"]

    before, after = (find("mechanism", "aebad-s", "background", f"contrast_{when}") for when in ("before", "after"))
    low, high = ((after + sign * unit(after) / 2) / (before - sign * unit(before) / 2) for sign in (-1, 1))
    yield "Contrast", [f"{100 * (after / before - 1):+.1f} %", f"{100 * (low - 1):.1f} to {100 * (high - 1):.1f}"]

    image, pixel = (column_of("basis", "aebad-s", column) for column in ("i_auroc", "p_auroc"))
    assert pixel["mir"] == pixel["scatter"]
    yield "Basis", [f"gives {image['mir'] - image['scatter']}"]

    for column in ("i_auroc", "aupro"):
        yield "Rank", [f"{find('rank', 'aebad-s', 'd=32', column)} → {find('rank', 'aebad-s', 'd=64', column)}"]

    image, aupro = (column_of("foundations", "aebad-s", column) for column in ("i_auroc", "aupro"))
    gains = {row.removesuffix("/Delta"): gain for row, gain in image.items() if row.endswith("/Delta")}
    told = [f"({image[f'{name}/Control']})" for name in ("AugReg", "DINOv2", "DINO", "DINOv2-R")]
    told += [str(gains[name]) for name in ("AugReg", "DINOv2", "DINO", "DINOv2-R")]
    told += [f"{aupro['AugReg/Delta']:+}", f"−{-aupro['BEiTv2/Delta']}", f"{statistics.mean(gains.values()):.3f}"]
    yield "Foundations", told

    image, f1, aupro = (column_of("plugins", "aebad-s", column) for column in ("i_auroc", "i_f1", "aupro"))
    told = [str(aupro[f"{host}/d=0"] - aupro[f"{host}/d=8"]) for host in ("RD4AD", "ReContrast")]
    assert all(find("plugins", "aebad-s", "RD4AD/d=64", c) > find("plugins", "aebad-s", "RD4AD/d=0", c) for c in SEVEN)
    yield "Plug-ins", [*told, str(f1["RD4AD/d=64"] - f1["RD4AD/d=0"]), str(image["UniAD/d=8"] - image["UniAD/d=0"])]

    assert list(column_of("categories-mvtec", "mvtec-ad", "i_auroc").values()).count(Decimal(100)) == 6
    yield "Categories", ["the table has six"]

    train, number = ({n: lookup("datasets", n, "all", c) for n in CATEGORIES} for c in ("train", "categories"))
    yield "Counts", [f"{train[name] / number[name]:.0f}" for name in ("mvtec-ad", "visa")]


@pytest.mark.parametrize(("title", "numbers"), findings(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_document_reports_what_the_tables_give(title, numbers):
    text = DOCUMENT.read_text(encoding="utf-8").split(f"- **{title}**")[1].split("\n- **")[0]
    assert [number for number in numbers if number not in " ".join(text.split())] == []


def test_the_reported_seed_leads_in_images_and_trails_in_pixels():
    for column, place in zip(SEVEN, (4, 4, 4, 0, 0, 2, 0)):
        assert sorted(parts("seeds", "aebad-s", column)).index(find("seeds", "aebad-s", "seed=54", column)) == place
