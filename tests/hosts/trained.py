"""What every trained host must do, and random maps to try its parts with."""

import torch

from nfad.hosts import score_images


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def depends_on_its_seed_alone(fit, images):
    """The same seed gives the same host, another one another, and the caller's random numbers are left alone."""
    torch.manual_seed(7)
    first, again, other = (fit(seed) for seed in (1, 1, 2))
    here = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(here, torch.rand(1))
    assert first.losses == again.losses != other.losses
    assert torch.equal(first.score(images).maps, again.score(images).maps)


def finds_a_defect(host, images, leftmost=2):
    """Among normals it was not fitted on, at its place; of a coarse grid's border cells the map is flat."""
    changed = images[:1].clone()
    changed[:, :, 30:42, 8:20] = torch.tensor([1.0, 0, 0])[:, None, None]
    found = score_images(host, torch.cat([images, changed]))
    assert found.image[-1] > found.image[:-1].max()
    peak = divmod(int(found.maps[-1].argmax()), 64)
    assert 24 <= peak[0] < 48 and leftmost <= peak[1] < 26


def is_frozen(network):
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert not any(module.training for module in network.modules())
