import ast
import math
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

import nfad.paper
from nfad.errors import NfadError
from nfad.evaluation.tally import METRICS
from nfad.paper.canvas import DEEP
from nfad.paper.estimates import Entry
from nfad.paper.figures import FIGURES, draw, figure
from nfad.paper.panels import base_of, signed
from nfad.paper.published import lookup, published
from nfad.paper.tables import TABLES

NAN = float("nan")
DOMAINS = ("same", "background", "illumination", "view")
OURS, THEIRS = "aebad-s · filter-then-fit", "aebad-s · fit-then-filter"


def measured(sheet, row, column, paper, seed, width=2.0):
    """An entry near the paper's value, as a run would give it."""
    random = np.random.default_rng([seed, *f"{row}{column}".encode()])
    value = min(100.0, paper + random.normal() * width / 4)
    return Entry(sheet, row, column, value, value - width, min(100.0, value + width), paper, random.random() < 0.3)


def pairs(sheet, seed, names, columns, table, dataset, ours="NFAD"):
    """Control and ours a row, the paper having ours only."""
    made = []
    for name in names:
        for column in columns:
            own = measured(sheet, f"{name}/{ours}", column, lookup(table, dataset, name, column), seed)
            control = replace(own, row=f"{name}/Control", value=own.value - 3, low=own.low - 3, high=own.high - 3)
            made += [replace(control, paper=None, strong=False), own]
    return made


def same_rows(table, sheet, seed, width=2.0):
    kept = [v for v in published(table) if v.dataset in ("aebad-s", "visa-c") and v.column != "size"]
    return [
        Entry(sheet, v.row, v.column, v.value, paper=v.value)
        if v.row in ("mean", "std")
        else measured(sheet, v.row, v.column, v.value, seed, width)
        for v in kept
    ]


def entangled(sheet, seed):
    made = []
    for variant in (f"{reference}/dim={dim}" for reference in ("linear", "nearest") for dim in (32, 64)):
        for row in (variant, *(f"{variant}/{domain}" for domain in DOMAINS)):
            for column, share in (("f_def", 0.42), ("f_norm", 0.35), ("f_disc", 0.58), ("chance", 0.042)):
                made.append(replace(measured(sheet, row, column, share, seed, 0.05), low=NAN, high=NAN, strong=False))
    return made


def example(table, sheet=OURS, seed=0):
    if table == "aebad":
        return pairs(sheet, seed, (*DOMAINS, "mean"), METRICS, "aebad-domains", "aebad-s")
    if table == "standard":
        names = list(dict.fromkeys(v.row for v in published("categories-mvtec")))
        return pairs(sheet, seed, names, METRICS, "categories-mvtec", "mvtec-ad")
    if table == "entanglement":
        return entangled(sheet, seed)
    if table == "mechanism":
        return same_rows(table, sheet, seed, width=0.1)
    made = same_rows(table, sheet, seed)
    alarms = [
        replace(entry, column="false_alarms", value=100 - entry.value, low=NAN, high=NAN, paper=None, strong=False)
        for entry in made
    ]
    return made + alarms if table == "visa-c" else made


def drawn(page, gid):
    """Values that artists of this gid carry."""
    found = []
    for artist in page.findobj(lambda artist: artist.get_gid() == gid):
        if isinstance(artist, Line2D):
            found += list(zip(artist.get_xdata(), artist.get_ydata()))
        else:
            assert isinstance(artist, Rectangle)
            found.append((artist.get_x() + artist.get_width(), artist.get_y()))
    return found


def shown(table, entries):
    """The entries a figure is about."""
    return [
        entry
        for entry in entries
        if math.isfinite(entry.value) and entry.column in FIGURES[table][0] and not entry.row.endswith("/Delta")
    ]


