"""A CNN in fewer and plainer steps for the same numbers, as a CPU likes it: torch runs each step over memory anew."""

from __future__ import annotations

from itertools import pairwise

import torch
from timm.layers.conv2d_same import Conv2dSame
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from nfad.vision.networks import Cnn


class EvenSame(nn.Module):
    """A convolution of stride 2 that TensorFlow pads by one more behind than before, where a side is even: the row and
    the column too many are zeros of the kernel, in place of a padded copy of its input."""

    wide: Tensor

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv
        self.register_buffer("wide", F.pad(conv.weight.detach(), (1, 0, 1, 0)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        conv = self.conv
        if torch.compiler.is_exporting() or x.shape[-1] % 2 or x.shape[-2] % 2:  # other runtimes pad at no cost
            return conv(x)
        return F.conv2d(x, self.wide, conv.bias, conv.stride, (conv.kernel_size[0] - 1) // 2, 1, conv.groups)


def folded(network: Cnn) -> Cnn:
    """An EfficientNet of timm's, in eval mode, changed in place: batch norms become part of the convolutions before."""
    for parent in list(network.modules()):
        for (name, conv), (after, norm) in pairwise(list(parent.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                fused = fuse_conv_bn_eval(conv, norm)
                plain = isinstance(fused, Conv2dSame) and fused.stride == (2, 2)
                setattr(parent, name, EvenSame(fused) if plain else fused)
                setattr(parent, after, getattr(norm, "act", nn.Identity()))
    return network
