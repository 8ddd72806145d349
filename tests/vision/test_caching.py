import torch

from nfad.vision.caching import Remembering
from nfad.vision.teacher import load_teacher


class Counting:
    """A real teacher that counts the images it has looked at."""

    def __init__(self):
        self.inner = load_teacher("vit_tiny_patch16_224", "untrained", (1, 3), (4, 5), 64)
        self.identity, self.channels, self.grid = self.inner.identity, self.inner.channels, self.inner.grid
        self.device, self.region = self.inner.device, None
        self.looked = 0

    def tokens(self, images):
        self.looked += len(images)
        return self.inner.tokens(images)

    def tokens_and_prior(self, images):
        self.looked += len(images)
        return self.inner.tokens_and_prior(images)


def test_each_view_is_looked_at_once_and_gives_the_teachers_tokens():
    images = torch.rand(5, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    teacher = Counting()
    memory = Remembering(teacher)
    tokens, prior = memory.tokens_and_prior(images)
    assert teacher.looked == 5
    expected, expected_prior = teacher.inner.tokens_and_prior(images)
    assert torch.equal(prior, expected_prior)
    for got, wanted in zip(tokens, expected):
        assert torch.equal(got, wanted.half().float())
    again = memory.tokens(images.flip(0))
    assert teacher.looked == 5 and torch.equal(again[0], tokens[0].flip(0))


def test_a_prior_asked_for_later_is_computed():
    images = torch.rand(2, 3, 64, 64)
    teacher = Counting()
    memory = Remembering(teacher)
    memory.tokens(images)
    _, prior = memory.tokens_and_prior(images)
    assert teacher.looked == 4 and prior.shape == (2, 16)


def test_beyond_its_capacity_nothing_is_kept():
    images = torch.rand(3, 3, 64, 64)
    teacher = Counting()
    memory = Remembering(teacher, capacity=0)
    first, second = memory.tokens(images), memory.tokens(images)
    assert teacher.looked == 6 and torch.equal(first[0], second[0])
