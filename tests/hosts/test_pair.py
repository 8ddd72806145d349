import pytest
import torch
from parts import part, parts, tiny

from nfad import Detector, NfadError
from nfad.hosts import NuisanceFilter, Pair, score_images

EPS = torch.finfo(torch.float32).eps
NORMALS = parts(12)
VARIANTS = [
    {"reference": "linear", "common_mode": False},
    {"reference": "linear", "common_mode": False, "foreground": True},
    {"reference": "nearest", "common_mode": False},
    {"reference": "student", "common_mode": False},
]


def fitted(**changes):
    return Detector.fit(NORMALS, tiny(order="fit-then-filter", acquisitions=0, **changes))


@pytest.fixture(scope="module")
def detector():
    return fitted(reference="linear", common_mode=False)


def unscaled(detector, scores, name):
    """The detector's own read-out before it was z-scored."""
    mean, spread = detector.normal_maps[name]
    image = scores.score if name == "detection" else scores.unfiltered_score
    return image * spread + mean, scores.maps[name] * spread + mean


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_bare_it_is_the_control_and_filtered_the_detection_read_out(variant, images):
    detector = fitted(**variant)
    bare = Pair(detector)
    views = torch.cat([images[:3], torch.from_numpy(part(9, defect=True)).permute(2, 0, 1)[None] / 255])
    own = detector.predict_tensor(views)
    for host, name in ((bare, "control"), (bare.own_filter().wrap(bare), "detection")):
        image, maps = unscaled(detector, own, name)
        found = score_images(host, views)
        # A cosine near 1 keeps the rounding of its inputs' squared norms, smaller off the subspace.
        rounding = 1e3 * EPS
        assert (found.maps - maps).abs().max() <= rounding
        assert (found.image - image).abs().max() <= rounding
    control, detection = (unscaled(detector, own, name)[1] for name in ("control", "detection"))
    assert (control - detection).abs().max() > 1e4 * EPS  # and the two do differ


def test_a_detector_of_the_other_order_gives_the_same_pair(detector, images):
    turned = tiny(order="filter-then-fit", reference="linear", common_mode=False, acquisitions=0)
    other = Pair(Detector.fit(NORMALS, turned))
    bare = Pair(detector)
    rounding = 1e3 * EPS
    for one, two in ((bare, other), (bare.own_filter().wrap(bare), other.own_filter().wrap(other))):
        assert (one.score(images).maps - two.score(images).maps).abs().max() <= rounding


def test_rank_0_is_the_bare_host_to_the_bit_and_a_fitted_filter_another(detector, images):
    bare = Pair(detector)
    none, some = (NuisanceFilter.fit(bare, images[:3], rank).wrap(bare) for rank in (0, 4))
    wanted, found, other = (score_images(host, images) for host in (bare, none, some))
    assert torch.equal(found.image, wanted.image) and torch.equal(found.maps, wanted.maps)
    assert not torch.equal(other.image, wanted.image)
    assert set(some.filter.families[0]) == {"photometric", "background"}  # it sees the part
    assert some.unwrap() is bare and bare.prepare(some.filter.project) is bare


def test_features_are_the_teachers_tokens_as_maps(detector, images):
    bare = Pair(detector)
    for maps, tokens in zip(bare.features(images), detector.teacher.tokens(images)):
        assert maps.shape == (8, 192, 4, 4)
        assert torch.equal(maps[:, :, 1, 2], tokens[:, 6])


def test_what_is_wrong_is_said_in_a_sentence(detector, images):
    with pytest.raises(NfadError, match=r"fitted at 64²; got images of 32²"):
        Pair(detector).score(images[..., :32, :32])
    with pytest.raises(NfadError, match="Pair takes square images"):
        Pair(detector).features(images[..., :32])
