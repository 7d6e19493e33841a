"""Which share of a batch comes from which bucket of difficulty: a Gaussian that moves from the easiest to the hardest, mixed with a fixed bias."""

import math
from collections.abc import Sequence


def compute_bucket_mixture(step: int, total: int, bias: Sequence[float], *, power: float, width: float, mix: tuple[float, float]) -> list[float]:
    """p_k of the K = len(bias) buckets at step t (from 0) of T; sums to 1.

    x_t = (t / (T - 1))^power (K - 1); g_k ~ exp(-(x_t - k)^2 / (2 width^2)); eta_t goes linearly from ``mix[0]`` to ``mix[1]``;
    p = (1 - eta_t) g + eta_t q with q = ``bias`` normalised. A run of one step has equal shares, as in GraphDancer's sampler.
    """
    count = len(bias)
    if total <= 1:
        return [1 / count] * count
    time = min(step, total - 1) / (total - 1)
    centre = time**power * (count - 1)
    gauss = [math.exp(-((centre - place) ** 2) / (2 * width**2)) for place in range(count)]
    share = mix[0] + (mix[1] - mix[0]) * time
    return [(1 - share) * own / sum(gauss) + share * fixed / sum(bias) for own, fixed in zip(gauss, bias, strict=True)]


def weigh_examples(buckets: Sequence[int], shares: Sequence[float]) -> list[float]:
    """Sampling weights under which bucket k has the share ``shares[k]``; what an empty bucket should have goes to the others."""
    sizes = [buckets.count(place) for place in range(len(shares))]
    return [shares[bucket] / sizes[bucket] for bucket in buckets]
