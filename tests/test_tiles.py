"""A fit of large views in tiles: in torch, from a file and exported; and that it stays small."""

import numpy as np
import pytest
import torch
from commands import nfad
from parts import part, tiny
from PIL import Image

from nfad import Config, Detector
from nfad.deploy import Runtime
from nfad.deploy.export import Options, export
from nfad.errors import NfadError
from nfad.fitting import tokens as token_cache
from nfad.fitting.crossfit import FOLDS, FoldMoments
from nfad.fitting.views import ViewCache
from nfad.reference.nearest import Nearest
from nfad.reference.placed import COARSE, FINE, Placed, by_square, by_token, places_a_side
from nfad.vision.tiles import tiled_teacher

SIDE = 160
LARGE = {"size": 128, "tile": 64, "evidence": "placed"}


def photos(count):
    return [part(seed, SIDE) for seed in range(count)]


@pytest.fixture(scope="module")
def detector():
    return Detector.fit(photos(12), tiny(**LARGE))


def numbers(prediction):
    return [prediction.score, prediction.unfiltered_score, prediction.nuisance_fraction, prediction.strangeness]


def test_a_file_keeps_the_tiles(detector, tmp_path):
    loaded = Detector.load(detector.save(tmp_path / "m.nfad"))
    assert loaded.config.tile == 64 and loaded.teacher.count == detector.teacher.count == 9
    image = part(40, SIDE, defect=True)
    wanted = detector.predict(image)
    assert numbers(loaded.predict(image)) == numbers(wanted)
    assert wanted.map.shape == (128, 128)


def test_info_tells_of_the_tiles(detector, tmp_path):
    assert "128² in tiles of 64²" in nfad("info", detector.save(tmp_path / "m.nfad")).stdout


def test_views_one_by_one_are_views_together(detector):
    images = [part(seed, SIDE) for seed in (40, 41)]
    together = detector.predict(images)
    for image, wanted in zip(images, together, strict=True):
        np.testing.assert_allclose(numbers(detector.predict(image)), numbers(wanted), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("options", [Options("onnx"), Options("openvino"), Options("onnx", "fp16", dynamic_batch=True)])
def test_an_export_looks_in_tiles_too(detector, tmp_path, options):
    _, parity = export(detector.save(tmp_path / "m.nfad"), tmp_path / "out", options)
    assert parity.passed and parity.flips == 0
    image = part(42, SIDE, defect=True)
    found, wanted = Runtime.load(tmp_path / "out").predict(image), detector.predict(image)
    assert found.verdict == wanted.verdict
    np.testing.assert_allclose(numbers(found), numbers(wanted), rtol=0.05 if options.precision == "fp16" else 1e-3)


def test_eight_bits_are_refused_in_a_sentence(detector, tmp_path):
    model = detector.save(tmp_path / "m.nfad")
    Image.fromarray(part(0, SIDE)).save(tmp_path / "good.png")
    with pytest.raises(NfadError, match="int8 is not to be had of a model that looks in tiles"):
        export(model, tmp_path / "out", Options(precision="int8"), [tmp_path / "good.png"])


def test_a_tile_as_large_as_the_view_changes_nothing():
    whole, one = (Detector.fit(photos(12), tiny(**settings)) for settings in ({}, {"tile": 64}))
    image = part(43, SIDE, defect=True)
    assert numbers(whole.predict(image)) == numbers(one.predict(image)) and whole.threshold == one.threshold


@pytest.mark.parametrize("tile", [256, 512])
def test_a_score_is_of_as_many_pixels_as_in_a_view_of_256(tile):
    for size in (1024, 3072):
        config = Config(size=size, tile=tile)
        assert config.scored_fraction * size**2 == pytest.approx(config.top_fraction * 256**2)
    assert Config(size=512).scored_fraction == Config(size=512, tile=512).scored_fraction == Config().top_fraction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tile": 512}, r"tile must be at most size, the side of the whole view \(256\); got 512"),
        ({"size": 1024, "tile": 100}, "tile must be a multiple of 64; got 100"),
        ({"size": 1024, "tile": 0}, "tile must be a multiple of 64; got 0"),
        ({"size": 1024, "tile": -64}, "tile must be a multiple of 64; got -64"),
        ({"size": 1040, "tile": 256}, "size must be a multiple of 128 where a view is seen in tiles; got 1040"),
        ({"size": 1024, "tile": 256, "reference": "student"}, "a student looks at whole views; leave tile out"),
        ({"size": 1024, "tile": 256, "basis_size": 224}, "basis_size has no effect with tiles"),
        ({"size": 1024, "tile": 256.5}, "tile must be a whole number"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(settings, sentence):
    with pytest.raises(NfadError, match=sentence):
        Config().changed(**settings)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tile", "256"], "a view of 256² is one tile of 256²: make the view larger"),
        (["--preset", "auto", "--tile", "256"], "--preset auto chooses the tile itself"),
    ],
)
def test_the_command_tells_what_is_missing(arguments, sentence, tmp_path):
    assert sentence in nfad("fit", tmp_path, "-o", tmp_path / "m.nfad", *arguments, code=2).stderr


