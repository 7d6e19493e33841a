"""Small causal graphs: name the arrows that explain how variables go together, with as few of them as will do and no cycle. After GUIDE.

``A B C: AB 80, AC 64, BC 80. Arrows?`` says how strongly each two of the variables are correlated, in hundredths. It wants ``<answer>A>B
B>C</answer>``, or any other graph that fits as well; ``none`` is the graph without arrows. The fit is the Bayesian information criterion of linear
relations with these correlations, as if they came from 100 samples; a graph with cycles is fitted variable by variable, so that fit and acyclicity
can be at odds.

GUIDE (arXiv 2509.23992) finds causal graphs of many variables from data and a prior that a language model wrote. Here the policy writes the graph
itself; the reward's two parts are those of its score, as we read the abstract.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, make_rewards
from trainers.worlds.causal_scores import Arrow, Matrix, compute_correlations, find_best_graph, measure_cycles, score_graph
from trainers.worlds.tool_use import ToolWorld, write_answer

NAMES, NONE = "ABCD", "none"
SIZES = {"easy": (3, 1, 2), "medium": (3, 2, 3), "hard": (4, 2, 4)}  # variables, fewest and most arrows


class CausalGraphs(ToolWorld):
    name = "causal_graphs"
    title = "Small causal graphs"
    summary = "Name the arrows between variables that explain their correlations, without a cycle."
    difficulties = {"easy": "3 variables, 1 or 2 arrows.", "medium": "3 variables, 2 or 3 arrows.", "hard": "4 variables, 2 to 4 arrows."}
    demonstrations = (
        "Of mixed quality by design: 50 % name a graph of the best fit, 30 % every strong correlation as an arrow, 20 % arrows at random."
    )
    max_turns = 1
    max_turn_tokens = 40
    episode_tokens = 56

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        correct = ("1 when no graph without a cycle fits better, and it has none.", 1.0)
        form = ("1 when the answer is a graph of these variables.", 0.0)
        fit = ("Share of the best graph's gain over no arrows that it reaches, 0 to 1.", 0.0)
        acyclic = ("1 / (1 + h), h = tr(exp(A)) - d of the graph's matrix A: 1 without cycles.", 0.0)
        self.rewards = make_rewards(self, {"correct": correct, "fit": fit, "acyclic": acyclic, "format": form})

    def example(self, rng: random.Random, difficulty: str) -> Example:
        count, fewest, most = SIZES[difficulty]
        order = rng.sample(range(count), count)
        pairs = rng.sample(list(itertools.combinations(order, 2)), rng.randint(fewest, most))
        weights = tuple((i, j, rng.randint(10, 30) / 20) for i, j in sorted(pairs, key=lambda pair: order.index(pair[1])))
        told = [[i, j, round(100 * share)] for (i, j), share in compute_correlations(count, weights).items()]
        words = ", ".join(f"{NAMES[i]}{NAMES[j]} {share}" for i, j, share in told)
        best = find_best_graph(fill_matrix(count, told))
        return Example([Message("user", f"{' '.join(NAMES[:count])}: {words}. Arrows?")], write_graph(best), {"count": count, "told": told})

    def begin_calls(self, example: Example) -> State:
        return {}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        made = super().step(example, state, seat, text, rng)
        return replace(made, reward=self.outcome(example, made.state)[POLICY]["correct"])

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        matrix = read_matrix(example)
        graph = parse_graph(state["answer"] or "", len(matrix))
        if graph is None:
            return {POLICY: {"correct": 0.0, "fit": 0.0, "acyclic": 0.0, "format": 0.0}}
        best, empty, own = (score_graph(matrix, one) for one in (find_best_graph(matrix), (), graph))
        cycles, is_best = measure_cycles(graph, len(matrix)), own <= best + 1e-9
        fit = min(1.0, max(0.0, (empty - own) / (empty - best))) if empty > best + 1e-9 else float(is_best)
        return {POLICY: {"correct": float(is_best and not cycles), "fit": fit, "acyclic": 1 / (1 + cycles), "format": 1.0}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        return [write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        shares, kind = {(i, j): share for i, j, share in example.data["told"]}, rng.random()
        drawn = [rng.choice((pair, pair[::-1])) for pair in rng.sample(list(shares), rng.randint(0, len(shares)))]
        other = write_graph([pair for pair in shares if shares[pair] > 50] if kind < 0.8 else drawn)
        return self.tell_turns(example, [write_answer(example.reference if kind < 0.5 else other)])


def read_matrix(example: Example) -> Matrix:
    """The correlations that the prompt tells; of no variables for an example that does not say them."""
    return fill_matrix(example.data.get("count", 0), example.data.get("told", ()))


def fill_matrix(count: int, told: Iterable[Sequence[int]]) -> Matrix:
    """``told``: two variables and their correlation in hundredths."""
    shares = {(i, j): share / 100 for i, j, share in told}
    return tuple(tuple(1.0 if i == j else shares[min(i, j), max(i, j)] for j in range(count)) for i in range(count))


def write_graph(arrows: Iterable[Arrow]) -> str:
    return " ".join(f"{NAMES[i]}>{NAMES[j]}" for i, j in sorted(arrows)) or NONE


def parse_graph(text: str, count: int) -> tuple[Arrow, ...] | None:
    """None for what is no graph of ``count`` variables, each arrow named once."""
    known = {f"{NAMES[i]}>{NAMES[j]}": (i, j) for i, j in itertools.permutations(range(count), 2)}
    named = [] if text == NONE else text.split()
    return tuple(known[one] for one in named) if set(named) <= set(known) and len(set(named)) == len(named) and (named or text == NONE) else None
