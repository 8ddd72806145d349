import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from references import patchcore as slow

from nfad.errors import NfadError
from nfad.hosts import PatchCore, score_images
from nfad.hosts.backbone import embedded_maps, timm_maps
from nfad.hosts.patchcore import (
    PROJECTED,
    greedy_coreset,
    locally_pooled,
    nearest_entries,
    patches,
    rarity,
)
from nfad.vision.maps import pixel_maps

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), seeds)
def test_pooling_is_the_mean_of_nine(channels, height, width, seed):
    maps = random(2, channels, height, width, seed=seed)
    [found] = locally_pooled([maps])
    wanted = np.stack([slow.pooled(image) for image in maps.double().numpy()])
    assert np.abs(found.numpy() - wanted).max() <= 16 * EPS * float(maps.abs().max())


@given(st.integers(2, 6), st.integers(1, 5), seeds)
def test_layers_meet_on_the_first_ones_grid(grid, coarse, seed):
    first, second = random(1, 2, grid, grid, seed=seed), random(1, 3, coarse, coarse, seed=seed + 1)
    found = patches([first, second])
    wanted = np.concatenate([first[0].double().numpy(), slow.resized(second[0].double().numpy(), grid, grid)])
    assert found.shape == (1, grid * grid, 5)
    assert np.abs(found[0].numpy() - wanted.reshape(5, -1).T).max() <= 64 * EPS * float(second.abs().max() + 1)


