"""The metrics as their definitions read, slowly. Scores and labels are flat, maps and masks lists of 2-d arrays."""

import numpy as np


def auroc(scores, labels):
    wins = [
        1.0 if a > n else 0.5 if a == n else 0.0
        for a, is_anomalous in zip(scores, labels)
        if is_anomalous
        for n, other in zip(scores, labels)
        if not other
    ]
    return sum(wins) / len(wins) if wins else float("nan")


def average_precision(scores, labels):
    total, area, recall_before = sum(labels), 0.0, 0.0
    if not total:
        return float("nan")
    for threshold in sorted(set(scores), reverse=True):
        found = [bool(label) for score, label in zip(scores, labels) if score >= threshold]
        recall = sum(found) / total
        area += (recall - recall_before) * sum(found) / len(found)
        recall_before = recall
    return area


def f1_max(scores, labels):
    if not sum(labels):
        return float("nan")
    best = 0.0
    for threshold in set(scores):
        found = [bool(label) for score, label in zip(scores, labels) if score >= threshold]
        best = max(best, 2 * sum(found) / (len(found) + sum(labels)))
    return best


def regions(mask):
    """Lists of (row, column), one a component; flood fill over the eight neighbours."""
    left = {(int(r), int(c)) for r, c in np.argwhere(mask)}
    found = []
    while left:
        edge, region = [left.pop()], []
        while edge:
            r, c = edge.pop()
            region.append((r, c))
            near = {(r + i, c + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            left -= near
            edge.extend(near)
        found.append(region)
    return found


def _overlap_and_fpr(maps, masks, is_found):
    overlaps = [
        sum(bool(is_found(m[r, c])) for r, c in region) / len(region)
        for m, mask in zip(maps, masks)
        for region in regions(mask)
    ]
    normal = [score for m, mask in zip(maps, masks) for score in m[~mask]]
    return float(np.mean(overlaps)), sum(bool(is_found(score)) for score in normal) / len(normal)


def _undefined(masks):
    every = np.concatenate([mask.ravel() for mask in masks])
    return every.all() or not every.any()


def aupro_mvtec(maps, masks, limit=0.3):
    if _undefined(masks):
        return float("nan")
    points = [(0.0, 0.0)]
    for threshold in sorted({float(s) for m in maps for s in m.ravel()}, reverse=True):
        overlap, fpr = _overlap_and_fpr(maps, masks, lambda s, t=threshold: s >= t)
        points.append((fpr, overlap))
    area = 0.0
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x1 > limit and x0 < limit:
            x1, y1 = limit, y0 + (y1 - y0) * (limit - x0) / (x1 - x0)
        if x1 <= limit:
            area += (x1 - x0) * (y0 + y1) / 2
    return area / limit


def aupro_stepped(maps, masks, smallest_to_zero):
    """As Dinomaly's compute_pro (False) and ADer's cal_pro_score (True) loop; NaN where they fail."""
    low, high = min(m.min() for m in maps), max(m.max() for m in maps)
    step = (high - low) / 200
    if _undefined(masks) or not step > 0:
        return float("nan")
    points = []
    for threshold in np.arange(low, high, step):
        overlap, fpr = _overlap_and_fpr(maps, masks, lambda s, t=threshold: s > t)
        if fpr < 0.3:
            points.append((fpr, overlap))
    xs = np.array([x for x, _ in points])
    if len(xs) < 2:
        return float("nan")
    origin = xs.min() if smallest_to_zero else 0.0
    if xs.max() == origin:
        return float("nan")
    xs = (xs - origin) / (xs.max() - origin)
    ys = [y for _, y in points]
    return sum((xs[i] - xs[i + 1]) * (ys[i] + ys[i + 1]) / 2 for i in range(len(xs) - 1))


def aupro_mmr(maps, masks):
    images = [aupro_stepped([m], [mask], False) for m, mask in zip(maps, masks) if mask.any()]
    return float(np.mean(images)) if images else float("nan")


def aupro(maps, masks, protocol):
    if protocol == "mvtec":
        return aupro_mvtec(maps, masks)
    if protocol == "mmr":
        return aupro_mmr(maps, masks)
    return aupro_stepped(maps, masks, smallest_to_zero=protocol == "ader")
