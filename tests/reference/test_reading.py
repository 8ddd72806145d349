import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.reference.reading import (
    CELLS,
    COMPONENTS,
    ENOUGH,
    PER_COMPONENT,
    RIDGE,
    SMOOTH,
    STILL,
    Reading,
    coordinates,
    within_images,
)
from nfad.vision.photo import NUMBERS

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)


def basis_(channels, columns, seed):
    return torch.linalg.qr(torch.randn(channels, channels, generator=torch.Generator().manual_seed(seed)))[0][
        :, :columns
    ]


def slow_coordinates(tokens, bases):
    found = []
    for block, basis in zip(tokens, bases):
        grid = round(block.shape[1] ** 0.5)
        cells = min(CELLS, grid)
        step = grid // cells
        each = []
        for image in block.double().numpy().reshape(len(block), grid, grid, -1):
            means = [
                image[row * step : (row + 1) * step, column * step : (column + 1) * step].mean(axis=(0, 1))
                for row in range(cells)
                for column in range(cells)
            ]
            each.append(np.median(np.stack(means) @ basis.double().numpy(), axis=0))
        found.append(np.stack(each))
    return np.concatenate(found, axis=1)


@given(st.sampled_from([1, 2, 3, 4, 7, 8, 18]), st.integers(0, 4), seeds)
def test_coordinates_are_the_median_over_cells_of_their_mean_token(grid, columns, seed):
    random = torch.Generator().manual_seed(seed)
    tokens = [torch.randn(2, grid**2, 6, generator=random) for _ in range(2)]
    bases = [basis_(6, columns, seed), basis_(6, 3, seed + 1)]
    found = coordinates(tokens, bases)
    assert found.shape == (2, columns + 3)
    np.testing.assert_allclose(found.numpy(), slow_coordinates(tokens, bases), atol=64 * EPS * 4)


