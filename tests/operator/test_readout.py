import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from references import operator as slow

from nfad.operator import discrepancy, read_out

ALL, NONE = 1e-30, float("inf")  # tau: γ = 1 for every image, γ = 0 for every image
seeds = st.integers(0, 2**31)
dtypes = st.sampled_from([torch.float32, torch.float64])


def random(*shape, seed, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def rotation(channels, seed):
    return torch.linalg.qr(random(channels, channels, seed=seed))[0]


def unit(tokens):
    return tokens / tokens.norm(dim=-1, keepdim=True)


@st.composite
def cases(draw, dtype=None, least_left=2):
    """Teacher, reference, bases, keep of 1–3 blocks whose channels and columns differ; two channels stay free."""
    images, tokens, seed = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(seeds)
    dtype = dtype or draw(dtypes)
    teacher, reference, bases, keep = [], [], [], []
    for block in range(draw(st.integers(1, 3))):
        channels = draw(st.integers(least_left + 1, 12))
        columns = draw(st.integers(0, channels - least_left))
        shape, start = (images, tokens, channels), seed + 10 * block
        t, s = random(*shape, seed=start), random(*shape, seed=start + 1)
        s = s if draw(st.booleans()) else t + 0.1 * s
        if draw(st.booleans()):
            t, s = unit(t), unit(s)
        teacher.append(t.to(dtype))
        reference.append(s.to(dtype))
        bases.append(rotation(channels, start + 2)[:, :columns].to(dtype))
        keep.append(random(columns, seed=start + 3) > 0)
    return teacher, reference, bases, keep


def doubles(tensors):
    return [tensor.double().numpy() for tensor in tensors]


def rounding(case, least=1.0):
    """Inner products of c terms and k coefficients, relative to the squared norm that a projection leaves."""
    teacher, _, bases, _ = case
    terms = max(t.shape[-1] + basis.shape[1] for t, basis in zip(teacher, bases, strict=True))
    return 8 * terms * torch.finfo(teacher[0].dtype).eps / least**2


def distance(found, wanted):
    return float((found.double() - torch.as_tensor(wanted, dtype=torch.float64)).abs().max())


# Closed form against the projections themselves


@given(cases())
def test_control_and_detection_equal_the_projections_formed_explicitly(case):
    teacher, reference, bases, keep = case
    found = read_out(teacher, reference, bases, keep, 0.5)
    arrays, ones = (doubles(teacher), doubles(reference), doubles(bases)), np.ones(len(teacher[0]))
    plain, _ = slow.token_map(*arrays, 0 * ones)
    filtered, least = slow.token_map(*arrays, ones)
    assert distance(found.control, plain) <= rounding(case)
    assert distance(found.detection, filtered) <= rounding(case, least)


@given(cases(), st.floats(0.05, 2))
def test_localization_equals_the_attenuation_formed_explicitly(case, tau):
    teacher, reference, bases, keep = case
    found = read_out(teacher, reference, bases, keep, tau)
    spread = np.array([slow.participation(row) for row in found.control.double().numpy()])
    strength = np.minimum(1, spread / tau)
    eps = torch.finfo(teacher[0].dtype).eps
    assert distance(found.participation, spread) <= 8 * teacher[0].shape[1] * eps
    assert distance(found.gate, strength) <= 8 * teacher[0].shape[1] * eps / tau
    kept = [basis[:, mask] for basis, mask in zip(bases, keep, strict=True)]
    wanted, least = slow.token_map(doubles(teacher), doubles(reference), doubles(kept), found.gate.double().numpy())
    assert distance(found.localization, wanted) <= rounding(case, least)


@given(cases(dtype=torch.float64))
def test_nuisance_fraction_equals_the_energy_of_the_residual_formed_explicitly(case):
    teacher, reference, bases, keep = case
    found = read_out(teacher, reference, bases, keep, 0.5)
    inside, whole = slow.energies(doubles(teacher), doubles(reference), doubles(bases))
    tokens = teacher[0].shape[1] * len(teacher)
    # 2 − 2⟨t,s⟩ keeps the rounding of ⟨t,s⟩ ≈ 1, however small the residual.
    assert distance(found.nuisance_fraction, inside / whole) <= 2 * tokens * rounding(case) / whole.min()
    assert ((found.nuisance_fraction >= 0) & (found.nuisance_fraction <= 1)).all()


@given(cases(dtype=torch.float64), st.floats(-3, 3), seeds)
def test_the_tokens_lengths_do_not_matter(case, exponent, seed):
    teacher, reference, bases, keep = case
    scaled = [t * 10**exponent * (random(*t.shape[:2], 1, seed=seed).abs() + 0.1) for t in teacher]
    plain, found = read_out(teacher, reference, bases, keep, 0.5), read_out(scaled, reference, bases, keep, 0.5)
    _, least = slow.token_map(doubles(teacher), doubles(reference), doubles(bases), np.ones(len(teacher[0])))
    for name in ("control", "detection", "localization"):
        # The gate inherits the control map's rounding once more.
        assert distance(getattr(found, name), getattr(plain, name)) <= 16 * rounding(case, least), name


# The theorem, both ways


@given(cases(dtype=torch.float64), seeds)
def test_filtering_twice_is_filtering_once_and_the_nuisance_is_gone(case, seed):
    teacher, reference, bases, keep = case
    project = [torch.eye(len(basis), dtype=torch.float64) - basis @ basis.T for basis in bases]
    once = [unit(t @ p) for t, p in zip(teacher, project, strict=True)]
    expected = [unit(s @ p) for s, p in zip(reference, project, strict=True)]
    before, after = (
        read_out(teacher, reference, bases, keep, ALL),
        read_out(once, expected, bases, keep, ALL),
    )
    _, least = slow.token_map(doubles(teacher), doubles(reference), doubles(bases), np.ones(len(teacher[0])))
    tolerance = rounding(case, least)
    assert distance(after.detection, before.detection) <= tolerance
    assert distance(after.control, after.detection) <= tolerance
    inside, whole = slow.energies(doubles(once), doubles(expected), doubles(bases))
    assert float(after.nuisance_fraction.max()) <= inside.max() / whole.min() + tolerance**2
    if any(basis.shape[1] for basis in bases):
        assert float(before.nuisance_fraction.min()) > 1e-6  # it was there before
        assert float(after.nuisance_fraction.max()) < 1e-6 * float(before.nuisance_fraction.min())


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), seeds)
def test_content_orthogonal_to_the_nuisance_is_untouched(images, tokens, columns, seed):
    basis, rest = rotation(columns + 4, seed).split([columns, 4], dim=1)
    t, s = (random(images, tokens, 4, seed=seed + i) @ rest.T for i in (1, 2))
    keep = [torch.ones(columns, dtype=torch.bool)]
    found = read_out([t], [s], [basis], keep, ALL)
    tolerance = rounding(([t], [s], [basis], keep))
    assert float(found.control.max()) > 1e-3
    assert distance(found.detection, found.control) <= tolerance
    assert distance(found.localization, found.control) <= tolerance
    assert float(found.nuisance_fraction.max()) <= tolerance**2 * tokens


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.floats(0.1, 3), seeds)
def test_a_pure_nuisance_change_is_seen_by_the_control_and_not_by_the_filter(images, tokens, columns, size, seed):
    basis, rest = rotation(columns + 4, seed).split([columns, 4], dim=1)
    content = unit(random(images, tokens, 4, seed=seed + 1)) @ rest.T
    light, other = (size * unit(random(images, tokens, columns, seed=seed + i)) @ basis.T for i in (2, 3))
    t, s = content + light, content + other  # of equal length, so that the unit residual lies in V, too
    keep = [torch.ones(columns, dtype=torch.bool)]
    found = read_out([t], [s], [basis], keep, ALL)
    least = 1 / (1 + size**2) ** 0.5
    tolerance = rounding(([t], [s], [basis], keep), least)
    assert float(found.detection.abs().max()) <= tolerance
    assert float(found.localization.abs().max()) <= tolerance
    for image in range(images):
        energy = float(found.control[image].sum())
        if energy > 1e-6:  # with one column, both may carry the same light
            assert float(found.nuisance_fraction[image]) == pytest.approx(1, abs=tokens * tolerance / energy)


