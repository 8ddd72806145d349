import dataclasses
import itertools

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn import functional as F

from nfad.config import Config
from nfad.errors import NfadError
from nfad.reference.student import Student
from nfad.reference.training import LATER, adamw, learning_rate, train_student

CHANNELS = (8, 12)
COUNT = 5
TINY = Config(size=32, student="untrained-test_vit", epochs=4, batch=2)


class Cache:
    """Stands for the teacher's cached tokens: random images whose tokens are a fixed map of their patches."""

    def __init__(self, count=COUNT, grid=2, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.rand(count, 3, 32, 32, generator=generator)
        patches = F.adaptive_avg_pool2d(self.images, grid).flatten(2).transpose(1, 2) - 0.5
        self.tokens = [F.normalize(patches @ torch.randn(3, c, generator=generator), dim=-1).half() for c in CHANNELS]
        self.prior = torch.rand(count, grid**2, generator=generator)
        self.asked = []

    def __call__(self, indices):
        self.asked.append(indices.tolist())
        return self.images[indices], [tokens[indices] for tokens in self.tokens], self.prior[indices]


class Interrupted(Exception):
    pass


def interrupting(after):
    def progress(epoch, epochs, loss):
        if epoch == after:
            raise Interrupted

    return progress


def same(first, second):
    mine, theirs = first.state_dict(), second.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(
    "epoch, factor",
    [(0, 1 / 50), (24, 1 / 2), (49, 1), (50, 1), (119, 1), (120, 0.1), (159, 0.1), (160, 0.01), (199, 0.01)],
)
def test_the_papers_schedule(epoch, factor):
    assert learning_rate(epoch, 200, 1e-3) == pytest.approx(1e-3 * factor, rel=1e-12)


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 10, 35, 200, 1000])
def test_any_number_of_epochs_warms_up_then_only_falls(epochs):
    rates = [learning_rate(epoch, epochs, 1.0) for epoch in range(epochs)]
    top = rates.index(max(rates))
    assert min(rates) > 0 and max(rates) == 1.0
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert top <= epochs / 4
    assert sum(rate < 1 for rate in rates[top:]) == epochs - -(-6 * epochs // 10)


def test_decay_spares_biases_norms_and_embeddings():
    student = Student.build(TINY, CHANNELS)
    names = {id(parameter): name for name, parameter in student.named_parameters()}
    decayed, bare = ([names[id(p)] for p in group["params"]] for group in adamw(student, 1e-3).param_groups)
    assert len(decayed) + len(bare) == len(names)
    assert all(name.endswith("weight") and "norm" not in name for name in decayed)
    assert {"mask_token", "model.pos_embed", "model.cls_token", "model.norm.weight", "heads.0.bias"} <= set(bare)
    assert {"heads.1.weight", "model.patch_embed.proj.weight", "model.blocks.0.attn.qkv.weight"} <= set(decayed)
    groups = adamw(student, 1e-3).param_groups
    assert [group["weight_decay"] for group in groups] == [0.05, 0.0]
    assert {group["betas"] for group in groups} == {(0.9, 0.95)}


def test_the_loss_goes_down_and_every_parameter_moves():
    losses = []
    config = dataclasses.replace(TINY, epochs=30)
    trained = train_student(config, CHANNELS, COUNT, Cache(), progress=lambda *heard: losses.append(heard))
    assert [heard[:2] for heard in losses] == [(epoch, 30) for epoch in range(1, 31)]
    assert losses[0][2] > 0.5  # nothing is known yet
    assert losses[-1][2] < losses[0][2] / 2  # half the tokens are hidden, and these images are noise
    before = dict(Student.build(config, CHANNELS).named_parameters())
    assert not any(torch.equal(parameter, before[name]) for name, parameter in trained.named_parameters())
    assert not trained.training


def test_the_schedule_is_what_moves_the_weights(tmp_path):
    config = dataclasses.replace(TINY, epochs=8, batch=COUNT)
    with pytest.raises(Interrupted):
        train_student(config, CHANNELS, COUNT, Cache(), tmp_path / "student.safetensors", interrupting(1), every=0)
    with safe_open(tmp_path / "student.safetensors", framework="pt") as file:
        moved = file.get_tensor("student.heads.0.bias") - Student.build(config, CHANNELS).heads[0].bias
    # AdamW's first step has the length of the learning rate in every undecayed coordinate; 1 of 2 warm-up epochs.
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, config.learning_rate / 2), rtol=1e-2, atol=0)


