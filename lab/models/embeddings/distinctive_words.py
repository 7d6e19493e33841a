"""Words more frequent in one cluster than elsewhere: log-odds ratios with an informative Dirichlet prior (Monroe, Colaresi and Quinn 2008)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

WORD = re.compile(r"\w{1,40}")
MOST_CHARACTERS = 8000  # of a text
LISTED = 8
LEAST_Z = 1.96  # of a word that is listed
PRIOR = 10.0  # words that the prior counts as, spread as in all clusters together


def collect_words(text: str) -> set[str]:
    """Once each, so that a text that repeats itself counts no more than another."""
    return set(WORD.findall(text[:MOST_CHARACTERS].lower()))


def find_distinctive_words(texts: Iterable[str], labels: Sequence[int]) -> list[list[dict[str, Any]]]:
    """For each label from 0: [{"word", "share", "rest", "z"}], the most distinctive first. ``share`` and ``rest``: of the texts in the cluster and
    outside that have the word; ``z``: the log-odds ratio over its standard deviation.
    """
    clusters = [Counter[str]() for _ in range(max(labels, default=-1) + 1)]
    for text, label in zip(texts, labels, strict=True):
        clusters[label].update(collect_words(text))
    everything = Counter[str]()
    for counts in clusters:
        everything.update(counts)
    sizes, total = Counter(labels), everything.total()
    found = []
    for label, counts in enumerate(clusters):
        others = len(labels) - sizes[label]
        scored: list[dict[str, Any]] = []
        for word, count in counts.items():
            z = score_word(count, counts.total(), everything[word], total)
            if z >= LEAST_Z:
                rest = (everything[word] - count) / others if others else 0.0
                scored.append({"word": word, "share": count / sizes[label], "rest": rest, "z": z})
        found.append(sorted(scored, key=lambda one: (-one["z"], one["word"]))[:LISTED])
    return found


def score_word(count: int, size: int, everywhere: int, total: int) -> float:
    """z of a word that is ``count`` of ``size`` words inside and ``everywhere`` of ``total`` in all."""
    prior = PRIOR * everywhere / total
    outside, rest = everywhere - count, total - size
    if not rest:
        return 0.0
    inside_odds = math.log((count + prior) / (size + PRIOR - count - prior))
    outside_odds = math.log((outside + prior) / (rest + PRIOR - outside - prior))
    return (inside_odds - outside_odds) / math.sqrt(1 / (count + prior) + 1 / (outside + prior))