def test_the_fraction_is_zero_when_the_residual_is_content():
    basis, rest = rotation(9, 0).split([3, 6], dim=1)
    light = random(2, 5, 3, seed=1) @ basis.T
    t, s = (light + unit(random(2, 5, 6, seed=i)) @ rest.T for i in (2, 3))
    found = read_out([t], [s], [basis], [torch.ones(3, dtype=torch.bool)], ALL)
    assert float(found.control.min()) > 1e-3
    assert float(found.nuisance_fraction.max()) <= 64 * torch.finfo(torch.float64).eps


# The gate


@given(cases(dtype=torch.float64))
def test_localization_is_the_control_at_gate_zero_and_the_full_projection_at_one(case):
    teacher, reference, bases, keep = case
    shut, full = read_out(teacher, reference, bases, keep, NONE), read_out(teacher, reference, bases, keep, ALL)
    assert (shut.gate == 0).all() and (full.gate == 1).all()
    assert distance(shut.localization, shut.control) <= rounding(case)
    kept = [basis[:, mask] for basis, mask in zip(bases, keep, strict=True)]
    whole = [torch.ones(basis.shape[1], dtype=torch.bool) for basis in kept]
    by_detection = read_out(teacher, reference, kept, whole, ALL)
    _, least = slow.token_map(doubles(teacher), doubles(reference), doubles(kept), np.ones(len(teacher[0])))
    assert distance(full.localization, by_detection.detection) <= rounding(case, least)


