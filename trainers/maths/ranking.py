"""Measures of an order of retrieval. Imports no torch."""

import math
from collections.abc import Collection, Hashable, Sequence


def compute_dcg(relevances: Sequence[float]) -> float:
    """Discounted cumulative gain: sum_i (2^rel_i - 1) / log2(i + 1), i from 1."""
    return math.fsum((2**relevance - 1) / math.log2(place + 1) for place, relevance in enumerate(relevances, 1))


def compute_ndcg(retrieved: Sequence[Hashable], needed: Collection[Hashable]) -> float:
    """DCG of what was retrieved, in its order, over that of an order that begins with all that is needed: from 0 to 1.

    What is needed has relevance 1, the rest 0. An item counts where it was retrieved first. Needed items that were never retrieved cost as much as
    ones at the end of an endless list. 0 where nothing is needed.
    """
    wanted = set(needed)
    ideal = compute_dcg([1.0] * len(wanted))
    return compute_dcg([float(item in wanted) for item in dict.fromkeys(retrieved)]) / ideal if ideal else 0.0
