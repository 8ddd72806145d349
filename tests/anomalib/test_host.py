import pytest
import torch

pytest.importorskip("anomalib.models", reason="anomalib is not installed")

from anomalib.models.components import KCenterGreedy
from anomalib.models.image.patchcore.torch_model import PatchcoreModel

from nfad.anomalib import AnomalibHost, Filtered, fit_glass
from nfad.errors import NfadError
from nfad.hosts import NuisanceFilter, PatchCore, score_images
from nfad.hosts.patchcore import greedy_coreset

HOSTS = ["Patchcore", "ReverseDistillation", "Stfpm", "Glass"]


@pytest.fixture(scope="module")
def normals(root):
    from anomalib.data.utils import read_image

    return torch.stack([read_image(path, as_tensor=True) for path in sorted((root / "good").iterdir())])


@pytest.fixture(scope="module")
def bare(build, normals):
    """Models with something to compare, without a training: what is asked here holds of any weights."""

    def new(name):
        torch.manual_seed(0)
        model = build(name)
        if name == "Patchcore":
            model.train().model(model.pre_processor.transform(normals))
            model.model.subsample_embedding(0.5)
        return model.eval()

    return new


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_scores_as_the_model_and_wears_the_filter_as_filtered_does(name, bare, normals, seen):
    model = bare(name)
    host = AnomalibHost.of(model, normals)
    with torch.no_grad():
        wanted = model.model(model.pre_processor.transform(seen))
    found = score_images(host, seen, batch=3)
    assert torch.equal(found.image, wanted.pred_score.flatten()) and found.maps.shape == (3, 64, 64)
    assert torch.equal(found.maps, wanted.anomaly_map.reshape(found.maps.shape))

    nuisance = NuisanceFilter.fit(host, normals, rank=4)
    worn = score_images(nuisance.wrap(host), seen, batch=3)
    assert not torch.equal(worn.image, found.image)
    none = NuisanceFilter.fit(host, normals, rank=0).wrap(host)
    assert torch.equal(score_images(none, seen, batch=3).image, found.image)
    assert torch.equal(score_images(host, seen, batch=3).image, found.image)  # the model itself was not touched

    filtered = Filtered(model, rank=4)
    filtered.learn(normals)
    for basis, other in zip(filtered.nuisance.bases, nuisance.bases):
        assert torch.equal(basis, other)
    with torch.no_grad():
        same = filtered.model(filtered.pre_processor.transform(seen))
    assert torch.allclose(same.pred_score.flatten(), worn.image, rtol=1e-4)
    with pytest.raises(NfadError, match="wears a filter already"):
        AnomalibHost.of(filtered, normals)


def test_glass_needs_normal_images(bare):
    with pytest.raises(NfadError, match="give Glass normal_images"):
        AnomalibHost.of(bare("Glass"))


def test_maps_are_laid_on_the_image(bare, normals, seen):
    host = AnomalibHost.of(bare("Patchcore"))
    large = torch.nn.functional.interpolate(seen, (96, 80))
    assert host.score(large).maps.shape == (3, 96, 80)


def rows_(count=60, channels=12, seed=0):
    return torch.randn(count, channels, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_our_coreset_is_anomalibs(seed, monkeypatch):
    rows = rows_(seed=seed)
    ours = greedy_coreset(rows, 20, seed)
    theirs = KCenterGreedy(rows, 20 / 60)
    theirs.model.fit, theirs.model.transform = (lambda _: None), (lambda rows: rows)  # as few channels need none
    monkeypatch.setattr(torch, "randint", lambda **_: ours[:1])  # the same start
    assert theirs.select_coreset_idxs() == ours.tolist()


def test_our_scores_are_anomalibs():
    bank, maps = rows_(30, seed=3), rows_(3 * 16, seed=4).reshape(3, 4, 4, 12).permute(0, 3, 1, 2)
    theirs = PatchcoreModel(["layer1"], "test_resnet", pre_trained=False, num_neighbors=5)
    theirs.memory_bank = bank
    embedding = theirs.reshape_embedding(maps)
    distances, locations = (found.reshape(3, 16) for found in theirs.nearest_neighbors(embedding, 1))
    wanted = theirs.compute_anomaly_score(distances, locations, embedding)
    ours = PatchCore(list, bank, (12,), neighbours=5).judge([maps], 64)
    assert torch.allclose(ours.image, wanted, rtol=1e-9)


def test_glass_is_trained_on_the_embedded_cnn(normals, seen):
    told, before = [], torch.random.get_rng_state()
    host = fit_glass(normals, steps=3, batch=4, progress=lambda *state: told.append(state))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert told == [("training GLASS", done, 3) for done in (1, 2, 3)]
    first, again = score_images(host, seen), score_images(fit_glass(normals, steps=3, batch=4), seen)
    assert torch.equal(first.image, again.image)
    assert first.maps.shape == (3, 64, 64) and 0 <= first.image.min() <= first.image.max() <= 1
    worn = NuisanceFilter.fit(host, normals, rank=1 / 16, pairs=4).wrap(host)
    assert not torch.equal(score_images(worn, seen).image, first.image)
    with pytest.raises(NfadError, match="batch at least 2"):
        fit_glass(normals, batch=1)
