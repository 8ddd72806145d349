"""Reconstructing hosts as their papers read, in float64 and loop by loop. Arrays in, arrays out."""

import numpy as np
from references.patchcore import resized
from scipy.ndimage import gaussian_filter


def cosine(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def gaps(layer, decoded):
    """1 − cos at every position; both are (channel, y, x)."""
    found = np.zeros(layer.shape[1:])
    for y, x in np.ndindex(found.shape):
        found[y, x] = 1 - cosine(layer[:, y, x], decoded[:, y, x])
    return found


def reverse_loss(layers, decoded):
    """RD4AD Eq. 2; each is (image, channel, y, x)."""
    total = 0.0
    for a, b in zip(layers, decoded):
        total += np.mean([gaps(one, other) for one, other in zip(a, b)])
    return total


def map_of(layers, decoded, size, sigma):
    """One image's layers: gaps over the image, summed, smoothed."""
    total = sum(resized(gaps(a, b)[None], size, size)[0] for a, b in zip(layers, decoded))
    return gaussian_filter(total, sigma, mode="mirror", truncate=4.0)


def sees(grid, neighbours):
    """UniAD's neighbour mask, position by position: True where one may look at the other."""
    found = np.ones((grid**2, grid**2), dtype=bool)
    for y, x in np.ndindex(grid, grid):
        for other_y, other_x in np.ndindex(grid, grid):
            if abs(y - other_y) <= neighbours // 2 and abs(x - other_x) <= neighbours // 2:
                found[y * grid + x, other_y * grid + other_x] = False
    return found


def attention(query, key, value, heads, allowed):
    """softmax(QKᵀ/√d)V, head by head and query by query; each is (token, channel)."""
    found = np.zeros_like(query)
    for head in np.split(np.arange(query.shape[1]), heads):
        for token in range(len(query)):
            logits = np.array([query[token, head] @ other for other in key[:, head]]) / np.sqrt(len(head))
            weight = np.where(allowed[token], np.exp(logits), 0)
            found[token, head] = (weight / weight.sum()) @ value[:, head]
    return found


def pooled_maximum(pixels, side):
    """The largest mean over a square of `side` pixels."""
    height, width = pixels.shape
    squares = [
        pixels[y : y + side, x : x + side].mean() for y in range(height - side + 1) for x in range(width - side + 1)
    ]
    return max(squares)


def contrast_loss(layers, decoded):
    """ReContrast: one cosine an image and layer, of flattened maps; half the sum over both encoders' layers."""
    total = 0.0
    for a, b in zip(layers, decoded):
        total += np.mean([1 - cosine(one.ravel(), other.ravel()) for one, other in zip(a, b)])
    return total / 2


def contrast_gradient(layer, decoded, alpha):
    """The mined gradient of the above to one layer's `decoded`: of easy positions it is set to nothing."""
    positions = np.array([gaps(one, other) for one, other in zip(layer, decoded)])
    bound = positions.mean() + alpha * positions.std(ddof=1)
    found = np.zeros_like(decoded)
    for image, (one, other) in enumerate(zip(layer, decoded)):
        norm, target_norm = np.linalg.norm(other), np.linalg.norm(one)
        slope = one / (norm * target_norm) - (one * other).sum() * other / (norm**3 * target_norm)
        for y, x in np.ndindex(positions[image].shape):
            if positions[image, y, x] >= bound:
                found[image, :, y, x] = -slope[:, y, x] / len(layer) / 2
    return found
