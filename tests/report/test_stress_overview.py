import re
from html import unescape

import pytest

from nfad.report.stress_overview import overview
from nfad.stress.axes import AXES
from nfad.stress.findings import judge
from nfad.stress.measure import Step

COUNT = 24
AXES_TRIED = {name: AXES[name] for name in ("exposure", "noise")}
FLAGGED, PASSED = (2.0,) * COUNT, (0.0,) * COUNT


def findings(breaking=()):
    """Every defect is found; all normals are flagged at the named strengths, and none elsewhere."""
    places = [("", 0.0), *((axis.name, strength) for axis in AXES_TRIED.values() for strength in axis.strengths)]
    steps = {}
    for place in places:
        normal = FLAGGED if place in breaking else PASSED
        steps[place] = Step({"unfiltered": normal, "filtered": normal}, {"unfiltered": FLAGGED, "filtered": FLAGGED})
    return judge(steps, AXES_TRIED, [f"{i}.png" for i in range(COUNT)], {"unfiltered": 1.0, "filtered": 1.0}, 0.01)


def figures(found):
    items = re.search(r'<ul class="counts">(.*?)</ul>', overview(found), re.DOTALL)[1]
    return [unescape(re.sub("<[^>]+>", " ", item)).split() for item in re.findall(r"<li>(.*?)</li>", items)]


@pytest.mark.parametrize(
    ("breaking", "words"),
    [
        ([("noise", 2)], "2% is where noise breaks it, before all else noisier"),
        ([("noise", 15), ("exposure", -0.5)], "−0.5 stops is where exposure breaks it, before all else darker"),
        ([("", 0.0)], "as they are too many good parts are rejected already no change is needed to break it"),
        ([], "none of the conditions tried breaks it"),
    ],
)
def test_the_figure_of_the_first_break_names_its_condition(breaking, words):
    assert figures(findings(breaking))[1] == words.split()


@pytest.mark.parametrize(("breaking", "told"), [([("noise", 2)], "100%"), ([("", 0.0)], "–"), ([], "100%")])
def test_defects_found_are_those_that_the_terminal_tells(breaking, told):
    found = findings(breaking)
    row = re.search(r'<li><a class="title" href="#noise">.*?</li>', overview(found))[0]
    assert row.endswith(f"</span>{told}</span></li>")
    assert found.side(AXES_TRIED["noise"], 1, "filtered").seen() == told
