"""What several answers to one prompt say of a policy: how many prompts n of them solve, and how its right answers are spread."""

import math
import statistics
from collections.abc import Sequence


def estimate_pass_at(count: int, right: int, size: int) -> float:
    """Unbiased estimate of the chance that at least one of ``count`` answers is right, from ``right`` of ``size``: 1 - C(N-c, n) / C(N, n).

    After arXiv 2107.03374. Raises ValueError for more answers than there are: that has no unbiased estimate.
    """
    if not 0 < count <= size:
        raise ValueError(f"pass@{count} cannot be estimated from {size} answers")
    return 1.0 - math.comb(size - right, count) / math.comb(size, count)


def score_early_success(tokens: int, is_right: bool, budget: int) -> float:
    """Share of a budget of tokens in which the problem is solved: 1 - T / H for a right answer of T tokens, 0 for a wrong one."""
    return max(0.0, 1.0 - tokens / budget) if is_right else 0.0


def compute_heterogeneity(scores: Sequence[float]) -> float | None:
    """Variance of the scores of a prompt's right answers, which are above 0 (arXiv 2502.12118); None where fewer than two are right."""
    right = [score for score in scores if score > 0]
    return statistics.pvariance(right) if len(right) > 1 else None


def compute_anti_concentration(scores: Sequence[float], distance: float = 1.0) -> float:
    """Share of a prompt's answers that score at least ``distance`` standard deviations above the mean of all; 0 where all score the same."""
    mean, deviation = statistics.fmean(scores), statistics.pstdev(scores)
    if deviation == 0.0:
        return 0.0
    return sum(score >= mean + distance * deviation for score in scores) / len(scores)
