"""The operator as its definitions read: float64, token by token, every projection formed. Arrays in, arrays out."""

import numpy as np

COSINE_FLOOR = 1e-8
PARTICIPATION_FLOOR = 1e-12


def unit(vector):
    return vector / max(np.linalg.norm(vector), COSINE_FLOOR)


def cosine(u, v):
    return u @ v / (max(np.linalg.norm(u), COSINE_FLOOR) * max(np.linalg.norm(v), COSINE_FLOOR))


def attenuate(vector, basis, strength=1.0):
    """A^γ z = z − γ V Vᵀ z; at γ = 1 the projection Π off span V."""
    return vector - strength * (basis @ basis.T @ vector)


def participation(energies):
    energies = [max(e, 0.0) for e in energies]
    return sum(energies) ** 2 / (len(energies) * max(sum(e * e for e in energies), PARTICIPATION_FLOOR))


def token_map(teacher, reference, bases, strengths):
    """Mean over blocks of 1 − cos_ε of the attenuated unit tokens, and the smallest norm an attenuated token had."""
    images, tokens = teacher[0].shape[:2]
    found, least = np.zeros((images, tokens)), 1.0
    for image in range(images):
        for token in range(tokens):
            for t, s, basis in zip(teacher, reference, bases, strict=True):
                left_t = attenuate(unit(t[image, token]), basis, strengths[image])
                left_s = attenuate(unit(s[image, token]), basis, strengths[image])
                found[image, token] += (1 - cosine(left_t, left_s)) / len(bases)
                least = min(least, np.linalg.norm(left_t), np.linalg.norm(left_s))
    return found, least


def energies(teacher, reference, bases):
    """‖Vᵀr‖² and ‖r‖² of the residual of unit tokens, summed over blocks and tokens: one pair an image."""
    inside, whole = np.zeros(len(teacher[0])), np.zeros(len(teacher[0]))
    for t, s, basis in zip(teacher, reference, bases, strict=True):
        for image in range(len(t)):
            for token in range(t.shape[1]):
                residual = unit(t[image, token]) - unit(s[image, token])
                inside[image] += np.sum((basis.T @ residual) ** 2)
                whole[image] += residual @ residual
    return inside, whole


def second_moment(rows):
    return sum(np.outer(row, row) for row in rows) / len(rows)


def moments(tokens):
    """Mean, E[t tᵀ], and E over images of m mᵀ with m an image's mean token."""
    images, count, channels = tokens.shape
    mean, second, image_second = np.zeros(channels), np.zeros((channels, channels)), np.zeros((channels, channels))
    for image in tokens:
        image_mean = sum(image) / count
        image_second += np.outer(image_mean, image_mean) / images
        for token in image:
            mean += token / (images * count)
            second += np.outer(token, token) / (images * count)
    return mean, second, image_second


def incidence(basis, tokens):
    scores = []
    for direction in basis.T:
        coefficients = np.array([[direction @ token for token in image] for image in tokens])
        scores.append(np.var(coefficients.mean(axis=1)) / np.var(coefficients))
    return np.array(scores)


def projector(columns):
    """Onto the span of any columns, dependent or not."""
    if columns.shape[1] == 0:
        return np.zeros((len(columns), len(columns)))
    u, values, _ = np.linalg.svd(columns, full_matrices=False)
    u = u[:, values > max(columns.shape) * np.finfo(float).eps * values[0]]
    return u @ u.T


def leading(moment, rank):
    """Top eigenvectors by singular values, which for a symmetric positive matrix are the eigenvalues."""
    return np.linalg.svd(moment)[0][:, :rank]
