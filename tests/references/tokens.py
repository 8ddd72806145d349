"""Token detectors as their papers read, in float64 and loop by loop. Arrays in, arrays out."""

import numpy as np


def cosine(a, b):
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def nearest_gaps(tokens, bank):
    """AnomalyDINO: 1 − the largest cosine with any entry."""
    return np.array([1 - max(cosine(token, entry) for entry in bank) for token in tokens])


def residuals(tokens, normals, share):
    """SubspaceAD: the squared distance from the normals' principal components that hold this share of the variance."""
    mean = normals.mean(axis=0)
    _, spread, components = np.linalg.svd(normals - mean, full_matrices=False)
    held = np.cumsum(spread**2) / (spread**2).sum()
    kept = components[: int((held < share).sum()) + 1]
    found = []
    for token in tokens:
        left = token - mean
        for component in kept:
            left = left - (left @ component) * component
        found.append(left @ left)
    return np.array(found)


def placed_gap(query, bank, radius):
    """RAD: at each place the retrieved images' tokens at most `radius` away; (channel, y, x), (k, channel, y, x)."""
    _, height, width = query.shape
    found = np.zeros((height, width))
    for y in range(height):
        for x in range(width):
            best = -np.inf
            for image in bank:
                for there_y in range(max(0, y - radius), min(height, y + radius + 1)):
                    for there_x in range(max(0, x - radius), min(width, x + radius + 1)):
                        best = max(best, cosine(query[:, y, x], image[:, there_y, there_x]))
            found[y, x] = 1 - best
    return found


def linear_attention(query, key, value):
    """Dinomaly: each value weighed by φ(q)·φ(k) over their sum, φ(x) = elu(x) + 1; (token, channel) each."""

    def phi(row):
        return np.where(row > 0, row + 1, np.exp(row))

    found = []
    for q in query:
        weights = np.array([phi(q) @ phi(k) for k in key])
        found.append((weights[:, None] * value).sum(axis=0) / weights.sum())
    return np.array(found)
