"""PatchCore as its paper reads, in float64 and loop by loop. Arrays in, arrays out."""

import numpy as np


def pooled(maps):
    """Mean over 3×3 positions with zeros beyond the border; maps are (channel, y, x)."""
    _, height, width = maps.shape
    found = np.zeros_like(maps)
    for y in range(height):
        for x in range(width):
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    if 0 <= y + dy < height and 0 <= x + dx < width:
                        found[:, y, x] += maps[:, y + dy, x + dx] / 9
    return found


def resized(maps, height, width):
    """Bilinear between pixel centres, the border repeated."""
    found = np.zeros((len(maps), height, width))
    for y in range(height):
        for x in range(width):
            source_y = min(max((y + 0.5) * maps.shape[1] / height - 0.5, 0), maps.shape[1] - 1)
            source_x = min(max((x + 0.5) * maps.shape[2] / width - 0.5, 0), maps.shape[2] - 1)
            low_y, low_x = int(source_y), int(source_x)
            high_y, high_x = min(low_y + 1, maps.shape[1] - 1), min(low_x + 1, maps.shape[2] - 1)
            down, right = source_y - low_y, source_x - low_x
            found[:, y, x] = (
                maps[:, low_y, low_x] * (1 - down) * (1 - right)
                + maps[:, low_y, high_x] * (1 - down) * right
                + maps[:, high_y, low_x] * down * (1 - right)
                + maps[:, high_y, high_x] * down * right
            )
    return found


def farthest_points(rows, count, start):
    chosen = [start]
    while len(chosen) < count:
        gaps = [min(np.linalg.norm(row - rows[c]) for c in chosen) for row in rows]
        chosen.append(int(np.argmax(gaps)))
    return chosen


def image_score(patches, bank, neighbours):
    """Eqs. 6 and 7 for one image; and every patch's distance."""
    distances = np.array([[np.linalg.norm(p - m) for m in bank] for p in patches])
    nearest = distances.argmin(axis=1)
    farthest = int(distances.min(axis=1).argmax())
    best = nearest[farthest]
    around = np.argsort([np.linalg.norm(m - bank[best]) for m in bank])[:neighbours]
    weight = 1 - np.exp(distances[farthest, best]) / np.exp(distances[farthest, around]).sum()
    return weight * distances[farthest, best], distances.min(axis=1)
