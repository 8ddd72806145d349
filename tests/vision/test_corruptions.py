import colorsys
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from scipy import ndimage, stats

from nfad.errors import NfadError
from nfad.vision.corruptions import CORRUPTIONS, SEVERITIES, Corruption, parse_suite, suite

SHIFTS = (0.1, 0.2, 0.3, 0.4, 0.5)
FACTORS = (0.4, 0.3, 0.2, 0.1, 0.05)
OPTICS = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))
SIGMAS = (0.08, 0.12, 0.18, 0.26, 0.38)
PIXELS = hnp.arrays(np.uint8, st.tuples(st.integers(1, 6), st.integers(1, 6), st.just(3)))
SEVERITY = st.sampled_from(SEVERITIES)


def photo(height=48, width=64, seed=0):
    """Smooth, coloured, with some pixels burnt out and some black."""
    rng = np.random.default_rng(seed)
    waves = ndimage.gaussian_filter(rng.normal(size=(height, width, 3)), (3, 3, 0), mode="wrap")
    return np.clip(128 + 100 * waves / waves.std(), 0, 255).astype(np.uint8)


def grey(pixels):
    return np.repeat(pixels[..., :1], 3, axis=2)


def levels_apart(found, wanted):
    return np.abs(found.astype(int) - wanted.astype(int)).max()


# The definitions, pixel by pixel in float64; fractions of a grey level are cut off.


def brighter(pixels, shift):
    out = np.empty_like(pixels)
    for place in np.ndindex(pixels.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixels[place] / 255))
        out[place] = np.uint8(np.array(colorsys.hsv_to_rgb(hue, saturation, min(value + shift, 1))) * 255)
    return out


def flatter(pixels, factor):
    image = pixels / 255
    mean = image.mean(axis=(0, 1))
    return np.uint8(np.clip((image - mean) * factor + mean, 0, 1) * 255)


def mirrored(place, length):
    """…2 1 0 1 2…: the outermost pixel is not repeated."""
    while length > 1 and not 0 <= place < length:
        place = -place if place < 0 else 2 * (length - 1) - place
    return place if length > 1 else 0


def blurred(pixels, radius, softness):
    """The disk, its edge softened by 3 (5) Gaussian taps that see its own grid mirrored, laid over each pixel."""
    reach, taps = (8, (-1, 0, 1)) if radius <= 8 else (radius, (-2, -1, 0, 1, 2))
    side = 2 * reach + 1
    disk = np.array([[(y - reach) ** 2 + (x - reach) ** 2 <= radius**2 for x in range(side)] for y in range(side)])
    gauss = np.exp([-(t**2) / (2 * softness**2) for t in taps])
    gauss /= gauss.sum()
    kernel = np.zeros((side, side))
    for y, x in np.ndindex(side, side):
        for i, a in zip(taps, gauss):
            for j, b in zip(taps, gauss):
                kernel[y, x] += a * b * disk[mirrored(y + i, side), mirrored(x + j, side)] / disk.sum()
    height, width, _ = pixels.shape
    out = np.zeros(pixels.shape)
    for y, x in np.ndindex(height, width):
        for i, j in np.argwhere(kernel):
            out[y, x] += kernel[i, j] * pixels[mirrored(y + i - reach, height), mirrored(x + j - reach, width)] / 255.0
    return np.uint8(np.clip(out, 0, 1) * 255)


@given(pixels=PIXELS, severity=SEVERITY)
def test_brightness_adds_to_the_value_of_hsv(pixels, severity):
    found = Corruption("brightness", severity)(pixels)
    assert levels_apart(found, brighter(pixels, SHIFTS[severity - 1])) <= 1


@given(pixels=PIXELS, severity=SEVERITY)
def test_contrast_shrinks_about_the_mean_of_each_channel(pixels, severity):
    found = Corruption("contrast", severity)(pixels)
    assert levels_apart(found, flatter(pixels, FACTORS[severity - 1])) <= 1


