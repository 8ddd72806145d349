"""The paper's measurements as their definitions read: float64, patch by patch. Arrays in, numbers out."""

import numpy as np


def share(residual, basis):
    """‖VVᵀr‖² / ‖r‖²"""
    return np.sum((basis @ (basis.T @ residual)) ** 2) / np.sum(residual**2)


def chosen(residuals, labels):
    """The residuals of the patches so labelled, of all images."""
    images, tokens = labels.shape
    return [residuals[i, p] for i in range(images) for p in range(tokens) if labels[i, p]]


def overlap(residuals, defect, normal, basis):
    """f_def, f_norm, f_disc of one block; a patch without residual has no share."""
    groups = chosen(residuals, defect), chosen(residuals, normal)
    f_def, f_norm = (np.mean([share(r, basis) for r in group if r.any()]) for group in groups)
    return f_def, f_norm, share(np.mean(groups[0], axis=0) - np.mean(groups[1], axis=0), basis)


def rms(residuals, labels, bases):
    """Root-mean-square length over patches and blocks, before and after r − VVᵀr."""
    before, after = [], []
    for block, basis in zip(residuals, bases, strict=True):
        for r in chosen(block, labels):
            before.append(np.sum(r**2))
            after.append(np.sum((r - basis @ (basis.T @ r)) ** 2))
    return np.sqrt(np.mean(before)), np.sqrt(np.mean(after))


def ranks(values):
    """1 for the least; equal values share the mean of their places."""
    return np.array([np.mean([1 + i for i, other in enumerate(sorted(values)) if other == v]) for v in values])


def spearman(a, b):
    a, b = ranks(a) - ranks(a).mean(), ranks(b) - ranks(b).mean()
    return np.sum(a * b) / np.sqrt(np.sum(a**2) * np.sum(b**2))


def patch_labels(mask, grid):
    """Defect: touched, and half as covered as the most covered patch; normal: not touched."""
    side = len(mask) // grid
    corners = [(row * side, column * side) for row in range(grid) for column in range(grid)]
    covered = [sum(bool(mask[top + y, left + x]) for y in range(side) for x in range(side)) for top, left in corners]
    most = max(covered)
    return np.array([c > 0 and 2 * c >= most for c in covered]), np.array([c == 0 for c in covered])
