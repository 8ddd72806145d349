import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.reference.judgeable import (
    COMPONENTS,
    FLAT,
    LEAST,
    NOTHING,
    PER_COMPONENT,
    RATE,
    SPAN,
    Judgeable,
    in_units,
    quarter_tokens,
)
from nfad.verdict.strange import why_strange

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)
FOLDS = torch.arange(400) % 5


def views_(count, seed, channels=30):
    """Mean tokens that vary in a few directions above all, and eight numbers of photos with long tails."""
    random = np.random.default_rng(seed)
    content = random.normal(size=(count, channels)) * 0.8 ** np.arange(channels)
    numbers = random.standard_t(5, size=(count, 8)) * 0.3
    numbers[:, FLAT] = numbers[:, FLAT].clip(max=0.9)  # no photo without anything to see
    return torch.from_numpy(content).float(), torch.from_numpy(numbers).float()


@pytest.fixture(scope="module")
def judgeable():
    return Judgeable.fit(*views_(400, 0), FOLDS)[0]


def test_content_is_the_distance_from_the_plane_through_the_normals(judgeable):
    content, (fresh, _) = views_(400, 0)[0].double().numpy(), views_(20, 1)
    mean = content.mean(axis=0)
    directions = np.linalg.svd(content - mean)[2][
        : min(COMPONENTS, len(content) // PER_COMPONENT, content.shape[1] // 4)
    ].T
    off = fresh.double().numpy() - mean
    left = off - off @ directions @ directions.T
    squares, wanted = (off**2).sum(axis=1), (left**2).sum(axis=1)
    found = judgeable.off_plane(fresh).numpy()
    assert (np.abs(found - np.log(wanted)) <= 64 * EPS * squares / wanted).all()  # one square less nearly as much


def test_a_photos_number_is_one_at_the_edge_of_what_normals_span(judgeable):
    numbers, fresh = views_(400, 0)[1].double().numpy(), views_(20, 1)[1].double().numpy()
    found = judgeable.outside(torch.from_numpy(fresh).float()).numpy()
    low, middle, high = np.quantile(numbers, [SPAN[0], 0.5, SPAN[1]], axis=0)
    low, high = np.minimum(low, middle - LEAST), np.maximum(high, middle + LEAST)
    for view in range(20):
        for k in range(8):
            off = fresh[view, k] - middle[k]
            wanted = off / (high[k] - middle[k]) if off > 0 else off / (middle[k] - low[k])
            assert found[view, k] == pytest.approx(wanted, abs=1e2 * EPS)


def test_the_larger_look_counts_in_units_of_the_limit(judgeable):
    content, numbers = views_(50, 1)
    strangeness, outside = judgeable(content, numbers)
    looks = torch.stack([judgeable.off_plane(content), judgeable.outside(numbers).abs().amax(dim=1)], dim=1)
    wanted = in_units(looks, judgeable.units) / judgeable.limit
    torch.testing.assert_close(strangeness, wanted.amax(dim=1))
    torch.testing.assert_close(outside, torch.cat([judgeable.outside(numbers), wanted[:, :1]], dim=1))


def test_a_photo_of_plain_cells_alone_is_not_judged_whatever_normals_span():
    """As of a bright part, most of whose acquisitions are burnt out; only that number says so, and it has the word."""
    content, numbers = views_(400, 0)
    numbers[:, FLAT] = torch.linspace(0, 1, 400)
    judgeable = Judgeable.fit(content, numbers, FOLDS)[0]
    plain = numbers.median(dim=0).values.expand(2, 8).clone()
    plain[:, FLAT] = torch.tensor([63 / 64, 1.0])
    (judged, refused), outside = judgeable(content.mean(dim=0).expand(2, -1), plain)
    assert float(judged) < 1 < float(refused) == NOTHING
    assert float(outside[1, FLAT]) == NOTHING and torch.equal(outside[0, FLAT + 1 :], outside[1, FLAT + 1 :])
    assert "nothing to see" in why_strange(outside[1].tolist(), float(refused))


def test_units_and_limit_are_of_views_that_the_plane_was_not_made_of():
    content, numbers = views_(400, 0)
    looks = np.empty((400, 2))
    for fold in range(5):
        inside, out = content[fold != FOLDS].double().numpy(), fold == FOLDS
        mean = inside.mean(axis=0)
        directions = np.linalg.svd(inside - mean)[2][
            : min(COMPONENTS, len(inside) // PER_COMPONENT, inside.shape[1] // 4)
        ].T
        off = content[out].double().numpy() - mean
        off -= off @ directions @ directions.T
        looks[out, 0] = np.log((off**2).sum(axis=1))
        spans = np.quantile(numbers[fold != FOLDS].double().numpy(), [SPAN[0], 0.5, SPAN[1]], axis=0)
        low, middle, high = (np.minimum(spans[0], spans[1] - LEAST), spans[1], np.maximum(spans[2], spans[1] + LEAST))
        from_middle = numbers[out].double().numpy() - middle
        sides = np.where(from_middle > 0, from_middle / (high - middle), from_middle / (middle - low))
        looks[out, 1] = np.abs(sides).max(axis=1)
    middle, edge = np.quantile(looks, [0.5, 0.98], axis=0)
    judgeable = Judgeable.fit(content, numbers, FOLDS)[0]
    np.testing.assert_allclose(judgeable.units.numpy(), np.stack([middle, edge], axis=1), rtol=1e-4)
    scaled = ((looks - middle) / (edge - middle)).max(axis=1)
    assert float(judgeable.limit) == pytest.approx(np.quantile(scaled, 1 - RATE, method="higher"), rel=1e-4)


def test_about_the_stated_share_of_fresh_normals_is_not_judged():
    shares = [
        float((Judgeable.fit(*views_(400, seed), FOLDS)[0](*views_(400, seed + 100))[0] > 1).float().mean())
        for seed in range(20)
    ]
    assert np.mean(shares) == pytest.approx(RATE, abs=4 * np.std(shares) / np.sqrt(20) + 0.01)
    own = [
        float((Judgeable.fit(*views_(400, seed), FOLDS)[0](*views_(400, seed))[0] > 1).float().mean())
        for seed in range(5)
    ]
    assert max(own) <= RATE + 1 / 400


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("side", [-1, 1])
def test_a_photo_unlike_all_normals_is_strange_and_says_why(judgeable, number, side):
    content, numbers = views_(400, 0)
    photo = numbers.median(dim=0).values[None].clone()
    ordinary = judgeable(content.mean(dim=0)[None], photo)
    assert float(ordinary[0]) <= 1 and ordinary[1][:, :8].abs().max() <= 1 and float(ordinary[1][0, 8]) <= 1
    photo[0, number] += 50 * side
    strangeness, outside = judgeable(content.mean(dim=0)[None], photo)
    assert float(strangeness) > 1
    assert int(outside[0, :8].abs().argmax()) == number and float(outside[0, number]) * side > 1


def test_content_unlike_all_normals_is_strange_and_a_change_inside_the_plane_is_not(judgeable):
    content, numbers = views_(400, 0)
    usual, photo = content.mean(dim=0), numbers.median(dim=0).values[None]
    inside = usual + 100 * judgeable.directions[:, 0]
    generator = torch.Generator().manual_seed(0)
    across = torch.randn(len(usual), generator=generator)
    across = across - judgeable.directions @ (judgeable.directions.T @ across)
    assert float(judgeable((usual + 100 * across)[None], photo)[0]) > 1
    assert float(judgeable((usual + 100 * across)[None], photo)[1][0, -1]) > 1
    assert float(judgeable(inside[None], photo)[0]) <= 1


@given(st.integers(8, 60), seeds)
def test_few_views_are_enough_for_finite_numbers(count, seed):
    content, numbers = views_(count, seed)
    folds = torch.arange(count) % 5
    judgeable = Judgeable.fit(content, numbers, folds)[0]
    assert judgeable.directions.shape[1] == min(COMPONENTS, count // PER_COMPONENT, content.shape[1] // 4)
    strangeness, outside = judgeable(*views_(5, seed + 1))
    assert torch.isfinite(strangeness).all() and torch.isfinite(outside).all()
    assert (judgeable.high > judgeable.middle).all() and (judgeable.middle > judgeable.low).all()


def test_photos_that_are_all_alike_leave_some_room():
    content, numbers = views_(40, 0)
    alike = numbers[:1].expand(40, 8).contiguous()
    judgeable = Judgeable.fit(content, alike, torch.arange(40) % 5)[0]
    nudged = alike[:1] + 0.9 * torch.tensor(LEAST)
    assert judgeable.outside(nudged).abs().max() < 1
    assert torch.isfinite(judgeable(content, alike)[0]).all()


def test_quarter_tokens_are_the_means_of_the_four_quarters_block_by_block():
    blocks = [torch.rand(3, 16, 2, generator=torch.Generator().manual_seed(0)), torch.rand(3, 16, 5)]
    wanted = []
    for block in blocks:
        square = block.numpy().reshape(3, 4, 4, -1)
        wanted += [square[:, r : r + 2, c : c + 2].mean(axis=(1, 2)) for r in (0, 2) for c in (0, 2)]
    np.testing.assert_allclose(quarter_tokens(blocks).numpy(), np.concatenate(wanted, axis=1), rtol=1e-5)