@given(seeds, st.floats(-50, 50))
def test_a_defect_in_seven_of_sixteen_cells_does_not_move_them(seed, strength):
    """They stay among the cells that it left alone; a mean would not."""
    random = torch.Generator().manual_seed(seed)
    grid, basis = 8, basis_(5, 5, seed)
    light = torch.randn(5, generator=random)
    tokens = light + 0.01 * torch.randn(1, grid, grid, 5, generator=random)
    hurt = tokens.clone().unflatten(2, (4, 2)).unflatten(1, (4, 2))
    for cell in torch.randperm(16, generator=random)[:7].tolist():
        hurt[:, cell // 4, :, cell % 4] += strength
    hurt = hurt.flatten(3, 4).flatten(1, 2)
    before, after = (coordinates([each.reshape(1, grid**2, 5)], [basis]) for each in (tokens, hurt))
    assert (after - before).abs().max() <= 0.1
    if abs(strength) > 1:
        assert (hurt.mean(dim=(0, 1, 2)) - tokens.mean(dim=(0, 1, 2))).abs().min() > 0.4


def views_(images, each, k, seed):
    """Coordinates with a falling spectrum, numbers of the photos, log scores that follow both, parts that differ; the
    first view is clean."""
    random = np.random.default_rng(seed)
    names = np.repeat(random.permutation(images) * 3, each)
    found = random.normal(size=(images * each, k)) * 0.7 ** np.arange(k) + random.normal(size=(images, k)).repeat(
        each, 0
    )
    numbers = random.normal(size=(images * each, len(NUMBERS))) + found[:, :1]
    scores = found @ random.normal(size=k) + numbers @ random.normal(size=len(NUMBERS))
    scores += 0.3 * random.normal(size=images * each) + names
    clean = np.arange(images * each) % each == 0
    return tuple(map(torch.from_numpy, (found, numbers, scores, names, clean)))


def slow_weights(found, numbers, scores, names):
    """Ridge regression on the leading principal components of deviations and on the smooth numbers', as least squares
    with a row more for each regressor."""
    x, n, y = np.array(found), np.array(numbers), np.array(scores)
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        for each in (x, n, y):
            each[rows] -= each[rows].mean(axis=0)
    values, vectors = np.linalg.eigh(x.T @ x)
    count = min(COMPONENTS, len(x) // PER_COMPONENT, int((values > 1e-12 * values.max()).sum()))
    if not count:
        return np.zeros(x.shape[1]), np.zeros(n.shape[1])
    leading = vectors[:, ::-1][:, :count]
    inside = x @ leading
    scale = np.concatenate([np.sqrt((inside**2).mean(axis=0)), np.sqrt((n**2).mean(axis=0) + STILL**2)[list(SMOOTH)]])
    told = np.concatenate([inside, n[:, list(SMOOTH)]], axis=1) / scale
    ridge = np.diag(
        [np.sqrt(RIDGE * len(x))] * count + [np.sqrt(RIDGE * len(x)) * max(1, ENOUGH / len(x))] * len(SMOOTH)
    )
    rows = np.concatenate([told, ridge])
    slopes = np.linalg.lstsq(rows, np.concatenate([y, np.zeros(told.shape[1])]), rcond=None)[0] / scale
    photo = np.zeros(n.shape[1])
    photo[list(SMOOTH)] = slopes[count:]
    return leading @ slopes[:count], photo


@given(st.integers(8, 30), st.integers(2, 9), st.integers(1, 12), seeds)
def test_it_is_ridge_regression_on_the_components_of_what_differs_within_images(images, each, k, seed):
    found, numbers, scores, names, clean = views_(images, each, k, seed)
    reading = Reading.fit(found, numbers, scores, names, clean)
    weights, photo = slow_weights(*map(np.asarray, (found, numbers, scores, names)))
    size = 1 + max(np.abs(weights).max(), np.abs(photo).max())
    np.testing.assert_allclose(reading.weights.numpy(), weights, atol=1e2 * EPS * size)
    np.testing.assert_allclose(reading.photo.numpy(), photo, atol=1e2 * EPS * size)
    expected = found.numpy() @ weights + numbers.numpy() @ photo
    expected -= expected[clean.numpy()].mean()
    largest = max(float(found.abs().max()), float(numbers.abs().max()))
    tolerance = 1e3 * EPS * (1 + largest * size * (k + len(NUMBERS)))
    told = reading.expected(found.float(), numbers.float())
    np.testing.assert_allclose(told.numpy(), expected, atol=tolerance)
    assert float(told[clean].mean()) == pytest.approx(0, abs=tolerance)


@given(seeds)
def test_what_differs_from_part_to_part_is_not_mistaken_for_light(seed):
    found, numbers, scores, names, clean = views_(12, 8, 5, seed)
    random = np.random.default_rng(seed + 1)
    apart = torch.from_numpy(random.normal(size=(40, 14)))
    still = Reading.fit(found, numbers, scores, names, clean)
    moved = Reading.fit(
        found + apart[names, :5], numbers + apart[names, 6:], scores + 10 * apart[names, 5], names, clean
    )
    torch.testing.assert_close(moved.weights, still.weights, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(moved.photo, still.photo, atol=1e-4, rtol=1e-3)


def test_what_light_does_to_a_score_is_read_away_and_more_of_it_is_not():
    """Nine tenths and more of it: the ridge keeps the rest. Beyond what the fit saw, no more is taken than it saw."""
    random = np.random.default_rng(0)
    names = torch.arange(20).repeat_interleave(8)
    light = torch.from_numpy(random.normal(size=(160, 1)))
    clean = torch.arange(160) % 8 == 0
    plain = torch.zeros(160, len(NUMBERS))
    reading = Reading.fit(light, plain, 2 * light[:, 0] + 0.1 * names, names, clean)
    assert float(reading.weights) == pytest.approx(2 / (1 + RIDGE), rel=1e-5) and reading.photo.abs().max() == 0
    far = reading.expected(torch.tensor([[-100.0], [100.0]]), plain[:2])
    seen = reading.expected(light.float(), plain)
    assert far.tolist() == pytest.approx([float(seen.min()), float(seen.max())], abs=1e-5)
    token_map = torch.rand(160, 9, generator=torch.Generator().manual_seed(0))
    read = reading(token_map, light.float(), plain)
    torch.testing.assert_close(read, token_map * torch.exp(-seen)[:, None])


def test_too_few_views_tell_nothing_of_light():
    found, numbers, scores, names, clean = views_(5, 3, 4, 0)
    reading = Reading.fit(found, numbers, scores, names, clean)
    assert reading.weights.tolist() == [0] * 4 and reading.photo.tolist() == [0] * len(NUMBERS)
    assert reading.expected(found.float(), numbers.float()).abs().max() == 0
    plain = torch.zeros(64, 4), torch.zeros(64, len(NUMBERS))
    still = Reading.fit(*plain, torch.rand(64), torch.arange(64) // 8, torch.arange(64) % 8 == 0)
    assert still.weights.tolist() == [0] * 4


def test_a_photo_s_number_with_a_step_reads_no_light():
    """Where a share of cells jumps, another runtime's last bit would."""
    found, numbers, scores, names, clean = views_(20, 8, 3, 0)
    reading = Reading.fit(found, numbers, scores, names, clean)
    steps = [NUMBERS.index(name) for name in ("flat", "dark", "bright")]
    assert reading.photo[steps].abs().max() == 0 and reading.photo[list(SMOOTH)].abs().min() > 0


@given(st.integers(1, 30), seeds)
def test_deviations_within_images_sum_to_nothing_in_each(count, seed):
    random = np.random.default_rng(seed)
    names, values = random.integers(0, 6, count), random.normal(size=(count, 2))
    found = within_images(torch.from_numpy(values), torch.from_numpy(names)).numpy()
    for name in np.unique(names):
        rows = names == name
        np.testing.assert_allclose(found[rows], values[rows] - values[rows].mean(axis=0), atol=1e-12)
