import pytest
import torch
from hosts.watched import Watched
from hypothesis import given
from hypothesis import strategies as st
from references import operator as slow
from torch.nn import functional as F

from nfad.errors import NfadError
from nfad.hosts import HookedLayers, NuisanceFilter, PatchCore, score_images
from nfad.hosts.filter import families_of
from nfad.vision.interventions import PAPER_PHOTOMETRIC, SETS, intervene

EPS = torch.finfo(torch.float32).eps
seeds = st.integers(0, 2**31)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def basis_(channels, columns, seed=0):
    return torch.linalg.qr(random(channels, columns, seed=seed).double())[0].float()


def filter_(*bases):
    return NuisanceFilter(bases, tuple(("photometric",) * basis.shape[1] for basis in bases))


@given(st.integers(2, 9), st.data(), seeds)
def test_projection_is_that_of_every_position(channels, data, seed):
    columns = data.draw(st.integers(0, channels))
    basis, maps = basis_(channels, columns, seed), random(2, channels, 2, 3, seed=seed + 1)
    before = maps.clone()
    [found] = filter_(basis).project([maps])
    rounding = 16 * channels * EPS * float(maps.norm(dim=1).max())
    for image in range(2):
        for y in range(2):
            for x in range(3):
                wanted = slow.attenuate(maps[image, :, y, x].double().numpy(), basis.double().numpy())
                assert abs(found[image, :, y, x].double().numpy() - wanted).max() <= rounding
    assert torch.equal(maps, before)
    [again] = filter_(basis).project([found])
    assert (again - found).abs().max() <= rounding


def test_the_light_was_in_the_features_before_and_is_gone_after(host, images):
    fitted = NuisanceFilter.fit(host, images[:4], rank=3, pairs=None)
    seen, darker = images[4:], images[4:] * 0.65  # images it was not fitted on
    filtered = fitted.wrap(host)

    def left(bare, worn):
        return [float(after.square().sum() / before.square().sum()) for before, after in zip(bare, worn)]

    def light(which):
        return [after - before for after, before in zip(which.features(darker), which.features(seen))]

    def content(which):
        return [maps - maps.mean(dim=0) for maps in which.features(seen)]

    assert min(float(moved.norm()) for moved in light(host)) > 1
    for of_light, of_content in zip(left(light(host), light(filtered)), left(content(host), content(filtered))):
        assert of_light < 0.02
        assert of_content > 4 * of_light


def test_the_basis_is_the_leading_eigenvectors_of_the_uncentred_responses(host, images):
    fitted = NuisanceFilter.fit(host, images, rank=3, pairs=None)
    for layer, basis in enumerate(fitted.bases):
        moment = 0
        for transform in PAPER_PHOTOMETRIC.values():
            edited = intervene(transform, images, torch.ones(8, 1), torch.Generator())
            moved = host.features(edited)[layer] - host.features(images)[layer]
            rows = moved.permute(0, 2, 3, 1).reshape(-1, moved.shape[1]).double()
            moment = moment + rows.T @ rows
        wanted = torch.linalg.eigh(moment)
        gap = float((wanted.eigenvalues[-3] - wanted.eigenvalues[-4]) / wanted.eigenvalues[-1])
        left = basis.double() - wanted.eigenvectors[:, -3:] @ (wanted.eigenvectors[:, -3:].T @ basis.double())
        assert left.norm() <= 16 * len(basis) * EPS / gap
        assert fitted.families[layer] == ("photometric",) * 3


def test_a_host_that_compares_directions_is_fitted_on_directions(backbone, images):
    # A scale common to all channels is no nuisance to a cosine: scaled features give the same basis only there.
    def scaled(images):
        return [maps * (1 + 3 * images.mean(dim=(1, 2, 3)))[:, None, None, None] for maps in backbone(images)]

    def span(maps, unit):
        basis = NuisanceFilter.fit(Watched(maps, [], unit), images, rank=3).bases[0].double()
        return basis @ basis.T

    rounding = 1e4 * EPS
    assert (span(scaled, True) - span(backbone, True)).norm() < rounding
    assert (span(scaled, False) - span(backbone, False)).norm() > rounding


@pytest.mark.parametrize(("interventions", "sees"), [("paper", False), ("paper", True), ("wide", False)])
def test_it_takes_one_pass_and_one_an_intervention_over_the_images_used(host, images, interventions, sees):
    host.sees = sees
    told = []
    NuisanceFilter.fit(host, images, 2, interventions, pairs=5, batch=2, progress=lambda *state: told.append(state))
    used = {f: t for f, t in SETS[interventions].items() if sees or f != "background"}
    assert host.passes == 5 * (1 + sum(len(transforms) for transforms in used.values()))
    assert told == [("learning nuisance", done, 5) for done in (2, 4, 5)]


