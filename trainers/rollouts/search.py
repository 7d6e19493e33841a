"""Search over turns from any number of nodes at once.

In each round every tree names the positions it wants, and those of all trees are expanded in one call and valued in one call, so that nothing is
sampled one by one.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

from trainers.rollouts.engine import Engine
from trainers.rollouts.search_strategies import Strategy, can_expand
from trainers.rollouts.search_tree import SearchTree, keep_paths, list_step_logprobs, write_step
from trainers.rollouts.tree import Node

Expand = Callable[[Sequence[Node]], Sequence[Sequence[Node]]]  # of each position: the positions that its steps lead to
Value = Callable[[Sequence[Node]], Sequence[float]]
Until = Callable[[Node], bool]
Prior = Literal["share", "likelihood"]
Keep = Literal["best", "all"]

REPEATED = "the same step again"


def search_trees(
    roots: Sequence[Node], how: Strategy, expand: Expand, value: Value, until: Until | None = None, keep: Keep = "best"
) -> list[SearchTree]:
    """One tree for each root, in order. No position is expanded or valued twice.

    ``until``: the search of a tree is over at the first ended episode that it says yes to. ``keep``: ``best`` leaves the path to ``SearchTree.best``
    alone in the episode and gives the rest up, so that nothing else of what was sampled is trained on; ``all`` leaves everything.
    Raises ValueError for a root that is given twice.
    """
    if len(set(roots)) != len(roots):
        raise ValueError("a root is searched once: open an episode for each search")
    trees = [SearchTree(root) for root in roots]
    while picked := [(tree, node) for tree in trees for node in how.pick(tree)]:
        expand_positions([(tree, node) for tree, node in picked if can_expand(how, tree, node)], expand, until)
        wanted = [(tree, one) for tree, node in picked for one in how.list_valued(tree, node) if one not in tree.values]
        give_values(wanted, value)
        for tree, node in picked:
            how.settle(tree, node)
        for tree in dict.fromkeys(tree for tree, _ in picked):
            tree.rounds += 1
    if keep == "best":
        for tree in trees:
            keep_paths(tree, [tree.best])
    return trees


def expand_positions(places: Sequence[tuple[SearchTree, Node]], expand: Expand, until: Until | None) -> None:
    made = expand([node for _, node in places]) if places else []
    for (tree, node), steps in zip(places, made, strict=True):
        tree.add(node, steps)
        if until is not None and tree.goal is None:
            tree.goal = next((step for step in steps if step.finish and until(step)), None)


def give_values(wanted: Sequence[tuple[SearchTree, Node]], value: Value) -> None:
    found = value([node for _, node in wanted]) if wanted else []
    for (tree, node), worth in zip(wanted, found, strict=True):
        tree.values[node] = node.notes["value"] = float(worth)


def sample_steps(
    engine: Engine, at: Sequence[Node], count: int, *, temperature: float | None = None, max_tokens: int = 0, prior: Prior = "share"
) -> list[list[Node]]:
    """``count`` turns from each position; those with the same words are one step, and the later ones are given up.

    ``prior`` of a step: the ``share`` of the turns that say it (Sampled MuZero, arXiv 2104.06303), or its ``likelihood``, the geometric mean of the
    probabilities of its tokens, which do not sum to 1. A position whose context is full has no steps and is over.
    """
    played = engine.play([node for node in at for _ in range(count)], turns=1, max_tokens=max_tokens, temperature=temperature)
    made = []
    for place, node in enumerate(at):
        ends = [end for end in played[place * count : (place + 1) * count] if end is not node]
        by_words: dict[str, list[Node]] = {}
        for end in ends:
            by_words.setdefault(write_step(node, end), []).append(end)
        for first, *repeated in by_words.values():
            for end in repeated:
                node.episode.give_up(end, "abandoned", REPEATED, node)
            logprobs = list_step_logprobs(node, first)
            likelihood = math.exp(math.fsum(logprobs) / max(1, len(logprobs)))
            first.notes["prior"] = (1 + len(repeated)) / len(ends) if prior == "share" else likelihood
        made.append([same[0] for same in by_words.values()])
    return made
