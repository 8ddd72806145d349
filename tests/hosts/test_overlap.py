import numpy as np
import pytest
import torch
from parts import part
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts import NuisanceFilter, PatchCore, defect_overlap
from nfad.vision.defects import KINDS, with_defects


def colours(images):
    """Pooled red, green and blue, and a channel in which nothing happens."""
    pooled = F.avg_pool2d(images, 4)
    return [torch.cat([pooled, torch.zeros_like(pooled[:, :1])], dim=1)]


def axes(*channels):
    return NuisanceFilter((torch.eye(4)[:, list(channels)],), (("photometric",) * len(channels),))


@pytest.fixture(scope="module")
def images():
    """Photographs of one part, so that it is defects that tell them apart."""
    generator = torch.Generator().manual_seed(0)
    still = (torch.from_numpy(part(0)).permute(2, 0, 1) / 255).float()
    return (still + 0.02 * torch.randn(16, 3, 64, 64, generator=generator)).clamp(0, 1)


@pytest.fixture(scope="module")
def host(images):
    return PatchCore.fit(images[:4], colours, share=0.5)


def test_a_filter_that_takes_the_defects_is_warned_of(host, images):
    found = defect_overlap(host, axes(0, 1, 2), images[4:])
    assert found.share == pytest.approx(1) and found.by_layer == (found.share,)
    assert found.before > 0.7 and found.after == 0.5  # nothing left: all scores are alike
    assert found.change.high < 0
    assert found.warning.startswith("The filter would cost detections") and "lower the rank" in found.warning


@pytest.mark.parametrize("channels", [(), (3,)])
def test_a_filter_off_the_defects_costs_nothing_and_says_nothing(host, images, channels):
    found = defect_overlap(host, axes(*channels), images[4:])
    assert found.share == 0 and set(found.by_kind.values()) == {0.0}
    assert found.after == found.before and found.change.value == 0
    assert found.warning == ""
    assert found.chance == len(channels) / 4


def test_shares_are_of_the_energy_of_the_response(host, images):
    found = defect_overlap(host, axes(0), images[4:], seed=3, batch=3)
    inside, whole = [], []
    for kind in KINDS:
        copies, _ = with_defects(images[4:], kind, 3)
        responses = (host.features(copies)[0] - host.features(images[4:])[0]).double().numpy()
        inside.append(np.sum(responses[:, 0] ** 2))
        whole.append(np.sum(responses**2))
        assert found.by_kind[kind] == pytest.approx(inside[-1] / whole[-1])
    assert found.share == pytest.approx(sum(inside) / sum(whole))
    assert 0 < found.share < 1 and found.chance == 0.25


def test_it_depends_on_its_seed_and_spares_its_arguments(host, images):
    before, bank = images.clone(), host.bank.clone()
    light = NuisanceFilter.fit(host, images[:4], rank=1)
    first, again, other = (defect_overlap(host, light, images[4:], seed) for seed in (0, 0, 1))
    assert first == again != other
    assert torch.equal(images, before) and torch.equal(host.bank, bank)


def test_a_host_that_wears_the_filter_is_not_measured_again(host, images):
    light = axes(0)
    with pytest.raises(NfadError, match=r"wears the filter already.*unwrap"):
        defect_overlap(light.wrap(host), light, images)
    with pytest.raises(NfadError, match="at least one image"):
        defect_overlap(host, light, images[:0])
