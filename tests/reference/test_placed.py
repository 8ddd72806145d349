import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.reference.placed import FLOOR, Placed

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)
sizes = st.tuples(st.integers(4, 8), st.integers(2, 6), st.integers(2, 7))


def tokens_(images, places, channels, seed):
    """A mean of its own in every place, and a spread that differs from channel to channel."""
    random = np.random.default_rng(seed)
    means, spread = random.normal(size=(1, places, channels)), 0.2 + random.random(channels)
    return torch.from_numpy(means + random.normal(size=(images, places, channels)) * spread)


def fitted(tokens):
    flat = tokens.reshape(-1, tokens.shape[-1])
    return Placed.fit(flat.T @ flat / len(flat), tokens.mean(dim=0))


def slow(normals, query):
    """Token by token: the Mahalanobis distance to the mean of its place, squared, over the channels."""
    normals, query = normals.numpy(), query.numpy()
    means = normals.mean(axis=0)
    deviations = (normals - means).reshape(-1, normals.shape[-1])
    covariance = deviations.T @ deviations / len(deviations)
    covariance += FLOOR * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    found = np.empty(query.shape[:2])
    for image in range(len(query)):
        for place in range(query.shape[1]):
            off = query[image, place] - means[place]
            found[image, place] = off @ np.linalg.solve(covariance, off) / len(off)
    return found


@given(sizes, seeds)
def test_it_is_the_mahalanobis_distance_to_the_mean_of_the_place(size, seed):
    normals, query = tokens_(*size, seed), tokens_(3, *size[1:], seed + 1)
    found, wanted = fitted(normals)(query.float()).double().numpy(), slow(normals, query)
    assert np.abs(found - wanted).max() <= 1e3 * EPS * (1 + np.abs(wanted).max())


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


def test_its_tensors_lie_as_a_file_keeps_them():
    placed = fitted(tokens_(6, 4, 5, 0))
    assert placed.white.is_contiguous() and placed.means.is_contiguous()
