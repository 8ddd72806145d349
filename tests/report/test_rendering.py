import re
import subprocess
import sys

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from nfad.errors import NfadError
from nfad.report.pictures import CONTOUR
from nfad.report.rendering import FOLDER, rendered, source, write_page

SHEETS = sorted(path.name for path in FOLDER.glob("*.css"))
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgba?|hsla?)\(|:\s*(?:white|black|red|green|blue|gr[ae]y)\b")
# Set where they are used, or by what is shown.
LOCAL = {"--heat", "--photo", "--ratio", "--tall", "--tint", "--truth"}


def test_every_colour_stands_in_the_palette_for_light_and_dark():
    palette = source("palette.css")
    light, dark = (
        set(re.findall(r"(--[\w-]+): #", block))
        for block in (palette.split("@media")[0], re.search(r"@media.*?\} \}", palette, re.DOTALL)[0])
    )
    assert light == dark and len(light) == 21
    defined = set(re.findall(r"(--[\w-]+):", palette))
    for name in SHEETS:
        used = set(re.findall(r"var\((--[\w-]+)", source(name)))
        assert used <= defined | LOCAL, name
        if name != "palette.css":
            assert not COLOUR.search(source(name)), name


def test_the_outline_has_the_same_colour_in_pages_and_pictures():
    assert "--outline: #{:02x}{:02x}{:02x}".format(*CONTOUR) in source("palette.css")


@pytest.mark.parametrize("template", sorted(path.name for path in FOLDER.glob("*.html")))
def test_no_template_trusts_a_value_or_fetches_anything(template):
    text = (FOLDER / template).read_text(encoding="utf-8")
    assert not re.search(r"\|\s*safe\b|autoescape|https?:|\son\w+=", text)


def test_text_is_escaped_and_a_missing_value_is_an_error():
    assert rendered("section.html", title="<b>&\"'", text="") == Markup("<h2>&lt;b&gt;&amp;&#34;&#39;</h2>\n")
    with pytest.raises(UndefinedError):
        rendered("section.html", title="x")


def test_a_page_is_written_as_its_values_come_and_whole_or_not_at_all(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("yesterday's")

    def broken():
        yield Markup("<p>one</p>")
        raise NfadError("no more")

    given = {"title": "x", "metadata": [], "figures": [], "choices": [], "images": [], "high": 1.0}
    counts = {"judged": 0, "not_judged": 0, "shown": 0}
    with pytest.raises(NfadError, match="no more"):
        write_page(path, "inspection.html", counts=counts, opening=broken(), **given)
    assert path.read_text() == "yesterday's" and list(tmp_path.iterdir()) == [path]


def test_a_line_pc_needs_no_torch_for_the_page():
    script = "import sys, nfad.report.inspection; sys.exit(any(name in sys.modules for name in ('torch', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