@given(cases(dtype=torch.float64))
def test_keeping_every_column_at_gate_one_is_detection_and_keeping_none_is_the_control(case):
    teacher, reference, bases, _ = case
    _, least = slow.token_map(doubles(teacher), doubles(reference), doubles(bases), np.ones(len(teacher[0])))
    for value, name in ((True, "detection"), (False, "control")):
        keep = [torch.full((basis.shape[1],), value) for basis in bases]
        found = read_out(teacher, reference, bases, keep, ALL)
        assert distance(found.localization, getattr(found, name)) <= rounding(case, least)


@given(cases(dtype=torch.float64), st.floats(0.01, 1))
def test_the_magnitude_gate_follows_its_definition(case, tau):
    found = read_out(*case, tau, gate_by="magnitude")
    weighed = found.participation * found.control.clamp(min=0).mean(dim=1)
    assert distance(found.gate, (weighed / tau).clamp(max=1)) <= 64 * torch.finfo(torch.float64).eps / tau


@given(cases(dtype=torch.float64))
def test_each_image_is_read_on_its_own(case):
    teacher, reference, bases, keep = case
    together = read_out(teacher, reference, bases, keep, 0.5)
    for image in range(len(teacher[0])):
        one = slice(image, image + 1)
        alone = read_out([t[one] for t in teacher], [s[one] for s in reference], bases, keep, 0.5)
        for name in ("control", "detection", "localization", "gate", "nuisance_fraction"):
            assert torch.allclose(getattr(alone, name), getattr(together, name)[one], rtol=1e-9, atol=1e-9), name


# Families


@given(cases(dtype=torch.float64), seeds)
def test_families_sum_to_the_total(case, seed):
    teacher, reference, bases, keep = case
    generator = torch.Generator().manual_seed(seed)
    names = ("photometric", "background", "sensor")
    families = [
        tuple(names[int(i)] for i in torch.randint(3, (basis.shape[1],), generator=generator)) for basis in bases
    ]
    found = read_out(teacher, reference, bases, keep, 0.5, families)
    assert set(found.nuisance_by_family) == {name for block in families for name in block}
    total = sum(found.nuisance_by_family.values(), start=torch.zeros(len(teacher[0]), dtype=torch.float64))
    assert distance(total, found.nuisance_fraction) <= 64 * torch.finfo(torch.float64).eps
    for name, share in found.nuisance_by_family.items():
        only = [
            basis[:, torch.tensor([n == name for n in block], dtype=torch.bool)]
            for basis, block in zip(bases, families, strict=True)
        ]
        inside, whole = slow.energies(doubles(teacher), doubles(reference), doubles(only))
        tokens = teacher[0].shape[1] * len(teacher)
        assert distance(share, inside / whole) <= 2 * tokens * rounding(case) / whole.min()