def test_a_teacher_that_sees_no_tiles_is_refused():
    config = tiny(**LARGE)
    whole = tiled_teacher(*config.sight[:-1], None)
    with pytest.raises(NfadError, match="tiles need a teacher of their own, not VitTeacher"):
        Detector.fit(photos(12), config, teacher=whole)


# What a fit keeps


@pytest.mark.parametrize("grid", [65, 94, 128, 192, 384, 768])
def test_places_of_large_grids_are_squares_of_tokens(grid):
    side = places_a_side(grid)
    assert grid % side == 0 and side <= COARSE and places_a_side(FINE) == FINE
    tokens = torch.randn(grid**2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    means = by_square(tokens)
    assert means.shape == (side**2, 2)
    assert torch.allclose(by_square(by_token(means, grid**2)), means)
    assert torch.allclose(means.mean(dim=0), tokens.mean(dim=0))


def test_a_placed_reference_of_squares_is_that_of_their_tokens_means():
    """The same as if every token had its square's mean for its own."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(3, 128**2, 4, generator=generator)
    means = by_square(tokens.double().mean(dim=0))
    second = (tokens.double().mT @ tokens.double()).mean(dim=0, keepdim=True) / 128**2
    coarse, fine = Placed.fit(second, means), Placed.fit(second, by_token(means, 128**2))
    assert torch.allclose(coarse(tokens), fine(tokens), rtol=1e-4)


def test_what_a_fit_holds_does_not_grow_with_the_view():
    """At 3072² ten folds' sums of every token's mean would be 1.8 GB (CNN) and 4.5 GB (ViT)."""

    class Large:
        identity = device = region = None
        channels, grid = (40, 112), 384

        def tokens(self, images):
            raise AssertionError

        tokens_and_prior = tokens

    moments = FoldMoments(torch.arange(FOLDS), Large(), 10, 10)
    held = sum(sum_.nbytes for fold in (*moments._places, *moments._regions) for sum_ in fold)
    assert held < 64 * 2**20


def test_stores_on_disk_have_a_limit_and_the_rest_is_made_anew(tmp_path, monkeypatch):
    config = tiny(**LARGE)
    assert config.room is not None and tiny().room is None
    images, teacher = photos(12), tiled_teacher(*config.sight)
    looks = []
    monkeypatch.setattr(teacher, "tokens", lambda views, own=teacher.tokens: looks.append(len(views)) or own(views))
    views = ViewCache.read(images, 128, None, tmp_path, room=5 * 6 * 128**2)
    cache = token_cache.TokenCache(teacher, views, 1, tmp_path, room=4 * 2 * 64 * sum(teacher.channels) + 4 * 4 * 64)
    every = [tokens for _, tokens, _ in cache.fill()]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 6 * 6 * 128**2 + 5 * 2 * 64 * 2 * 200 + 2048
    before = len(looks)
    for place in range(12):
        found = cache.read(torch.tensor([place]))[0]
        for a, b in zip(found, every[place], strict=True):
            assert (a - b).abs().max() <= 2 * torch.finfo(torch.float16).eps
    assert len(looks) - before == 12 - 4


def test_views_are_held_by_their_pixels():
    assert Config(size=1024, tile=512, batch=8).at_once == 2 and Config(size=3072, tile=512, batch=8).at_once == 1
    assert Config(batch=8).at_once == 8


def test_a_bank_looks_at_a_large_view_piece_by_piece(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    bank = Nearest(torch.randn(20, 4, generator=generator), torch.arange(20))
    tokens = torch.randn(2, 50, 4, generator=generator)
    wanted = bank(tokens, torch.tensor([3, 4]))
    monkeypatch.setattr("nfad.reference.nearest.ROOM", 4 * 20 * 7)  # seven tokens' similarities
    assert torch.equal(bank(tokens, torch.tensor([3, 4])), wanted)