def test_fractions_are_cut_off_not_rounded():
    """Rounding would stay within a level but differ in half of all pixels."""
    pixels = photo()
    for severity, shift, factor in zip(SEVERITIES, SHIFTS, FACTORS):
        assert np.mean(Corruption("contrast", severity)(pixels) != flatter(pixels, factor)) < 0.01
        different = Corruption("brightness", severity)(pixels) != brighter(pixels, shift)
        assert np.mean(different) < 0.1  # + 0.2 is + 51 levels: float64 itself falls on either side of whole numbers


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 5), (13, 12)])
def test_defocus_lays_a_soft_disk_over_a_mirrored_image(severity, shape):
    pixels = np.random.default_rng(severity).integers(0, 256, (*shape, 3), dtype=np.uint8)
    found = Corruption("defocus_blur", severity)(pixels)
    assert levels_apart(found, blurred(pixels, *OPTICS[severity - 1])) <= 1


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("level", [0, 60, 128, 255])
def test_noise_has_the_distribution_of_a_clipped_normal(severity, level):
    """Each grey level's chance follows from the normal distribution: mean and spread within five standard errors."""
    found = Corruption("gaussian_noise", severity)(np.full((160, 160, 3), level, np.uint8)).ravel().astype(float)
    edges = np.append(np.arange(256), np.inf)  # level k is [k, k + 1); below 0 is 0, and 255 only what was clipped
    edges[0] = -np.inf
    values = np.arange(256)
    chance = np.diff(stats.norm.cdf(edges, loc=level, scale=255 * SIGMAS[severity - 1]))
    mean = chance @ values
    moment2, moment4 = (chance @ (values - mean) ** power for power in (2, 4))
    assert found.mean() == pytest.approx(mean, abs=5 * (moment2 / found.size) ** 0.5)
    assert found.var() == pytest.approx(moment2, abs=5 * ((moment4 - moment2**2) / found.size) ** 0.5)


def test_noise_is_not_shared_by_channels_images_seeds_or_severities():
    flat, other = np.full((64, 64, 3), 128, np.uint8), np.full((64, 64, 3), 129, np.uint8)
    noise = Corruption("gaussian_noise", 1)
    patterns = [noise(flat)[..., channel] for channel in range(3)]
    patterns += [noise(flat, 1)[..., 0], noise(other)[..., 0], Corruption("gaussian_noise", 2)(flat)[..., 0]]
    related = np.corrcoef([pattern.ravel() for pattern in patterns])
    assert np.abs(related - np.eye(6)).max() < 5 / 64  # a correlation of n independent pairs has a spread of 1 / √n


@pytest.mark.parametrize("corruption", suite(), ids=str)
def test_the_same_image_and_seed_give_the_same_in_any_memory_layout(corruption):
    pixels = photo()
    pixels.setflags(write=False)  # and it must not be written to
    kept = pixels.copy()
    found = corruption(pixels, seed=3)
    assert found.shape == pixels.shape and found.dtype == np.uint8 and found.flags.writeable
    assert np.array_equal(corruption(np.asfortranarray(pixels), seed=3), found)
    assert np.array_equal(corruption(pixels.repeat(2, axis=1)[:, ::2], seed=3), found)
    assert np.array_equal(pixels, kept)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severities_hurt_more_and_more(name):
    pixels = photo()
    hurt = [np.abs(c(pixels).astype(int) - pixels).mean() for c in suite([name])]
    assert hurt[0] > 1 and all(a < b for a, b in zip(hurt, hurt[1:]))


@pytest.mark.parametrize("corruption", suite(["brightness", "contrast", "defocus_blur"]), ids=str)
def test_grey_stays_grey_and_white_stays_white(corruption):
    assert np.array_equal(corruption(grey(photo())), grey(corruption(grey(photo()))))
    assert (corruption(np.full((20, 30, 3), 255, np.uint8)) == 255).all()


@pytest.fixture(scope="module")
def reference():
    """`imagecorruptions`, which asks setuptools for the module pkg_resources, gone from there since version 82."""
    with pytest.MonkeyPatch.context() as patch:
        stand_in = types.ModuleType("pkg_resources")
        stand_in.resource_filename = None  # needed for frost alone
        patch.setitem(sys.modules, "pkg_resources", stand_in)
        return pytest.importorskip("imagecorruptions", reason="pip install --no-deps imagecorruptions; scikit-image")