def test_the_family_that_moved_is_named():
    basis = rotation(8, 0)[:, :4]
    content = random(1, 6, 8, seed=1)
    content = content - content @ basis @ basis.T
    t = content + random(1, 6, 2, seed=2) @ basis[:, 2:].T
    families = [("photometric", "photometric", "background", "background")]
    found = read_out([t], [content], [basis], [torch.ones(4, dtype=torch.bool)], 0.5, families)
    assert float(found.nuisance_by_family["background"]) > 0.1
    assert float(found.nuisance_by_family["photometric"]) <= 64 * torch.finfo(torch.float64).eps


# Edges


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_columns_all_three_read_outs_agree(dtype):
    t, s = random(2, 4, 6, seed=0, dtype=dtype), random(2, 4, 6, seed=1, dtype=dtype)
    found = read_out([t], [s], [torch.zeros(6, 0, dtype=dtype)], [torch.zeros(0, dtype=torch.bool)], 0.5, [()])
    assert torch.equal(found.detection, found.control)
    assert torch.equal(found.localization, found.control)
    assert torch.equal(found.nuisance_fraction, torch.zeros(2, dtype=dtype))
    assert found.nuisance_by_family == {}


def test_a_token_without_length_is_told_apart_from_everything_and_never_nan():
    t, s = torch.zeros(1, 3, 5), random(1, 3, 5, seed=0, dtype=torch.float32)
    found = read_out([t], [s], [torch.eye(5)[:, :2]], [torch.ones(2, dtype=torch.bool)], 0.5)
    for tokens in (found.control, found.detection, found.localization):
        assert torch.equal(tokens, torch.ones(1, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_tokens_have_no_discrepancy_in_any_read_out(dtype):
    t = unit(random(2, 4, 16, seed=0)).to(dtype)
    basis = rotation(16, 1)[:, :5].to(dtype)
    found = read_out([t], [t], [basis], [torch.ones(5, dtype=torch.bool)], 0.5)
    left = 1 - float((t.double() @ basis.double()).square().sum(dim=-1).max())
    for tokens in (found.control, found.detection, found.localization):
        assert float(tokens.abs().max()) <= 8 * 21 * torch.finfo(dtype).eps / left
    assert torch.isfinite(found.nuisance_fraction).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_token_wholly_inside_the_nuisance_keeps_a_bounded_discrepancy(dtype):
    # 1 − ‖a‖² is then rounding only, and nothing sensible is left to compare; 1 − cos must still lie in 0..2.
    t, s = (random(2, 8, 16, seed=i, dtype=dtype) for i in (0, 1))
    basis = rotation(16, 2).to(dtype)
    found = read_out([t], [s], [basis], [torch.ones(16, dtype=torch.bool)], ALL)
    for tokens in (found.detection, found.localization):
        assert float(tokens.min()) >= -1e-5
        assert float(tokens.max()) <= 2 + 1e-5


@given(cases(dtype=torch.float64))
def test_discrepancy_is_one_blocks_control(case):
    teacher, reference, bases, keep = case
    found = torch.stack([discrepancy(t, s) for t, s in zip(teacher, reference, strict=True)]).mean(dim=0)
    assert distance(found, read_out(teacher, reference, bases, keep, 0.5).control) <= rounding(case)


def test_blocks_that_do_not_match_are_refused():
    t, basis, keep = torch.ones(1, 2, 3), torch.eye(3)[:, :1], torch.ones(1, dtype=torch.bool)
    with pytest.raises(ValueError, match="zip"):
        read_out([t, t], [t], [basis], [keep], 0.5)


def test_shapes_are_checked_in_these_tests():
    with pytest.raises(jaxtyping.TypeCheckError):
        discrepancy(torch.ones(2, 3, 4), torch.ones(2, 3, 5))
