from collections import OrderedDict, namedtuple

import pytest
import timm
import torch
from torch import nn

from nfad.errors import NfadError
from nfad.hosts import HookedFilter, HookedLayers, NuisanceFilter

EPS = torch.finfo(torch.float32).eps


class Returning(nn.Module):
    """The two maps of the small network in some container."""

    def __init__(self, network, container):
        super().__init__()
        self.stages, self.container = network, container

    def forward(self, images):
        shallow = self.stages[0](images)
        return self.container([shallow, self.stages[1](shallow)])


Two = namedtuple("Two", ["shallow", "deep"])
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "dict": lambda maps: {"shallow": maps[0], "deep": maps[1]},
    "ordered": lambda maps: OrderedDict(shallow=maps[0], deep=maps[1]),
    "named": lambda maps: Two(*maps),
}


def parts_of(output):
    return list(output.values()) if isinstance(output, dict) else list(output)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_an_encoders_maps_are_filtered_in_the_container_they_come_in(network, images, container):
    detector = nn.Sequential(OrderedDict(encoder=Returning(network, container)))
    layers = HookedLayers(detector, ["encoder"])
    bare = detector(images)
    assert all(torch.equal(a, b) for a, b in zip(layers.features(images), parts_of(bare)))
    light = NuisanceFilter.fit(layers, images, rank=3)
    with HookedFilter(layers, light):
        worn = detector(images)
    assert type(worn) is type(bare)
    assert all(torch.equal(a, b) for a, b in zip(parts_of(worn), light.project(parts_of(bare))))
    assert all(torch.equal(a, b) for a, b in zip(parts_of(detector(images)), parts_of(bare)))  # and off again


def test_the_light_was_in_the_layer_before_and_is_gone_after(network, images):
    layers = HookedLayers(network, ["1"], forward=lambda x: network[1](network[0](x)))
    light = NuisanceFilter.fit(layers, images[:4], rank=4)

    def moved():
        seen, dark = (network[1](network[0](view)) for view in (images[4:], images[4:] * 0.65))
        return float((seen - dark).square().sum())

    before = moved()
    with HookedFilter(layers, light):
        after = moved()
    assert before > 1 and after < 0.02 * before and moved() == before


def test_several_layers_each_take_their_own_basis(network, images):
    def forward(view):
        return network[1](network[0](view))

    layers = HookedLayers(network, ["1", "0"], forward)
    light = NuisanceFilter.fit(layers, images, rank=2)
    assert [len(basis) for basis in light.bases] == [20, 12]  # in the order they were named
    with HookedFilter(layers, light):
        inner, outer = network[0](images), forward(images)
    for maps, basis in ((inner, light.bases[1]), (outer, light.bases[0])):
        inside = torch.einsum("ck,ncyx->nkyx", basis, maps)
        assert inside.abs().max() <= 16 * len(basis) * EPS * float(maps.norm(dim=1).max())


def test_tokens_of_a_vit_are_filtered_along_their_last_dimension(images):
    torch.manual_seed(0)
    vit = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=0).eval().requires_grad_(False)
    layers = HookedLayers(vit, ["blocks.11"], unit=True)
    light = NuisanceFilter.fit(layers, images[:2], rank=4, batch=2)
    caught = []
    tap = vit.norm.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
    vit(images[2:4])
    with HookedFilter(layers, light):
        vit(images[2:4])
    tap.remove()
    bare, worn = caught
    assert worn.shape == bare.shape == (2, 17, 192)
    rounding = 16 * 192 * EPS * float(bare.norm(dim=-1).max())
    assert (bare @ light.bases[0]).abs().max() > 1e3 * rounding
    assert (worn @ light.bases[0]).abs().max() <= rounding
    assert (worn - (bare - bare @ light.bases[0] @ light.bases[0].T)).abs().max() <= rounding


def test_gradients_pass_through_the_filter_and_weights_stay(network, images):
    state = {name: value.clone() for name, value in network.state_dict().items()}
    layers = HookedLayers(network, ["0"], forward=network[0])
    with HookedFilter(layers, NuisanceFilter.fit(layers, images, rank=3)):
        view = images[:1].clone().requires_grad_()
        network[0](view).square().sum().backward()
    assert view.grad.abs().sum() > 0
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


def test_it_detaches_even_when_the_block_fails(network, images):
    layers = HookedLayers(network, ["0"], forward=network[0])
    light = NuisanceFilter.fit(layers, images, rank=3)
    bare = network[0](images)
    with pytest.raises(RuntimeError, match="on purpose"), HookedFilter(layers, light):
        raise RuntimeError("on purpose")
    assert torch.equal(network[0](images), bare)
    worn = HookedFilter(layers, light).attach()
    assert not torch.equal(network[0](images), bare)
    with pytest.raises(NfadError, match="attached already"):
        worn.attach()
    worn.detach()
    assert torch.equal(network[0](images), bare)


def test_what_is_wrong_is_said_in_a_sentence(network, images):
    detector = nn.Sequential(OrderedDict(encoder=Returning(network, list), pool=nn.Identity()))
    with pytest.raises(NfadError, match="Sequential has no layer 'encode'; similar: encoder"):
        HookedLayers(detector, ["encode"])
    for names in ("encoder", [], ["encoder", "encoder"]):
        with pytest.raises(NfadError, match="layers must be a list of different names"):
            HookedLayers(detector, names)
    with pytest.raises(NfadError, match="'pool' did not run"):
        HookedLayers(detector, ["pool"], forward=detector.encoder).features(images)
    with pytest.raises(NfadError, match="'encoder' ran twice"):
        HookedLayers(detector, ["encoder"], forward=lambda x: (detector(x), detector(x))).features(images)
    with pytest.raises(NfadError, match="'encoder' returns 2 tensors; name it alone"):
        HookedLayers(detector, ["encoder.stages.0", "encoder"]).features(images)
    flat = nn.Sequential(nn.Flatten())
    with pytest.raises(NfadError, match="'0' must return maps"):
        HookedLayers(flat, ["0"]).features(images)
    light = NuisanceFilter.fit(HookedLayers(detector, ["encoder"]), images, rank=2)
    wrong = HookedLayers(detector, ["encoder.stages.0", "encoder.stages.1", "pool"])
    with pytest.raises(NfadError, match="fitted on 2 layers; 3 are named"):
        HookedFilter(wrong, light)
    with (
        pytest.raises(NfadError, match="the host gave 1"),
        HookedFilter(HookedLayers(detector, ["encoder.stages.0"]), light),
    ):
        detector(images)