IMAGES = {
    "224²": photo(224, 224),
    "256²": photo(256, 256, seed=1),
    "wide": photo(96, 161),
    "tall and grey": grey(photo(120, 75)),
    "tiny": photo(20, 9),
    "one row": photo(1, 40),
    "noise": np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8),
    "pure colours": np.random.default_rng(0).choice(np.array([0, 255], np.uint8), (40, 40, 3)),
    "flat": np.full((33, 47, 3), 100, np.uint8),
}


@pytest.mark.parametrize("name", ["brightness", "contrast", "defocus_blur"])
@pytest.mark.parametrize("image", IMAGES)
def test_the_reference_is_never_two_levels_away(reference, image, name):
    pixels = IMAGES[image]
    for corruption in suite([name]):
        wanted = np.uint8(getattr(reference, name)(Image.fromarray(pixels), corruption.severity))
        assert levels_apart(corruption(pixels), wanted) <= 1, corruption


@pytest.mark.parametrize("severity", SEVERITIES)
def test_the_references_noise_is_spread_alike(reference, severity):
    pixels = photo(256, 256)
    np.random.seed(severity)
    wanted = np.uint8(reference.gaussian_noise(Image.fromarray(pixels), severity)).astype(float) - pixels
    found = Corruption("gaussian_noise", severity)(pixels).astype(float) - pixels
    assert stats.ks_2samp(found.ravel(), wanted.ravel()).pvalue > 1e-4
    assert found.std() == pytest.approx(wanted.std(), rel=5 / found.size**0.5)


@given(name=st.sampled_from(list(CORRUPTIONS)), severity=SEVERITY)
def test_text_and_back(name, severity):
    corruption = Corruption(name, severity)
    assert str(corruption) == f"{name}:{severity}"
    assert Corruption.parse(str(corruption)) == Corruption.parse(str(corruption).replace("_", "-")) == corruption


@pytest.mark.parametrize("text", ["", "contrast", "contrast:", ":3", "contrast:x", "contrast:3:4", "contrast: 3", " "])
def test_text_of_another_form_is_refused(text):
    with pytest.raises(NfadError, match="name:severity, e.g. contrast:3"):
        Corruption.parse(text)


def test_unknown_names_and_severities_are_refused():
    with pytest.raises(NfadError, match="brightness, contrast, defocus_blur, gaussian_noise; got 'fog'"):
        Corruption.parse("fog:1")
    for severity in (0, 6, 3.0):
        with pytest.raises(NfadError, match=f"must lie in 1..5; got {severity}"):
            Corruption("contrast", severity)


@pytest.mark.parametrize(
    "pixels",
    [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), "u1")],
)
def test_other_images_are_refused(pixels):
    with pytest.raises(NfadError, match=r"uint8 image of shape \(height, width, 3\); got"):
        Corruption("contrast", 1)(pixels)


def test_a_suite_is_every_name_at_every_severity():
    assert len(suite()) == len(set(suite())) == 20
    assert list(map(str, suite(["defocus-blur", "contrast"], [1, 5]))) == [
        "defocus_blur:1", "defocus_blur:5", "contrast:1", "contrast:5",
    ]  # fmt: skip
    assert suite([]) == ()


def test_a_suite_is_named_listed_or_both():
    assert parse_suite("all") == suite()
    assert parse_suite("visa-c") == suite(severities=(1, 2, 3))
    assert parse_suite("contrast:3, defocus-blur") == (Corruption("contrast", 3), *suite(["defocus_blur"]))
    assert parse_suite("contrast:3,contrast:3,visa-c")[0] == Corruption("contrast", 3)
    assert len(parse_suite("contrast:3,contrast:3,visa-c")) == 12
    for wrong, words in (("fog", "is one of"), ("", "is (one of|written)"), ("contrast:9", "1..5")):
        with pytest.raises(NfadError, match=words):
            parse_suite(wrong)
