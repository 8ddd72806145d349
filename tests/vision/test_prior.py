import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfad.vision.prior import foreground_prior, foreground_tokens


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain(patches, summaries):
    maps = []
    for tokens, summary in zip(patches, summaries, strict=True):
        cosine = np.zeros(tokens.shape[:2])
        for image, token in np.ndindex(cosine.shape):
            t, s = tokens[image, token], summary[image]
            cosine[image, token] = max(0, t @ s / np.linalg.norm(t) / np.linalg.norm(s))
        low, high = cosine.min(axis=1, keepdims=True), cosine.max(axis=1, keepdims=True)
        maps.append(np.divide(cosine - low, high - low, out=np.zeros_like(cosine), where=high > low))
    return np.mean(maps, axis=0)


@given(st.integers(1, 3), st.integers(1, 8), st.integers(2, 6), st.integers(1, 3), st.integers(0, 2**31))
def test_prior_follows_its_definition_and_lies_in_zero_one(images, tokens, channels, blocks, seed):
    patches = [random(images, tokens, channels, seed=seed + i) for i in range(blocks)]
    summaries = [random(images, channels, seed=seed + 10 + i) for i in range(blocks)]
    found = foreground_prior(patches, summaries)
    ranges = []
    for tokens_, summary in zip(patches, summaries, strict=True):
        cosine = torch.cosine_similarity(tokens_, summary[:, None], dim=-1).clamp(min=0)
        ranges.append(cosine.amax(dim=1) - cosine.amin(dim=1))
    ranges = torch.stack(ranges)
    least = float(ranges[ranges > 0].min()) if (ranges > 0).any() else 1.0
    wanted = plain([p.numpy() for p in patches], [s.numpy() for s in summaries])
    assert np.abs(found.numpy() - wanted).max() <= 32 * channels * torch.finfo(torch.float64).eps / least
    assert ((found >= 0) & (found <= 1)).all()


def test_tokens_like_the_summary_are_foreground_and_opposite_ones_are_not():
    part, ground = torch.tensor([1.0, 0, 0]), torch.tensor([-1.0, 1, 0])
    patches = torch.stack([part, ground, part, ground])[None]
    assert foreground_prior([patches], [part[None]]).tolist() == [[1, 0, 1, 0]]


def test_an_image_without_contrast_has_no_foreground_and_no_nan():
    patches = torch.ones(1, 4, 3)
    assert torch.equal(foreground_prior([patches], [torch.ones(1, 3)]), torch.zeros(1, 4))


def test_the_part_is_found_on_a_busy_ground_where_one_half_fails():
    generator = torch.Generator().manual_seed(0)
    prior = 0.45 + 0.2 * torch.rand(1, 16, 16, generator=generator)  # a cutting mat: many tokens above one half
    prior[:, 4:12, 4:12] = 0.75 + 0.2 * torch.rand(1, 8, 8, generator=generator)
    part = foreground_tokens(prior.flatten(1)).reshape(16, 16)
    assert part[5:11, 5:11].all()
    assert not part[:3].any() and not part[13:].any() and not part[:, :3].any() and not part[:, 13:].any()
    assert (prior >= 0.5).float().mean() > 0.5  # and the fixed threshold takes most of the image
