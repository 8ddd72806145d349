"""Where anomalib has a detector too, ours gives the same on the same weights."""

import pytest
import torch
from torch import nn

pytest.importorskip("anomalib.models", reason="anomalib is not installed")

from anomalib.models.image.anomaly_dino.torch_model import AnomalyDINOModel
from anomalib.models.image.dinomaly.components import CosineHardMiningLoss
from anomalib.models.image.dinomaly.torch_model import DinomalyModel
from anomalib.models.image.rad.torch_model import RadModel

from nfad.hosts import RAD, AnomalyDINO
from nfad.hosts.backbone import VitMaps
from nfad.hosts.dinomaly import Rebuilder, grouped, loose_loss
from nfad.vision.named import Identity
from nfad.vision.networks import normalisation
from nfad.vision.teacher import VitTeacher


@pytest.fixture(scope="module")
def normals(seen):
    return seen[:2]


def ours_of(extractor, blocks, last=True):
    """Our maps from anomalib's own network, and the images as it takes them."""
    network = next(
        module for module in extractor.modules() if hasattr(module, "blocks") and hasattr(module, "patch_embed")
    )
    teacher = VitTeacher(network, Identity("theirs", "vit", "untrained", ""), blocks, (1,), 64)
    mean, std = normalisation(network)
    return VitMaps(teacher, last), lambda images: (images - mean) / std


def test_rad_agrees(normals, seen):
    theirs = RadModel("vit_tiny_patch16_224", pre_trained=False, layers=[1, 3], k_image=1).train()
    backbone, prepared = ours_of(theirs.feature_extractor, (1, 3))
    with torch.no_grad():
        theirs(prepared(normals))
        theirs.build_memory_bank()
        theirs.eval()
        features = theirs._extract_features(prepared(seen))
    like = torch.nn.functional.normalize(features[-1][1], dim=-1) @ theirs.cls_banks[-1].T
    wanted = theirs._compute_patch_scores([each[0] for each in features], like.topk(1).indices, (4, 4))
    host = RAD.fit(normals, backbone, images=1)
    assert torch.allclose(host.summaries, theirs.cls_banks[-1], atol=1e-5)
    maps, _ = backbone.maps_and_summary(seen)
    units = [torch.nn.functional.normalize(layer, dim=1) for layer in maps]
    found = torch.stack([host._gaps([layer[i] for layer in units], like.topk(1).indices[i]) for i in range(len(seen))])
    assert torch.allclose(found.flatten(1), wanted, atol=1e-5) and wanted.max() > 1e-3


def test_anomalydino_agrees(normals, seen):
    theirs = AnomalyDINOModel(encoder_name="vit_small_patch14_dinov2").train()
    backbone, prepared = ours_of(theirs.feature_encoder, (11,))
    small = nn.functional.interpolate(seen, (56, 56), mode="bilinear", antialias=True)  # what ours shows a patch of 14
    with torch.no_grad():
        theirs(prepared(small[:2]))
        theirs.fit()
        theirs.eval()
        wanted = theirs(prepared(small))
    host = AnomalyDINO.fit(normals, backbone)
    assert torch.allclose(host.bank, theirs.memory_bank, atol=1e-4)
    assert torch.allclose(host.score(seen).image, wanted.pred_score.flatten(), atol=1e-4)


@pytest.fixture(scope="module")
def dinomaly():
    torch.manual_seed(0)
    return DinomalyModel("vit_small_patch14_dinov2", remove_class_token=True).eval()


def ours_with(theirs):
    """Our decoder with the weights of theirs."""
    network = Rebuilder(384, 8, 6).eval()
    names = {"attn.qkv": "qkv", "attn.proj": "proj"}
    state = {}
    for name, value in theirs.state_dict().items():
        if name.startswith(("bottleneck.0.", "decoder.")):
            name = name.replace("bottleneck.0.", "bottleneck.").replace("decoder.", "blocks.")
            for before, after in names.items():
                name = name.replace(before, after)
            state[name] = value
    network.load_state_dict(state)
    return network


def test_dinomaly_agrees(dinomaly, seen):
    backbone, prepared = ours_of(dinomaly.encoder, dinomaly.target_layers, last=False)
    small = nn.functional.interpolate(seen, (56, 56), mode="bilinear", antialias=True)
    with torch.no_grad():
        wanted, rebuilt = dinomaly.get_encoder_decoder_outputs(prepared(small))
        layers = backbone(seen)
        found = ours_with(dinomaly)(layers)
    for ours, theirs in zip([*grouped(layers), *found], [*wanted, *rebuilt], strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


def test_dinomalys_loss_and_gradient_agree():
    """Nine tenths of the positions are easy after its thousand steps."""
    generator = torch.Generator().manual_seed(0)
    wanted = [torch.randn(2, 6, 8, 8, generator=generator) for _ in range(2)]
    theirs = [torch.randn(2, 6, 8, 8, generator=generator).requires_grad_() for _ in range(2)]
    ours = [each.detach().clone().requires_grad_() for each in theirs]
    loss = CosineHardMiningLoss()(wanted, theirs, global_step=1000)
    loss.backward()
    found = loose_loss(wanted, ours, 0.9)
    found.backward()
    assert float(found.detach()) == pytest.approx(float(loss.detach()), abs=1e-6)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a.grad, b.grad, atol=1e-7)
