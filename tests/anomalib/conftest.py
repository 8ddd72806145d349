"""anomalib's engine on a folder of small rendered parts; backbones are untrained instead of downloaded."""

import pytest
import timm
import torch
from parts import part, parts
from PIL import Image

pytest.importorskip("anomalib.models", reason="anomalib is not installed")  # `anomalib` alone is also this folder

from anomalib.callbacks.checkpoint import ModelCheckpoint
from anomalib.data import Folder
from anomalib.engine import Engine
from anomalib.models import Glass, Patchcore, ReverseDistillation, Stfpm
from anomalib.pre_processing import PreProcessor
from torchvision.transforms.v2 import Compose, Normalize, Resize

# Of Lightning about how anomalib uses it, and of what torch exports: nothing this package could do otherwise.
NOISE = (
    "ignore:.*does not have many workers",
    "ignore:.*have no logger configured",
    "ignore:.*module\\(s\\) in eval mode at the start of training",
    "ignore:.*Trying to infer the `batch_size`",
    "ignore:.*isinstance\\(treespec, LeafSpec\\)",
    "ignore:.*The number of training batches",
    "ignore:.*`training_step` returned `None`",
    "ignore:.*returned in `LightningModule.configure_callbacks` will override",
    "ignore:.*The dirpath has changed",
    "ignore:.*Field.*missing in batch",
    "ignore:.*No positive samples in targets",
    "ignore:.*pin_memory",
    "ignore:.*ambiguous collection",
    "ignore:.*Checkpoint directory .* exists and is not empty",
    "ignore:.*optimizer has no parameters",
    "ignore:.*configure_optimizers. returned .None.",
    "ignore:.*method of metric .* was called before the ``update``",
    "ignore::FutureWarning:timm",
)


def pytest_collection_modifyitems(items):
    here = __file__.rpartition("/")[0]
    for item in items:
        if str(item.path).startswith(here):
            for pattern in NOISE:
                item.add_marker(pytest.mark.filterwarnings(pattern))


@pytest.fixture(scope="module", autouse=True)
def untrained():
    """One seeded network for every call that would reach for the hub."""
    create = timm.create_model

    def offline(name, pretrained=False, **options):
        if not pretrained:
            return create(name, **options)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return create(name, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timm, "create_model", offline)
        yield


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("parts")
    for name, images in (("good", parts(10)), ("bad", [part(20 + i, defect=True) for i in range(4)])):
        (root / name).mkdir()
        for index, image in enumerate(images):
            Image.fromarray(image).save(root / name / f"{index}.png")
    return root


@pytest.fixture(scope="session")
def folder(root):
    def new():
        return Folder(
            name="parts", root=root, normal_dir="good", abnormal_dir="bad", num_workers=0, train_batch_size=4, seed=0
        )

    return new


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    def new(checkpoint=True):
        return Engine(
            default_root_dir=tmp_path_factory.mktemp("results"), accelerator="cpu", logger=False, max_epochs=1,
            limit_train_batches=None if checkpoint else 1,
            callbacks=None if checkpoint else [ModelCheckpoint(save_top_k=0)],
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip

    return new


@pytest.fixture(scope="session")
def build():
    """A small model by name, as a user builds it."""

    def new(name):
        normal = Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
        common = {"pre_processor": PreProcessor(Compose([Resize((64, 64), antialias=True), normal]))}
        common |= {"visualizer": False, "layers": ["layer2", "layer3"], "backbone": "test_resnet"}
        if name == "Patchcore":
            return Patchcore(**common, coreset_sampling_ratio=0.5)
        if name == "Stfpm":
            return Stfpm(**common)
        if name == "Glass":
            sizes = {"pretrain_embed_dim": 48, "target_embed_dim": 48, "discriminator_hidden": 16, "step": 2}
            return Glass(**common, **sizes, input_shape=(64, 64))
        # Its decoder is made for the ResNets of torchvision and their first three layers.
        return ReverseDistillation(**common | {"backbone": "resnet18", "layers": ["layer1", "layer2", "layer3"]})

    return new


@pytest.fixture(scope="session")
def seen():
    """Parts that were not fitted on, the last one defective."""
    images = [part(100), part(101), part(102, defect=True)]
    return torch.stack([torch.from_numpy(image).permute(2, 0, 1) / 255 for image in images]).float()
