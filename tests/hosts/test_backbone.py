import copy

import pytest
import torch

from nfad.errors import NfadError
from nfad.hosts import RD4AD, embedded_stages, timm_maps
from nfad.hosts.backbone import as_map, embedded_maps, maps_and_prior, square_images
from nfad.vision.teacher import load_teacher

EPS = torch.finfo(torch.float32).eps


def test_the_embedded_stages_are_the_teachers_before_it_normalises_them(images):
    stages, teacher = embedded_stages((2, 3)), embedded_maps((2, 3))
    raw, prior = stages.maps_and_prior(images)
    unit, wanted = teacher.maps_and_prior(images)
    assert [maps.shape[1:] for maps in raw] == [(40, 8, 8), (112, 4, 4)]
    # Stage 2 lies on the teacher's grid as it is; stage 3 is resized there.
    assert (torch.nn.functional.normalize(raw[0], dim=1) - unit[0]).abs().max() <= 64 * EPS
    assert float(raw[0].norm(dim=1).std()) > 0.1
    assert (prior - wanted).abs().max() <= 1e-3 and prior.shape == (8, 64)
    assert all(torch.equal(a, b) for a, b in zip(raw, stages(images)))
    assert torch.equal(wanted, load_teacher("embedded-cnn", None, (2,), (), 64).tokens_and_prior(images)[1])


def test_stages_lie_at_powers_of_two_and_come_in_the_order_asked_for(images):
    stages = embedded_stages((0, 1, 2, 3, 4))(images)
    assert [(maps.shape[1], maps.shape[2]) for maps in stages] == [(16, 32), (24, 16), (40, 8), (112, 4), (320, 2)]
    turned = embedded_stages((3, 1))(images)
    assert torch.equal(turned[0], stages[3]) and torch.equal(turned[1], stages[1])


@pytest.mark.parametrize("make", [embedded_stages, lambda: timm_maps("test_resnet", (1, 2), "untrained")])
def test_a_backbone_is_frozen_and_a_copy_of_it_can_be_trained(make, images):
    frozen = make()
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert not any(module.training for module in frozen.modules())
    before = frozen(images[:2])
    assert not any(maps.requires_grad for maps in before)
    free = copy.deepcopy(frozen).requires_grad_(True)
    assert all(torch.equal(a, b) for a, b in zip(free(images[:2]), before))
    optimizer = torch.optim.SGD(free.parameters(), 0.01)
    sum(maps.square().mean() for maps in free(images[:2])).backward()
    optimizer.step()
    assert not torch.equal(free(images[:2])[0], before[0])
    assert all(torch.equal(a, b) for a, b in zip(frozen(images[:2]), before))


@pytest.mark.parametrize(
    ("tag", "layers", "options"),
    [("test_resnet", (1, 2, 3), {}), ("vit_tiny_patch16_224", (1, 3), {"img_size": 64}), ("test_convnext", (0, 3), {})],
)
def test_a_reconstruction_takes_its_shapes_from_the_network(tag, layers, options, images):
    host = RD4AD.fit(images[:2], timm_maps(tag, layers, "untrained", **options), steps=1, depth=1)
    assert host.score(images[:1]).maps.shape == (1, 64, 64)
    assert host.features_and_prior(images[:1])[1] is None


def test_the_prior_is_given_where_the_backbone_has_one(images, backbone):
    assert maps_and_prior(backbone, images)[1] is None
    assert maps_and_prior(embedded_stages(), images)[1].shape == (8, 64)


def test_tokens_run_along_rows():
    tokens = torch.arange(18).reshape(1, 9, 2)
    assert as_map(tokens)[0, 0].tolist() == [[0, 2, 4], [6, 8, 10], [12, 14, 16]]


def test_what_is_wrong_is_said_in_a_sentence(images):
    for layers in ((), (5,), (-1, 2)):
        with pytest.raises(NfadError, match=r"layers must lie in 0..4 for the embedded CNN; got \["):
            embedded_stages(layers)
    with pytest.raises(NfadError, match="X takes square images; got 64×32: resize or crop them"):
        square_images(images[..., :32], "X")
    assert square_images(images, "X") is images
