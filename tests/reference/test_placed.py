import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.reference.placed import FLOOR, MOST, OWN, PER_CHANNEL, Placed, by_place, by_region, regions_a_side

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)
sizes = st.tuples(st.integers(4, 8), st.integers(2, 6), st.integers(2, 7))


def tokens_(images, places, channels, seed):
    """A mean of its own in every place, and a spread that differs from channel to channel."""
    random = np.random.default_rng(seed)
    means, spread = random.normal(size=(1, places, channels)), 0.2 + random.random(channels)
    return torch.from_numpy(means + random.normal(size=(images, places, channels)) * spread)


def fitted(tokens, regions=1):
    grouped = by_region(tokens, regions).flatten(1, 2)
    return Placed.fit(grouped.mT @ grouped / grouped.shape[1], tokens.mean(dim=0))


def slow(normals, query, side=1):
    """Token by token: the Mahalanobis distance to the mean of its place, squared, over the channels; the covariance is
    in part that of its square of the grid, of which there are `side` a side, and in part that of all."""
    normals, query = normals.numpy(), query.numpy()
    means, grid = normals.mean(axis=0), round(normals.shape[1] ** 0.5)

    def covariance(places):
        deviations = (normals - means)[:, places].reshape(-1, normals.shape[-1])
        return deviations.T @ deviations / len(deviations)

    def region(place):
        return (place // grid) // (grid // side), (place % grid) // (grid // side)

    places = range(query.shape[1])
    together = covariance(list(places))
    floor = FLOOR * np.trace(together) / len(together) * np.eye(len(together))
    found = np.empty(query.shape[:2])
    for image in range(len(query)):
        for place in places:
            own = together if side == 1 else covariance([other for other in places if region(other) == region(place)])
            off = query[image, place] - means[place]
            found[image, place] = off @ np.linalg.solve(OWN * own + (1 - OWN) * together + floor, off) / len(off)
    return found


def are_close(found, wanted):
    return np.abs(found.double().numpy() - wanted).max() <= 1e3 * EPS * (1 + np.abs(wanted).max())


@given(sizes, seeds)
def test_it_is_the_mahalanobis_distance_to_the_mean_of_the_place(size, seed):
    normals, query = tokens_(*size, seed), tokens_(3, *size[1:], seed + 1)
    assert are_close(fitted(normals)(query.float()), slow(normals, query))


@given(st.sampled_from([(2, 2), (4, 2), (6, 3), (6, 2), (3, 3)]), st.integers(2, 5), seeds)
def test_a_region_has_a_covariance_of_its_own(shape, channels, seed):
    grid, side = shape
    normals, query = (tokens_(count, grid * grid, channels, seed + count) for count in (12, 3))
    normals = normals * (1 + torch.arange(grid * grid) / grid)[:, None]
    assert are_close(fitted(normals, side * side)(query.float()), slow(normals, query, side))


def test_what_is_ordinary_in_one_region_stands_out_in_a_quiet_one():
    random = torch.Generator().manual_seed(0)
    normals = 0.1 * torch.randn(200, 16, 3, generator=random, dtype=torch.float64)
    loud = by_place(torch.tensor([1.0, 0, 0, 0]).reshape(4, 1, 1, 1).expand(4, 1, 4, 1))[0, :, 0].bool()
    normals[:, loud] *= 10
    step = torch.ones(1, 16, 3)
    together, apart = fitted(normals)(step)[0], fitted(normals, 4)(step)[0]
    assert float(apart[~loud].min()) > 2 * float(together[~loud].max())
    assert float(apart[loud].max()) < float(together[loud].min())


@given(st.sampled_from([(2, 1), (2, 2), (6, 3), (8, 4)]), st.integers(1, 3), st.integers(1, 4), seeds)
def test_regions_are_squares_of_the_grid_and_can_be_put_together_again(shape, images, channels, seed):
    grid, side = shape
    tokens = torch.randn(images, grid * grid, channels, generator=torch.Generator().manual_seed(seed))
    regions = by_region(tokens, side * side)
    assert torch.equal(by_place(regions), tokens)
    step = grid // side
    corner = tokens.unflatten(1, (grid, grid))[:, -step:, -step:].flatten(1, 2)
    assert torch.equal(regions[-1], corner)


@given(st.integers(1, 64), st.integers(1, 1000), st.integers(1, 2000))
def test_as_many_regions_as_have_tokens_enough(grid, channels, views):
    side = regions_a_side(grid, channels, views)
    assert grid % side == 0 and side <= MOST
    assert side == 1 or views * (grid // side) ** 2 >= PER_CHANNEL * channels
    more = [other for other in range(side + 1, MOST + 1) if grid % other == 0]
    assert all(views * (grid // other) ** 2 < PER_CHANNEL * channels for other in more)


@given(seeds)
def test_a_normal_has_about_one_and_a_token_out_of_its_place_more(seed):
    normals = tokens_(60, 4, 5, seed) * 0.3
    placed = fitted(normals)
    fresh = normals[:30]
    assert 0.8 < float(placed(fresh.float()).mean()) < 1.2
    means = normals.mean(dim=0)
    if float((means[0] - means[1]).norm()) > 1:
        swapped = fresh[:, [1, 0, 2, 3]]
        assert float(placed(swapped.float())[:, :2].mean()) > float(placed(fresh.float())[:, :2].mean())


def test_a_direction_that_acquisitions_move_counts_less():
    """The same deviation, along what moves and across."""
    random = torch.Generator().manual_seed(0)
    normals = 0.1 * torch.randn(200, 4, 6, generator=random, dtype=torch.float64)
    normals[..., 0] += 3 * torch.randn(200, 1, generator=random, dtype=torch.float64)
    step = torch.eye(6)
    along, across = (fitted(normals)(step[axis].expand(1, 4, 6)).mean() for axis in (0, 1))
    assert float(across) > 10 * float(along)


def test_what_never_varies_does_not_count_for_everything():
    normals = torch.zeros(10, 3, 4, dtype=torch.float64)
    normals[..., 0] = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    query = torch.full((1, 3, 4), 0.1)
    assert float(fitted(normals)(query).max()) < 100
    still = torch.ones(10, 3, 4, dtype=torch.float64)
    assert torch.isfinite(fitted(still)(still.float())).all()


@given(seeds, st.floats(-12, 0))
def test_sums_in_float32_of_normals_that_hardly_vary_are_taken(seed, log_spread):
    """Their covariance is rounding alone, and might have directions of less than no variance."""
    tokens = torch.nn.functional.normalize(1 + 10**log_spread * tokens_(20, 16, 40, seed), dim=-1).float()
    grouped = by_region(tokens, 4).flatten(1, 2)
    second = torch.zeros(4, 40, 40)
    for part in grouped.split(7, dim=1):
        second.baddbmm_(part.mT, part)
    placed = Placed.fit(second.double() / grouped.shape[1], tokens.double().mean(dim=0))
    assert torch.isfinite(placed.white).all() and torch.isfinite(placed(tokens)).all()


def test_its_tensors_lie_as_a_file_keeps_them():
    placed = fitted(tokens_(6, 4, 5, 0))
    assert placed.white.is_contiguous() and placed.means.is_contiguous()


def moments_(channels, seed, rank=None):
    """A second moment, of fewer directions than channels if asked for."""
    random = np.random.default_rng(seed)
    drawn = random.normal(size=(rank or channels, channels))
    return torch.from_numpy(drawn.T @ drawn)


def slow_ratio(covariance, strangest, flaws, off):
    """The log likelihood ratio by its definition, covariances as they are, not whitened."""

    def mean_over_directions(moments, by):
        return np.trace(np.linalg.solve(by, moments)) / len(by)

    spread = (covariance + strangest / mean_over_directions(strangest, covariance)) / 2
    flaws = flaws / mean_over_directions(flaws, covariance) + FLOOR * covariance
    flaws = flaws / mean_over_directions(flaws, spread)
    ratio = np.linalg.inv(spread) - np.linalg.inv(spread + flaws)
    return off @ ratio @ off / np.trace(spread @ ratio)


@given(st.sampled_from([1, 4]), st.integers(2, 6), st.integers(1, 6), seeds)
def test_telling_is_the_likelihood_ratio_of_flaws_to_the_strangest_normals(regions, channels, rank, seed):
    normals, query = tokens_(60, 16, channels, seed), tokens_(2, 16, channels, seed + 1)
    strangest, flaws = moments_(channels, seed + 2), moments_(channels, seed + 3, rank)
    placed = fitted(normals, regions)
    found = placed.telling(strangest, flaws)(query.float())
    inverse = (placed.white.double() @ placed.white.double().mT).numpy()
    region = by_place(torch.arange(float(regions)).reshape(regions, 1, 1, 1).expand(-1, 1, 16 // regions, 1))[0, :, 0]
    wanted = [
        [
            slow_ratio(np.linalg.inv(inverse[int(region[place])]), strangest.numpy(), flaws.numpy(), off)
            for place, off in enumerate(view)
        ]
        for view in (query - normals.mean(dim=0)).numpy()
    ]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-3, atol=2e-3)


def test_what_flaws_move_counts_more_and_what_normals_have_at_their_strangest_less():
    normals = tokens_(200, 4, 6, 0)
    normals = (normals - normals.mean(dim=0)) / normals.std(dim=(0, 1))
    plain, axis = fitted(normals), torch.eye(6, dtype=torch.float64)
    strangest = torch.eye(6, dtype=torch.float64) + 20 * torch.outer(axis[0], axis[0])
    flaws = 0.1 * torch.eye(6, dtype=torch.float64) + torch.outer(axis[1], axis[1])
    told = plain.telling(strangest, flaws)
    odd, flaw, other = (
        float(told(3 * each.expand(1, 4, 6).float()).mean() / plain(3 * each.expand(1, 4, 6).float()).mean())
        for each in axis[:3]
    )
    assert flaw > 1.5 * other > 1.5 * odd


@given(seeds)
def test_where_no_flaw_shows_all_deviations_count_alike(seed):
    placed, none = fitted(tokens_(60, 4, 5, seed)), torch.zeros(5, 5, dtype=torch.float64)
    query = tokens_(3, 4, 5, seed + 1).float()
    covariance = torch.linalg.inv(placed.white[0].double() @ placed.white[0].double().mT)
    found = placed.telling(covariance, none)(query)
    torch.testing.assert_close(found, placed(query), rtol=1e-3, atol=1e-3)


@given(seeds)
def test_the_strangest_tokens_count_by_their_share(seed):
    """None: as if they were like all others."""
    placed, flaws = fitted(tokens_(60, 4, 5, seed)), moments_(5, seed + 1)
    covariance = torch.linalg.inv(placed.white[0].double() @ placed.white[0].double().mT)
    query, odd = tokens_(3, 4, 5, seed + 2).float(), moments_(5, seed + 3)
    torch.testing.assert_close(
        placed.telling(odd, flaws, share=0)(query), placed.telling(covariance, flaws)(query), rtol=1e-3, atol=1e-3
    )
    assert not torch.allclose(placed.telling(odd, flaws, share=0.1)(query), placed.telling(odd, flaws)(query))