def test_every_epoch_takes_each_image_once_in_its_own_order():
    cache = Cache()
    train_student(TINY, CHANNELS, COUNT, cache)
    assert [len(batch) for batch in cache.asked] == [2, 2, 1] * 4
    asked = list(itertools.chain(*cache.asked))
    epochs = [asked[start : start + COUNT] for start in range(0, 4 * COUNT, COUNT)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_a_finer_teacher_grid():
    student = train_student(TINY, CHANNELS, COUNT, Cache(grid=4), grid=4)
    assert [tuple(tokens.shape) for tokens in student(torch.rand(1, 3, 32, 32))] == [(1, 16, 8), (1, 16, 12)]


def test_same_seed_same_student_whatever_the_global_seed():
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = train_student(TINY, CHANNELS, COUNT, Cache())
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    assert same(first, train_student(TINY, CHANNELS, COUNT, Cache()))
    assert not same(first, train_student(dataclasses.replace(TINY, seed=55), CHANNELS, COUNT, Cache()))


def test_no_images_no_student():
    with pytest.raises(NfadError, match="at least 1 normal image"):
        train_student(TINY, CHANNELS, 0, Cache())


def test_a_diverged_training_is_said_and_not_saved(tmp_path):
    cache = Cache()
    cache.images[3] = torch.nan
    with pytest.raises(NfadError, match="diverged in epoch 1 of 4; lower learning_rate"):
        train_student(TINY, CHANNELS, COUNT, cache, checkpoint=tmp_path / "student.safetensors", every=0)
    assert list(tmp_path.iterdir()) == []


class TestCheckpoint:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "student.safetensors"

    def interrupted(self, path, config=TINY, after=2, every=0.0):
        with pytest.raises(Interrupted):
            train_student(config, CHANNELS, COUNT, Cache(), path, interrupting(after), every=every)

    @pytest.mark.parametrize("after", [1, 2, 3])
    def test_resumed_is_bitwise_uninterrupted(self, path, after):
        whole = train_student(TINY, CHANNELS, COUNT, Cache())
        self.interrupted(path, after=after)
        torch.rand(7)  # the global generator stands elsewhere by now
        heard = []
        resumed = train_student(
            TINY, CHANNELS, COUNT, Cache(), str(path), lambda epoch, epochs, loss: heard.append(epoch)
        )
        assert heard == list(range(after + 1, 5))
        assert same(whole, resumed)

    def test_interrupted_within_an_epoch_and_twice(self, path):
        whole = train_student(TINY, CHANNELS, COUNT, Cache())

        class Failing(Cache):
            def __call__(self, indices):
                if len(self.asked) == 5:  # one look at the images, an epoch of 3 batches, then within the next
                    raise Interrupted
                return super().__call__(indices)

        for _ in range(2):
            with pytest.raises(Interrupted):
                train_student(TINY, CHANNELS, COUNT, Failing(), path, every=0)
        assert same(whole, train_student(TINY, CHANNELS, COUNT, Cache(), path))

    def test_a_finished_training_is_not_repeated(self, path):
        first = train_student(TINY, CHANNELS, COUNT, Cache(), path)
        cache, heard = Cache(), []
        again = train_student(TINY, CHANNELS, COUNT, cache, path, lambda *args: heard.append(args))
        assert heard == [] and len(cache.asked) == 1
        assert same(first, again)

    def test_is_written_at_most_every_so_often_and_at_the_end(self, path):
        self.interrupted(path, after=2, every=3600)
        assert not path.exists()
        train_student(TINY, CHANNELS, COUNT, Cache(), path, every=3600)
        with safe_open(path, framework="pt") as file:
            assert file.metadata()["epoch"] == "4"

    def test_resuming_needs_no_weights_from_anywhere(self, path, tmp_path):
        weights = tmp_path / "weights.safetensors"
        save_file(Student.build(TINY, CHANNELS).model.state_dict(), weights)
        config = dataclasses.replace(TINY, student="test_vit.r160_in1k", student_weights=str(weights))
        whole = train_student(config, CHANNELS, COUNT, Cache())
        self.interrupted(path, config)
        weights.unlink()
        assert same(whole, train_student(config, CHANNELS, COUNT, Cache(), path))

    def test_settings_that_matter_only_later_may_change(self, path):
        assert {field.name for field in dataclasses.fields(Config)} >= LATER
        self.interrupted(path)
        later = dataclasses.replace(TINY, sigma=2.0, false_alarm_rate=0.05, rank={"photometric": 4})
        assert same(train_student(later, CHANNELS, COUNT, Cache(), path), train_student(TINY, CHANNELS, COUNT, Cache()))

    @pytest.mark.parametrize(
        "changes, reason",
        [
            ({"epochs": 5}, "its epochs is 4, now it is 5"),
            ({"mask": 0.5}, "its mask is 0.4, now it is 0.5"),
            ({"seed": 1}, "its seed is 54, now it is 1"),
            ({"blocks": (1, 2)}, r"its blocks is \[2, 4, 6, 8\], now it is \[1, 2\]"),
        ],
    )
    def test_of_other_settings_is_refused_and_kept(self, path, changes, reason):
        self.interrupted(path)
        kept = path.read_bytes()
        with pytest.raises(NfadError, match=f"belongs to another training: {reason}; delete it"):
            train_student(dataclasses.replace(TINY, **changes), CHANNELS, COUNT, Cache(), path)
        assert path.read_bytes() == kept

    def test_of_other_channels_count_grid_or_images_is_refused(self, path):
        self.interrupted(path)
        with pytest.raises(NfadError, match="its channels is"):
            train_student(TINY, (8, 8), COUNT, Cache(), path)
        with pytest.raises(NfadError, match="its count is 5, now it is 6"):
            train_student(TINY, CHANNELS, 6, Cache(6), path)
        with pytest.raises(NfadError, match="its grid is None, now it is 4"):
            train_student(TINY, CHANNELS, COUNT, Cache(grid=4), path, grid=4)
        with pytest.raises(NfadError, match="its images differ"):
            train_student(TINY, CHANNELS, COUNT, Cache(seed=1), path)

    def test_images_of_another_machine_differ_in_their_last_digits_only(self, path):
        self.interrupted(path)
        cache = Cache()
        cache.images *= 1 + 4 * torch.finfo(torch.float32).eps
        train_student(TINY, CHANNELS, COUNT, cache, path)

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
    def test_cut_short_is_refused(self, path, share):
        self.interrupted(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(NfadError, match=r"is not a whole student checkpoint .*; delete it") as caught:
            train_student(TINY, CHANNELS, COUNT, Cache(), path)
        assert "\n" not in str(caught.value)

    def test_some_other_file_is_refused(self, path, tmp_path):
        save_file({"weight": torch.zeros(3)}, path)
        with pytest.raises(NfadError, match="is no student checkpoint of this version"):
            train_student(TINY, CHANNELS, COUNT, Cache(), path)
        with pytest.raises(NfadError, match="is a folder; name a file"):
            train_student(TINY, CHANNELS, COUNT, Cache(), tmp_path)

    def test_a_place_that_cannot_be_written_is_said_before_training(self, tmp_path):
        cache = Cache()
        with pytest.raises(NfadError, match=r"cannot write .*no/student.safetensors"):
            train_student(TINY, CHANNELS, COUNT, cache, tmp_path / "no" / "student.safetensors")
        assert cache.asked == []

    def test_holds_tensors_only_and_leaves_nothing_beside(self, path, tmp_path):
        train_student(TINY, CHANNELS, COUNT, Cache(), path, every=0)
        assert list(tmp_path.iterdir()) == [path]
        with safe_open(path, framework="pt") as file:
            assert set(file.metadata()) == {"format", "epoch", "training"}
            names = set(file.keys())
        parameters = [name for name, _ in Student.build(TINY, CHANNELS).named_parameters()]
        for part in ("student", "step", "exp_avg", "exp_avg_sq"):
            assert {f"{part}.{name}" for name in parameters} <= names
