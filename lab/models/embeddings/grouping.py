"""Clusters of vectors by k-means, their number by silhouette, and where each vector stands on a map of two dimensions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.models.embeddings.vectors import Floats, centre_vectors

LEAST, MOST = 2, 12  # clusters among which the silhouette chooses
REDUCED = 50  # principal components that k-means reads
RESTARTS, ROUNDS = 4, 30
SILHOUETTES = 1000  # vectors whose silhouettes are computed
SAME = 1e-3  # vectors that differ by less are one: float16 tells them apart no better


@dataclass(frozen=True)
class VectorGroups:
    """``labels`` (N,) from 0, the largest cluster first; ``distances`` (N,) to their centre; ``points`` (N, 2) on the first two principal components,
    which have the shares ``explained`` of the variance; ``silhouettes``: number of clusters → mean silhouette.
    """

    labels: npt.NDArray[np.int64]
    distances: Floats
    points: Floats
    explained: list[float]
    silhouettes: dict[int, float]


def group_vectors(vectors: Floats, wanted: int | None, seed: int) -> VectorGroups:
    """``vectors`` (N, D), N at least 2. ``wanted``: how many clusters; None leaves it to the silhouette. The same for the same seed."""
    centred = centre_vectors(vectors)
    reduced, explained = find_components(centred, seed)
    distinct = len(np.unique((reduced / SAME).round(), axis=0))
    silhouettes: dict[int, float] = {}
    labels = np.zeros(len(vectors), dtype=np.int64)
    if distinct > 1:
        sample = np.sort(np.random.default_rng(seed).permutation(len(reduced))[:SILHOUETTES])
        apart = measure_distances(reduced[sample])
        counts = [min(wanted, distinct)] if wanted else range(LEAST, min(MOST, distinct, max(LEAST, len(vectors) // 3)) + 1)
        found = {count: run_kmeans(reduced, count, seed) for count in counts}
        silhouettes = {count: measure_silhouette(apart, labels_of[sample]) for count, labels_of in found.items()}
        labels = found[max(silhouettes, key=lambda count: silhouettes[count])]
    labels = order_by_size(labels)
    centres = np.stack([reduced[labels == label].mean(0) for label in range(labels.max() + 1)])
    points = np.pad(reduced[:, :2], ((0, 0), (0, max(0, 2 - reduced.shape[1]))))
    return VectorGroups(labels, np.linalg.norm(reduced - centres[labels], axis=1), points, explained, silhouettes)


def find_components(centred: Floats, seed: int) -> tuple[Floats, list[float]]:
    """(N, K) coordinates on the first principal components and the shares of the variance of the first two. Signs are fixed: the largest coordinate
    of each is positive.
    """
    from scipy.sparse.linalg import svds  # type: ignore[import-untyped]  # here, because a worker's start need not wait for it

    data = (centred - centred.mean(0, keepdims=True)).astype(np.float64)
    total = float((data**2).sum())
    count = min(REDUCED, min(data.shape) - 1)
    if count < 1 or total < SAME**2:
        return np.zeros((len(data), 2), dtype=np.float32), [0.0, 0.0]
    left, sizes, _ = svds(data, k=count, rng=np.random.default_rng(seed))
    order = np.argsort(-sizes)
    found = left[:, order] * sizes[order]
    found *= np.sign(found[np.abs(found).argmax(0), np.arange(count)])
    shares = [float(size**2 / total) for size in sizes[order][:2]]
    return found.astype(np.float32), [*shares, 0.0][:2]


def run_kmeans(data: Floats, count: int, seed: int) -> npt.NDArray[np.int64]:
    """(N,) labels of the best of RESTARTS runs, which is the one with the smallest sum of squared distances."""
    from scipy.cluster.vq import kmeans2  # type: ignore[import-untyped]

    best: tuple[float, Any] = (np.inf, None)
    for restart in range(RESTARTS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty cluster: there are fewer, and another restart may find more
            centres, labels = kmeans2(data.astype(np.float64), count, iter=ROUNDS, minit="++", rng=np.random.default_rng([seed, count, restart]))
        error = float(((data - centres[labels]) ** 2).sum())
        if best[1] is None or error < best[0]:
            best = (error, labels)
    found: npt.NDArray[np.int64] = best[1].astype(np.int64)
    return found


def measure_distances(data: Floats) -> Floats:
    """(M, M) Euclidean distances."""
    from scipy.spatial.distance import pdist, squareform  # type: ignore[import-untyped]

    found: Floats = squareform(pdist(data)).astype(np.float32)
    return found


def measure_silhouette(distances: Floats, labels: npt.NDArray[np.int64]) -> float:
    """Mean over M vectors of (b - a) / max(a, b), with a the mean distance to the others of its cluster, b that to the nearest other cluster; 0 for a
    vector alone in its cluster, and where there is only one (Rousseeuw 1987).
    """
    _, places = np.unique(labels, return_inverse=True)
    sizes = np.bincount(places)
    if len(sizes) < 2:
        return 0.0
    rows = np.arange(len(places))
    sums = distances @ np.eye(len(sizes), dtype=np.float32)[places]  # (M, K)
    own = sums[rows, places] / np.maximum(sizes[places] - 1, 1)
    others = sums / sizes
    others[rows, places] = np.inf
    nearest = others.min(1)
    values = np.where(sizes[places] > 1, (nearest - own) / np.maximum(np.maximum(own, nearest), 1e-12), 0.0)
    return float(values.mean())


def order_by_size(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The same clusters numbered from 0, the largest first."""
    names, places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[np.argsort(-sizes, kind="stable")] = np.arange(len(names))
    return ranks[places]
