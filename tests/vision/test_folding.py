import pytest
import torch

from nfad.vision.folding import EvenSame, folded
from nfad.vision.weights import embedded_cnn


@pytest.fixture(scope="module")
def both():
    return embedded_cnn().eval(), folded(embedded_cnn().eval())


@pytest.mark.parametrize("size", [64, 80, 112, 256])  # 80/16 is odd: the last stride pads evenly there
def test_a_folded_network_gives_the_same_numbers(both, size):
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(size)) * 2 - 1
    with torch.inference_mode():
        for theirs, ours in zip(*(network.forward_intermediates(images)[1] for network in both), strict=True):
            assert theirs.shape == ours.shape
            assert (theirs - ours).abs().max() <= 1e-4 * theirs.abs().max()


def test_no_norm_is_left_and_every_stride_is_plain(both):
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in both[1].modules())
    assert sum(isinstance(module, EvenSame) for module in both[1].modules()) == 5


@pytest.mark.parametrize("shape", [(8, 8), (9, 9), (8, 9), (10, 7)])
@pytest.mark.parametrize("number", range(5))
def test_a_wide_kernel_is_the_padded_convolution(both, shape, number):
    even = [module for module in both[1].modules() if isinstance(module, EvenSame)][number]
    images = torch.rand(2, even.conv.in_channels, *shape, generator=torch.Generator().manual_seed(number))
    torch.testing.assert_close(even(images), even.conv(images), rtol=1e-5, atol=1e-5)
