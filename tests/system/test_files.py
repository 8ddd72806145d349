import os
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfad.errors import NfadError
from nfad.system.files import cut_name, inert, replacing


@contextmanager
def full_disk(room):
    """Files can have so many bytes and no more."""
    resource = pytest.importorskip("resource", reason="limits the size of files")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    return path


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file", "b.txt"), ConnectionResetError(104, "Reset")])
def test_what_else_fails_in_the_block_is_not_told_as_writing(old, error):
    with pytest.raises(type(error)) as raised, replacing(old) as file:
        file.write(b"new")
        raise error
    assert raised.value is error
    assert os.listdir(old.parent) == ["a.txt"] and old.read_bytes() == b"old"


@pytest.mark.parametrize("size", [100, 1 << 20])  # in the buffer until the end, or too large for it
@pytest.mark.parametrize("durable", [True, False])
def test_a_full_disk_is_told_as_writing_and_leaves_the_old_file(old, size, durable):
    told = pytest.raises(NfadError, match=r"cannot write .*a\.txt")
    with full_disk(10), told, replacing(old, durable=durable) as file:
        file.write(b"x" * size)
    assert os.listdir(old.parent) == ["a.txt"] and old.read_bytes() == b"old"


def test_a_full_disk_does_not_hide_what_failed_before(old):
    with full_disk(10), pytest.raises(ZeroDivisionError), replacing(old) as file:
        file.write(b"x" * 100)
        raise ZeroDivisionError
    assert os.listdir(old.parent) == ["a.txt"]


def test_a_file_in_two_pieces_arrives_whole(old):
    with replacing(old) as file:
        file.write(b"new ")
        file.flush()
        file.write(b"y" * (1 << 20))
    assert old.read_bytes() == b"new " + b"y" * (1 << 20)


@given(st.floats() | st.integers() | st.none())
def test_numbers_are_cells_as_they_are(number):
    assert inert(number) is number and inert(str(number)) == str(number)


@given(st.sampled_from("=+-@\t\r"), st.text())
def test_text_that_could_be_a_formula_is_text(first, rest):
    cell = inert(first + rest)
    assert cell == f"'{first}{rest}" or isinstance(float(cell), float)


@given(st.text(max_size=99), st.integers(0, 300))
def test_a_cut_name_is_the_beginning_of_it_in_whole_letters(name, most):
    name = name.encode("utf-8", "ignore").decode()
    cut = cut_name(name, most)
    assert name.startswith(cut) and len(os.fsencode(cut)) <= most
    assert cut == name or len(os.fsencode(name[: len(cut) + 1])) > most