@given(st.integers(2, 40), st.integers(1, 6), seeds)
def test_the_coreset_is_chosen_farthest_first(rows, channels, seed):
    points = random(rows, channels, seed=seed)
    count = max(1, rows // 2)
    found = greedy_coreset(points, count, seed)
    assert len(set(found.tolist())) == count
    exact = points.double().numpy()
    for place in range(1, count):
        gaps = np.min([np.linalg.norm(exact - exact[c], axis=1) for c in found[:place]], axis=0)
        # Float32 may prefer another row only where squared distances agree to rounding.
        rounding = 16 * channels * EPS * float((exact**2).sum(axis=1).max())
        assert gaps[found[place]] ** 2 >= gaps.max() ** 2 - rounding


def test_the_coreset_is_the_slow_one_and_depends_on_the_seed_alone():
    points = random(60, 5)
    found = greedy_coreset(points, 12, 3)
    assert found.tolist() == slow.farthest_points(points.double().numpy(), 12, int(found[0]))
    torch.manual_seed(1)
    assert torch.equal(found, greedy_coreset(points, 12, 3))
    assert not torch.equal(found, greedy_coreset(points, 12, 4))


def test_a_wide_coreset_is_chosen_in_a_projection_that_keeps_far_apart_what_is():
    # Ten distant clusters in many channels: the first ten chosen visit them all.
    centres = 100 * random(10, 4 * PROJECTED)
    points = (centres[:, None] + random(10, 7, 4 * PROJECTED, seed=1)).flatten(0, 1)
    found = greedy_coreset(points, 10, 0)
    assert sorted((found // 7).tolist()) == list(range(10))


def test_every_row_may_be_kept_even_when_all_are_alike():
    assert sorted(greedy_coreset(torch.ones(6, 3), 6, 0).tolist()) == list(range(6))


@given(st.integers(1, 6), st.integers(1, 12), st.integers(2, 12), seeds)
def test_scores_are_those_of_the_equations(channels, entries, neighbours, seed):
    bank, query = random(entries, channels, seed=seed), random(9, channels, seed=seed + 1)
    host = PatchCore(list, bank, (channels,), neighbours)
    maps = query.T.reshape(1, channels, 3, 3)
    found = host.judge([maps], 32)
    wanted, distances = slow.image_score(query.double().numpy(), bank.double().numpy(), neighbours)
    rounding = 64 * channels * EPS * float(query.norm(dim=1).max() + bank.norm(dim=1).max())
    assert abs(float(found.image) - wanted) <= rounding * (1 + wanted)
    wanted_map = pixel_maps(torch.from_numpy(distances)[None].float(), 32, 4.0)
    assert (found.maps - wanted_map).abs().max() <= rounding


def test_a_small_distance_between_large_features_is_not_lost():
    bank = 1000 + random(5, 8)
    distance, nearest = nearest_entries(bank[2:3] + 0.01, bank)
    assert int(nearest) == 2
    assert float(distance) == pytest.approx(0.01 * 8**0.5, rel=0.02)


def test_a_lone_nearest_entry_weighs_more_than_one_among_many():
    crowd = 0.1 * random(9, 4)
    lone = torch.cat([torch.zeros(1, 4), 5 + 0.1 * random(8, 4, seed=1)])
    patch = torch.tensor([-1.0, 0, 0, 0])
    nearest = int((crowd - patch).norm(dim=1).argmin())
    assert rarity(patch, 0, lone, 9) > rarity(patch, nearest, crowd, 9) > 0


def test_without_neighbours_the_score_is_the_largest_distance(images, backbone):
    host = PatchCore.fit(images[:4], backbone, neighbours=0, sigma=0)
    found = host.score(images)
    plain = PatchCore(backbone, host.bank, host.channels).score(images)
    for image, score in zip(patches(host.features(images)), found.image):
        assert torch.equal(score, nearest_entries(image, host.bank)[0].max())
    assert (plain.image < found.image).all()


def test_its_own_images_are_at_no_distance_from_a_whole_bank_and_a_defect_stands_out(images, backbone):
    host = PatchCore.fit(images[:4], backbone, share=1.0)
    assert host.bank.shape == (4 * 16 * 16, 32)
    assert score_images(host, images[:4]).image.max() == 0
    changed = images[:1].clone()
    changed[:, :, 30:40, 8:18] = torch.tensor([1.0, 0, 0])[:, None, None]
    found = score_images(host, changed)
    assert found.image > 0
    peak = divmod(int(found.maps[0].argmax()), 64)
    assert 26 <= peak[0] < 44 and 4 <= peak[1] < 22


def test_the_bank_is_its_share_of_the_patches_and_fitting_spares_the_images(images, backbone):
    before, told = images.clone(), []
    host = PatchCore.fit(images, backbone, share=0.05, batch=3, progress=lambda *state: told.append(state))
    assert host.bank.shape[0] == round(0.05 * 8 * 256) and host.channels == (12, 20)
    assert torch.equal(images, before)
    assert told == [("collecting patches", done, 8) for done in (3, 6, 8)] + [("choosing patches", 100, 102)]


def test_real_weights_come_with_the_installation(images):
    host = PatchCore.fit(images[:2])
    features, prior = host.features_and_prior(images[:1])
    assert host.channels == (40, 112) and prior.shape == (1, 64)
    assert all(torch.equal(a, b) for a, b in zip(features, host.features(images[:1])))
    assert score_images(host, images[2:3]).maps.shape == (1, 64, 64)


@pytest.mark.parametrize(
    ("tag", "options", "channels"),
    [("test_resnet", {}, (48, 192)), ("vit_tiny_patch16_224", {"img_size": 64}, (192, 192))],
)
def test_any_timm_network_gives_maps(images, tag, options, channels):
    first, again = (timm_maps(tag, (2, 3), "untrained", **options) for _ in range(2))
    host = PatchCore.fit(images[:2], first, share=0.5)
    assert host.channels == channels
    assert all(torch.equal(a, b) for a, b in zip(first(images[:1]), again(images[:1])))
    assert host.features_and_prior(images[:1])[1] is None


def test_a_file_of_weights_is_what_the_network_then_has(images, tmp_path):
    import timm
    from safetensors.torch import save_file

    donor = timm.create_model("test_resnet", num_classes=0).eval()
    save_file(donor.state_dict(), tmp_path / "weights.safetensors")
    maps = timm_maps("test_resnet", (1, 2), str(tmp_path / "weights.safetensors"))
    normalised = (images[:1] - 0.5) / 0.5
    with torch.no_grad():
        wanted = donor.forward_intermediates(normalised, indices=[1, 2], intermediates_only=True)
    assert all(torch.equal(a, b) for a, b in zip(maps(images[:1]), wanted))
    with pytest.raises(NfadError, match="does not hold the weights of test_efficientnet"):
        timm_maps("test_efficientnet", (1, 2), str(tmp_path / "weights.safetensors"))


def test_what_is_wrong_is_said_in_a_sentence(images, backbone):
    host = PatchCore.fit(images[:2], backbone)
    for share in (0, -0.1, 1.5):
        with pytest.raises(NfadError, match="share must lie above 0"):
            PatchCore.fit(images, backbone, share=share)
    with pytest.raises(NfadError, match="square images; got 64×32"):
        host.features(images[..., :32])
    with pytest.raises(NfadError, match=r"divide bytes by 255"):
        host.features((images * 255).byte())
    with pytest.raises(NfadError, match=r"must lie in \[0, 1\]"):
        host.features(images * 255)
    with pytest.raises(NfadError, match=r"must lie in \[0, 1\]"):
        host.features(images * torch.nan)
    with pytest.raises(NfadError, match=r"tensor \(image, 3, height, width\)"):
        host.features(images[0])
    with pytest.raises(NfadError, match="bank holds 32 channels; the features have 12"):
        host.score(images, lambda features: features[:1])
    with pytest.raises(NfadError, match=r"gives no maps of layers \[9\]"):
        timm_maps("test_resnet", (9,), "untrained")
    assert embedded_maps((2,))(images[:1])[0].shape == (1, 40, 8, 8)