def words(page):
    """What can be read, with the place it takes."""
    page.canvas.draw()
    texts = [text for text in page.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [(text, text.get_window_extent()) for text in texts]


def panels(page):
    return [ax for ax in page.findobj(lambda artist: isinstance(artist, matplotlib.axes.Axes)) if ax.axison]


def test_every_table_has_a_figure():
    assert set(FIGURES) == set(TABLES)


@pytest.mark.parametrize("table", ["mechanism", "visa-c"])
def test_the_file_is_a_picture_and_alone(table, tmp_path):
    path = draw(table, example(table), tmp_path / "figure.png")
    with Image.open(path) as picture:
        assert 600 <= picture.width <= 1700 and 400 <= picture.height <= 2000
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("table", [table for table in FIGURES if table not in ("visa-c", "entanglement", "plugins")])
def test_every_finite_value_is_drawn_once_and_no_other(table):
    holed = [replace(e, value=NAN) if i % 3 == 0 and e.row != "mean" else e for i, e in enumerate(example(table))]
    entries = holed + example(table, THEIRS, 1)
    page, about = figure(table, entries), shown(table, entries)
    assert len(drawn(page, "value")) == len(about)
    papers = [entry.paper for entry in about if entry.paper is not None and entry.row != "std"]
    assert sorted(x for x, _ in drawn(page, "paper")) == pytest.approx(sorted(papers))
    expected = [entry.value for entry in about if entry.row != "std"]
    if not any(entry.row == "std" for entry in about):  # of which a band is drawn, not a point
        assert sorted(x for x, _ in drawn(page, "value")) == pytest.approx(sorted(expected))


@pytest.mark.parametrize("holes", [False, True])
def test_shares_stand_against_chance(holes):
    entries = example("entanglement")
    if holes:
        entries = [replace(entry, value=NAN) if i % 5 == 0 else entry for i, entry in enumerate(entries)]
    page = figure("entanglement", entries)
    chances = [entry.value for entry in shown("entanglement", entries) if entry.column == "chance"]
    values = [entry.value for entry in shown("entanglement", entries) if entry.column != "chance"]
    assert sorted(x for x, _ in drawn(page, "value")) == pytest.approx(sorted(values))
    assert sorted(x for x, _ in drawn(page, "chance")) == pytest.approx(sorted(2 * chances))
    assert len(panels(page)) == 4
    whole = [entry for entry in entries if entry.row.count("/") == 1]
    assert len(panels(figure("entanglement", whole))) == 1


def test_a_curve_is_ours_less_control_over_severity():
    entries = example("visa-c")
    page = figure("visa-c", entries)
    gain, alarms = panels(page)
    value = {(entry.row, entry.column): entry for entry in entries}
    expected = set()
    for row in ("clean", *(f"{name}/s={level}" for name in ("brightness", "contrast") for level in (1, 2, 3))):
        control, ours = (value[f"{row}/{arm}", "i_auroc"].value for arm in ("Control", "Ours"))
        expected.add((int(row[-1]) if "=" in row else 0, round(ours - control, 9)))
    found = {(x, round(float(y), 9)) for x, y in drawn(gain, "value")}
    assert expected <= found and len(drawn(gain, "value")) == 1 + 4 * 3
    assert len(drawn(alarms, "value")) == 2 * (1 + 4 * 3)
    # the paper's gain under contrast at severity 2
    assert any(x == 2 and y == pytest.approx(90.97 - 85.12) for x, y in drawn(gain, "paper"))
    assert not drawn(alarms, "paper")
    assert [label.get_text() for label in gain.get_xticklabels()] == ["clean", "1", "2", "3"]


def test_a_hosts_curve_is_what_it_gains_over_itself():
    entries = example("plugins")
    gain, _aupro = panels(figure("plugins", entries))
    value = {entry.row: entry.value for entry in entries if entry.column == "i_auroc"}
    for host in ("RD4AD", "UniAD"):
        for d in (8, 64):
            rise = value[f"{host}/d={d}"] - value[f"{host}/d=0"]
            assert any(x == d and y == pytest.approx(rise) for x, y in drawn(gain, "value"))
    assert any(x == 16 and y == pytest.approx(70.02 - 68.52) for x, y in drawn(gain, "paper"))  # PatchCore
    assert [label.get_text() for label in gain.get_xticklabels()] == ["bare", "8", "16", "32", "64"]
    headless = [entry for entry in entries if entry.row != "RD4AD/d=0"]
    assert len(drawn(panels(figure("plugins", headless))[0], "value")) == len(drawn(gain, "value")) - 4


@pytest.mark.parametrize("table", FIGURES)
def test_nothing_readable_is_small_or_in_the_way_of_other_words(table):
    entries = example(table) + (example(table, THEIRS, 1) if table in ("aebad", "visa-c") else [])
    page = figure(table, [replace(entry, strong=False) for entry in entries])
    found = words(page)
    assert 3.5 <= page.get_figwidth() <= 8.5 and 2 <= page.get_figheight() <= 12  # inches: it fits a page
    assert min(text.get_fontsize() for text, _ in found) >= 8
    assert len({text.get_text() for text, _ in found}) > 8
    for index, (text, box) in enumerate(found):
        assert page.bbox.x0 <= box.x0 and box.x1 <= page.bbox.x1, text
        assert page.bbox.y0 <= box.y0 and box.y1 <= page.bbox.y1, text
        for other, taken in found[index + 1 :]:
            assert not box.overlaps(taken), (text, other)


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_the_same_entries_give_the_same_bytes_whatever_the_user_likes(suffix, tmp_path):
    entries = example("rank")
    first = draw("rank", entries, tmp_path / f"a{suffix}").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        second = draw("rank", entries, tmp_path / f"b{suffix}").read_bytes()
        assert matplotlib.rcParams["font.size"] == 30
    assert first == second
    assert first.startswith(b"%PDF" if suffix == ".pdf" else b"\x89PNG")


def test_a_column_may_be_missing_from_one_sheet_or_from_all():
    one, other = example("aebad"), example("aebad", THEIRS, 1)
    without = [entry for entry in one if entry.column != "i_auroc"]
    page = figure("aebad", without + other)
    assert len(panels(page)) == 3
    said = [text.get_text() for text, _ in words(page)]
    assert "I-AUROC (%):\nnot measured" in said
    assert said.count("illumination") == 2  # each line of panels names its rows, also where its first is missing
    assert len(panels(figure("aebad", without))) == 1


def test_sheets_beyond_the_fourth_start_a_second_column():
    def columns(count):
        page = figure("rank", [e for i in range(count) for e in example("rank", f"set {i} · linear")[:4]])
        page.canvas.draw()
        return len({round(ax.get_window_extent().x0 / 20) for ax in panels(page)}) // 2, len(panels(page))

    assert columns(DEEP) == (1, 2 * DEEP)
    assert columns(DEEP + 1) == (2, 2 * (DEEP + 1))


def test_sheets_of_one_data_set_share_their_axes():
    low = [replace(entry, value=entry.value - 20) for entry in example("rank", THEIRS)]
    foreign = [replace(entry, sheet="mvtec-ad · linear") for entry in low]
    limits = [ax.get_xlim() for ax in panels(figure("rank", example("rank") + low))]
    assert limits[0] == limits[2] and limits[1] == limits[3] and limits[0] != limits[1]
    limits = [ax.get_xlim() for ax in panels(figure("rank", example("rank") + foreign))]
    assert limits[0] != limits[2]


def test_bars_start_at_chance_or_at_nothing():
    entries = example("aebad")
    assert {bar.get_x() for bar in figure("aebad", entries).findobj(lambda a: a.get_gid() == "value")} == {50.0}
    entries[0] = replace(entries[0], value=40.0)
    image, aupro = panels(figure("aebad", entries))
    assert image.get_xlim()[0] == 0 and aupro.get_xlim()[0] == 50


def test_bars_start_lower_for_a_whisker_or_for_the_paper():
    assert base_of([{"a": Entry("", "a", "aupro", 60.0)}]) == 50
    assert base_of([{"a": Entry("", "a", "aupro", 60.0, 49.0, 70.0)}]) == 0
    assert base_of([{"a": Entry("", "a", "aupro", 60.0, paper=48.0)}]) == 0


def test_a_difference_is_starred_where_it_is_strong():
    entries = [replace(entry, strong=entry.row == "view/NFAD") for entry in example("aebad")]
    page = figure("aebad", entries)
    said = [text.get_text() for text, _ in words(page)]
    assert said.count("+3.0") == 2 * 4 and said.count("+3.0★") == 2
    assert said.count("differs (paired 95 %)") == 1


def test_no_tick_claims_more_than_everything():
    page = figure("rank", [Entry("demo · linear", row, "i_auroc", 100.0) for row in ("Control", "d=8")])
    assert max(panels(page)[0].get_xticks()) <= 100


def test_a_name_is_never_taken_for_a_formula(tmp_path):
    entries = [Entry("x$ · y", f"$_{{/{arm}", "i_auroc", 90.0) for arm in ("Control", "NFAD")]
    draw("standard", entries, tmp_path / "figure.png")
    assert "$_{" in [text.get_text() for text, _ in words(figure("standard", entries))]


def test_the_hardest_category_comes_first_and_the_mean_last():
    names = [label.get_text() for label in panels(figure("standard", example("standard")))[0].get_yticklabels()]
    control = {e.row.removesuffix("/Control"): e.value for e in example("standard") if e.column == "i_auroc"}
    assert names[-1] == "mean" and len(names) == 16
    assert [control[name] for name in names[:-1]] == sorted(control[name] for name in names[:-1])


@given(st.floats(-100, 100), st.integers(1, 3))
def test_a_signed_number_says_what_it_rounds_to(value, digits):
    text = signed(value, digits)
    assert float(text.replace("−", "-")) == round(value, digits)
    assert text[0] in "+−" if round(value, digits) else text == f"{0:.{digits}f}"


def test_what_cannot_be_drawn_is_told(tmp_path):
    with pytest.raises(NfadError, match="no figure for 'tabel'; there is one for aebad"):
        figure("tabel", example("rank"))
    with pytest.raises(NfadError, match=r"written as \.png or \.pdf; got .*figure\.jpg"):
        draw("rank", example("rank"), tmp_path / "figure.jpg")
    with pytest.raises(NfadError, match="nothing to draw of aebad: it has no finite value in i_auroc, aupro"):
        figure("aebad", [Entry(OURS, "same/NFAD", "i_auroc", NAN), Entry(OURS, "same/NFAD", "i_ap", 90.0)])
    with pytest.raises(NfadError, match="cannot write"):
        draw("rank", example("rank"), tmp_path / "missing" / "figure.png")


def test_without_matplotlib_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NfadError, match=r"pip install 'nfad\[figures\]'"):
        draw("rank", example("rank"), tmp_path / "figure.png")
    assert not any(tmp_path.iterdir())


def test_matplotlib_is_asked_for_late_and_never_for_a_window():
    for path in Path(nfad.paper.__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "pyplot" not in text, path
        for node in ast.parse(text).body:
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any((module or "").startswith("matplotlib") for module in modules), path
