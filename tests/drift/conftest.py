"""A line that makes parts: numbers as a detector gives them, under a lamp and with defects of our choosing."""

import numpy as np
import pytest


def draw(random, count, light=0.0, unabsorbed=0.0, defects=0.0):
    """`light` moves the photometric share and the control score, `unabsorbed` every score, by standard deviations."""
    lamp, spot = random.normal(size=(2, count))
    broken = random.random(count) < defects
    numbers = {
        "score": 2 + 0.5 * (random.normal(size=count) + unabsorbed) + broken * random.gamma(4, 0.7, count),
        "unfiltered_score": 2.5 + 0.5 * (random.normal(size=count) + unabsorbed + lamp + light) + 2 * broken,
        "participation": random.beta(5, 5, count),
        "nuisance:photometric": np.exp(-1.5 + 0.3 * (lamp + light)) * np.where(broken, 0.5, 1),
        "nuisance:background": np.exp(-2 + 0.3 * spot) * np.where(broken, 0.5, 1),
    }
    return numbers | {"nuisance_fraction": numbers["nuisance:photometric"] + numbers["nuisance:background"]}


def rows(numbers):
    return [dict(zip(numbers, values)) for values in zip(*numbers.values())]


@pytest.fixture
def line():
    """line(seed).normals(n) and .parts(n, **changes)."""
    return Line


class Line:
    def __init__(self, *seed):
        self.random = np.random.default_rng(seed)

    def normals(self, count):
        return draw(self.random, count)

    def parts(self, count, **changes):
        return rows(draw(self.random, count, **changes))