def test_the_background_family_needs_a_host_that_sees_the_part(host, images):
    blind = NuisanceFilter.fit(host, images[:2], rank=2)
    host.sees = True
    seeing = NuisanceFilter.fit(host, images[:2], rank=2)
    assert blind.families == (("photometric",) * 2,) * 2
    assert seeing.families == (("photometric", "photometric", "background", "background"),) * 2
    assert torch.equal(seeing.bases[0][:, :2], blind.bases[0])  # in this order: the second adds to the first
    assert (blind.wrap(host).features_and_prior(images)[1] == host.features_and_prior(images)[1]).all()
    host.sees = False
    with pytest.raises(NfadError, match="features_and_prior"):
        NuisanceFilter.fit(host, images[:2], rank={"photometric": 2, "background": 2})


def test_a_fit_depends_on_its_seed_and_its_images_alone(host, images):
    before = images.clone()
    host.sees = True
    first, again, other = (NuisanceFilter.fit(host, images, 3, pairs=3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(images, before)
    assert all(torch.equal(a, b) for a, b in zip(first.bases, again.bases))
    assert not torch.equal(first.bases[0], other.bases[0])


@pytest.mark.parametrize("kind", ["watched", "patchcore"])
def test_rank_0_is_the_bare_host_to_the_bit(kind, host, backbone, images):
    bare = host if kind == "watched" else PatchCore.fit(images[:4], backbone)
    none, some = (NuisanceFilter.fit(bare, images, rank) for rank in (0, 2))
    wanted, found, other = (score_images(h, images) for h in (bare, none.wrap(bare), some.wrap(bare)))
    assert torch.equal(found.image, wanted.image) and torch.equal(found.maps, wanted.maps)
    assert not torch.equal(other.image, wanted.image)


def test_rank_0_asks_for_a_single_batch(host, images):
    assert [basis.shape for basis in NuisanceFilter.fit(host, images, 0, batch=2).bases] == [(12, 0), (20, 0)]
    assert host.passes == 2


@given(st.integers(1, 3), seeds)
def test_a_defect_outside_the_subspace_keeps_its_score_and_one_inside_loses_it(columns, seed):
    basis, bank = basis_(6, columns, seed), random(5, 6, seed=seed + 1)
    bare = PatchCore(list, bank, (6,), neighbours=0, sigma=0)
    worn = filter_(basis).wrap(bare)
    normal = bank[torch.arange(16) % 5].T.reshape(1, 6, 4, 4)
    inside, outside = basis[:, 0], random(6, seed=seed + 2)
    outside = F.normalize(outside - basis @ (basis.T @ outside), dim=0)
    rounding = 64 * 6 * EPS * float(bank.norm(dim=1).max() + 1)
    small = 0.01 * float(torch.pdist(bank - bank @ basis @ basis.T).min())  # so that the nearest entry stays it

    def scores(features):
        filtered = worn.prepared.judge(worn.filter.project(features), 32)
        return float(bare.judge(features, 32).image), float(filtered.image)

    for direction, kept in ((inside, 0.0), (outside, 1.0)):
        defect = normal.clone()
        defect[0, :, 1, 2] += small * direction
        before, after = scores([defect])
        assert before == pytest.approx(small, abs=rounding)
        assert after == pytest.approx(kept * small, abs=rounding)


def test_a_filtered_bank_finds_filtered_normals_at_no_distance(images, backbone):
    bare = PatchCore.fit(images[:3], backbone, share=1.0)
    fitted = NuisanceFilter.fit(bare, images[:3], rank=3)
    worn = fitted.wrap(bare)
    scale = float(bare.bank.norm(dim=1).max())
    assert score_images(worn, images[:3]).image.max() <= 64 * 20 * EPS * scale
    # Filtered features against the bare bank would be far off: the bank must be filtered too.
    assert bare.score(images[:3], fitted.project).image.min() > 1e3 * EPS * scale


def test_a_new_lamp_moves_the_filtered_scores_less(images, backbone):
    bare = PatchCore.fit(images[:5], backbone, neighbours=0)
    worn = NuisanceFilter.fit(bare, images[:5], rank=5).wrap(bare)

    def rise(host):
        clean, dark = (score_images(host, view).image for view in (images[5:], images[5:] * 0.6))
        return float((dark / clean).mean())

    assert rise(bare) > 1.5
    assert rise(worn) < 0.5 * rise(bare)


def test_unwrapping_gives_the_very_host_back_unchanged(images, backbone):
    bare = PatchCore.fit(images[:3], backbone)
    bank = bare.bank.clone()
    one, two = (NuisanceFilter.fit(bare, images, rank) for rank in (2, {"photometric": 4}))
    worn = two.wrap(one.wrap(bare))
    assert worn.unwrap().unwrap() is bare and worn.unwrap().filter is one
    assert torch.equal(bare.bank, bank) and worn.unit is bare.unit
    once, twice, both = (score_images(h, images) for h in (one.wrap(bare), one.wrap(one.wrap(bare)), worn))
    rounding = 1e3 * EPS * float(bank.norm(dim=1).max())
    assert (once.image - twice.image).abs().max() <= rounding  # a projection twice is the projection
    assert (once.image - both.image).abs().max() > rounding
    # The first two columns are among the four, so wearing both is wearing the larger.
    assert (both.image - score_images(two.wrap(bare), images).image).abs().max() <= rounding


def test_a_filter_comes_back_from_disk_as_it_was(host, images, tmp_path):
    host.sees = True
    fitted = NuisanceFilter.fit(host, images, rank=2)
    path = fitted.save(tmp_path / "light.safetensors")
    found = NuisanceFilter.load(path)
    assert all(torch.equal(a, b) for a, b in zip(found.bases, fitted.bases))
    assert (found.families, found.interventions) == (fitted.families, fitted.interventions)
    none = NuisanceFilter.load(NuisanceFilter.fit(host, images, rank=0).save(tmp_path / "none.safetensors"))
    assert [basis.shape for basis in none.bases] == [(12, 0), (20, 0)]


def test_a_file_that_is_no_filter_is_refused(host, images, tmp_path):
    from safetensors.torch import save_file

    with pytest.raises(NfadError, match="cannot be read as a filter"):
        NuisanceFilter.load(tmp_path / "missing.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"12")
    with pytest.raises(NfadError, match="cannot be read as a filter"):
        NuisanceFilter.load(tmp_path / "cut.safetensors")
    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(NfadError, match="is not a filter this nfad reads"):
        NuisanceFilter.load(tmp_path / "other.safetensors")
    lacking = NuisanceFilter((basis_(5, 2),), (("photometric",) * 2,) * 2).save(tmp_path / "lacking.safetensors")
    with pytest.raises(NfadError, match="holds 1 bases for 2 layers"):
        NuisanceFilter.load(lacking)
    bent = filter_(basis_(5, 2) * 1.1).save(tmp_path / "bent.safetensors")
    with pytest.raises(NfadError, match="not orthonormal"):
        NuisanceFilter.load(bent)


def test_what_is_wrong_is_said_in_a_sentence(host, images):
    fitted = NuisanceFilter.fit(host, images, rank=2)
    with pytest.raises(NfadError, match=r"HookedLayers is no host: .* use HookedFilter"):
        fitted.wrap(HookedLayers(torch.nn.Sequential(torch.nn.Identity()), ["0"]))
    with pytest.raises(NfadError, match="fitted on 2 layers; the host gave 1"):
        fitted.project(host.features(images)[:1])
    with pytest.raises(NfadError, match="12 channels at layer 0; the host gave 20"):
        fitted.project(host.features(images)[::-1])
    with pytest.raises(NfadError, match=r"layer 1 must be a float map .* torch.int64 \(8, 20, 8, 8\)"):
        fitted.project([host.features(images)[0], host.features(images)[1].long()])
    with pytest.raises(NfadError, match=r"layer 0 must be a float map"):
        fitted.project([maps.flatten(2) for maps in host.features(images)])
    with pytest.raises(NfadError, match="layer 0: rank of family 'photometric' must lie in 0..12"):
        NuisanceFilter.fit(host, images, rank=16)
    with pytest.raises(NfadError, match="takes all 12 channels of layer 0"):
        NuisanceFilter.fit(host, images, rank=12)
    with pytest.raises(NfadError, match="interventions must be one of paper, wide; got 'none'"):
        NuisanceFilter.fit(host, images, interventions="none")
    with pytest.raises(NfadError, match="rank names family 'sensor'; the paper set has photometric, background"):
        NuisanceFilter.fit(host, images, rank={"sensor": 2})
    with pytest.raises(NfadError, match="pairs must be at least 1"):
        NuisanceFilter.fit(host, images, pairs=0)
    with pytest.raises(NfadError, match="at least one image"):
        NuisanceFilter.fit(host, images[:0])
    with pytest.raises(NfadError, match="layer 0 are not all finite"):
        NuisanceFilter.fit(Watched(lambda x: [host.backbone(x)[0] / 0], []), images, rank=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_keep_their_dtype(dtype):
    maps = random(1, 6, 2, 2).to(dtype)
    [found] = filter_(basis_(6, 2)).project([maps])
    assert found.dtype == dtype


def test_families_in_use_are_those_given_a_rank():
    assert list(families_of("wide", {"sensor": 0.1, "photometric": 0}, True)) == ["sensor"]
    assert list(families_of("paper", 1, True)) == ["photometric", "background"]
    assert list(families_of("wide", 2, False)) == ["photometric", "sensor"]


def test_several_ranks_are_learned_in_one_look_and_are_those_of_a_look_each(host, images):
    ranks = (2, {"photometric": 3})
    together = NuisanceFilter.fit_ranks(host, images, ranks, pairs=3, batch=2)
    looked, host.passes = host.passes, 0
    for rank, found in zip(ranks, together, strict=True):
        alone = NuisanceFilter.fit(host, images, rank, pairs=3, batch=2)
        assert found.families == alone.families
        assert all(torch.equal(one, other) for one, other in zip(found.bases, alone.bases, strict=True))
    assert host.passes == 2 * looked
    with pytest.raises(NfadError, match="must be of the same families"):
        NuisanceFilter.fit_ranks(host, images, (2, {"photometric": 0}), pairs=3)
