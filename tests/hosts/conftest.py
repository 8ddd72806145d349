import pytest
import torch
from hosts.watched import Watched
from parts import part
from torch import nn


@pytest.fixture(scope="session")
def images():
    return torch.stack([torch.from_numpy(part(i)).permute(2, 0, 1) / 255 for i in range(8)]).float()


@pytest.fixture(scope="session")
def network():
    """A random small conv net: two layers, 12 and 20 channels."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = nn.Sequential(nn.Conv2d(3, 12, 4, 4), nn.LeakyReLU(0.2))
        second = nn.Sequential(nn.Conv2d(12, 20, 2, 2), nn.LeakyReLU(0.2))
    return nn.ModuleList([first, second]).eval().requires_grad_(False)


@pytest.fixture(scope="session")
def backbone(network):
    def maps(images):
        shallow = network[0](images)
        return [shallow, network[1](shallow)]

    return maps


@pytest.fixture
def host(backbone, images):
    return Watched(backbone, [maps.mean(dim=0, keepdim=True) for maps in backbone(images)])
