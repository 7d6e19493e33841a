"""DSP+: lemmas are drafted, what is wrong in the sketch is masked, and a prover searches each gap between them (arXiv 2506.11487).

Draft: a planner names lemmas, numbers on a way from start to goal.  Sketch: each lemma is a goal of its own after the one before it; a line that the
world cannot read is left out.  Prove: a best-first search with the policy for each gap, all gaps of all problems together.
    solved iff every gap is closed, and the world accepts the proof as a whole.
A gap of half the depth has a search of far fewer positions. Proofs of gaps are kept in the store and used again. Nothing is trained. With no lemmas
it is the best-first search alone.

The planner is a rule that knows a shortest way and errs in a share of its lemmas (``errors``); the paper has a reasoning model for the draft and
another one for the sketch. A lemma in error that the world can read stays, and its gap may then be out of reach, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.rollouts.search_strategies import BestFirst
from trainers.rollouts.search_tree import score_positions, write_step
from trainers.worlds.rewrites import MOST, RULES, find_way, make_example

if TYPE_CHECKING:
    import random

    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.search_tree import SearchTree
    from trainers.rollouts.tree import Node
    from trainers.tasks.base import Example

LEMMAS = "lemmas"  # list of the store: start, goal and the turns that lead there


@dataclass
class Gap:
    """A goal of the sketch. ``moves``: what its proof may take. ``proof``: its turns; None while it is open. ``trees``: of its searches."""

    start: int
    goal: int
    moves: int
    proof: list[str] | None = None
    trees: "list[SearchTree]" = field(default_factory=list)

    @property
    def expanded(self) -> int:
        return sum(tree.expanded for tree in self.trees)


@dataclass
class Sketch:
    gaps: list[Gap]
    masked: int = 0  # lemmas that were left out

    @property
    def expanded(self) -> int:
        return sum(gap.expanded for gap in self.gaps)


def draft_lemmas(start: int, way: Sequence[str], count: int) -> list[tuple[int, int]]:
    """Numbers on a way that divide it into equal parts, each with the moves made until then: ``count``, or as many as there are between its ends."""
    numbers = list(accumulate(way, lambda number, rule: RULES[rule](number), initial=start))
    count = min(count, len(way) - 1)
    places = [round((place + 1) * len(way) / (count + 1)) for place in range(count)]
    return [(numbers[place], place) for place in places]


def mask_errors(lemmas: Sequence[tuple[int, int]], ends: tuple[int, int]) -> list[tuple[int, int]]:
    """The lemmas that the world can read: numbers of its range, each another one than that before it and than the goal."""
    kept, before = list[tuple[int, int]](), ends[0]
    for number, place in lemmas:
        if 0 <= number <= MOST and number not in (before, ends[1]):
            kept.append((number, place))
            before = number
    return kept


def list_gaps(start: int, goal: int, lemmas: Sequence[tuple[int, int]], shortest: int, moves: int) -> list[Gap]:
    """The gaps between the lemmas. Moves beyond the shortest way are given to the first gaps, one each, and what is left of them to the last."""
    numbers, places = [start, *(number for number, _ in lemmas), goal], [0, *(place for _, place in lemmas), shortest]
    parts, spare = list(pairwise(places)), moves - shortest
    given = [1 if number < spare else 0 for number in range(len(parts))]
    given[-1] += max(0, spare - len(parts))
    return [Gap(one, other, end - begin + more) for (one, other), (begin, end), more in zip(pairwise(numbers), parts, given, strict=True)]


class Config(Strict):
    lemmas: int = param(2, "Lemmas that are drafted for a problem; 0: the search alone.", title="Lemmas", ge=0, le=8)
    errors: float = param(0.0, "Share of the lemmas in which the planner errs.", title="Planner's errors", ge=0, le=1)
    nodes: int = param(24, "Positions of a problem that are expanded, shared out among its gaps (our value).", title="Expansions", ge=1, le=10_000)
    samples: int = param(4, "Turns sampled from a position; equal ones are one step.", title="Turns per expansion", ge=1, le=64)
    attempts: int = param(4, "Searches of a gap that stays open, until its expansions are used up.", title="Searches of a gap", ge=1, le=64)
    power: float = param(0.5, "Exponent of the path's length in its priority (our value).", title="Length exponent", ge=0, le=1, advanced=True)
    cache: bool = param(True, "Use the proofs of earlier gaps again.", title="Keep lemmas")


class DSPPlus(Method):
    card = Card(
        name="dsp-plus",
        title="Draft, sketch and prove",
        arxiv="2506.11487",
        system="DSP+",
        base="procedure",
        provenance="code",
        source="github microsoft/DSP-Plus: README, dsp/prove.py; the abstract",
        fit="needs-environment",
        idea="Draft lemmas, mask what is wrong in the sketch, and let a step prover search the gaps between them; no weight changes.",
        formula=(
            r"x_0 \to g_1 \to \dots \to g_K \to x^*, \quad \text{solved} \iff \forall k: g_{k-1} \to g_k \text{ is closed}",
            r"\sum_k |T(g_{k-1} \to g_k)| \ll |T(x_0 \to x^*)|",
        ),
        departures=(
            "A rule that knows a way drafts the lemmas and errs as often as it is told to; the paper has two language models for draft and sketch.",
            "Numbers and their rewriting take the place of statements in Lean; there are no symbolic tactics beside the policy's steps.",
            "A gap that stays open is not drafted anew.",
        ),
        claim=("procedure/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"rollout"})
    worlds = frozenset({"rewrites"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        sketches = [self.draw_sketch(example, session.rng) for example in session.examples]
        self.recall_proofs(sketches)
        for count in sorted({len(sketch.gaps) for sketch in sketches}):
            self.close_gaps(session, [gap for sketch in sketches if len(sketch.gaps) == count for gap in sketch.gaps if gap.proof is None], count)
        if self.config.cache and session.learns:
            self.keep_proofs(sketches)
        leaves = [write_proof(session, episode.root, sketch) for episode, sketch in zip(session.begin(), sketches, strict=True)]
        self.report(session, sketches, leaves)
        return session.finish(leaves)

    def draw_sketch(self, example: "Example", rng: "random.Random") -> Sketch:
        data = example.data
        way = find_way(data["start"], data["goal"], data["moves"])
        assert way is not None  # the world asks for nothing else
        drafted = draft_lemmas(data["start"], way, self.config.lemmas)
        told = [(rng.randint(-MOST, 2 * MOST) if rng.random() < self.config.errors else number, place) for number, place in drafted]
        lemmas = mask_errors(told, (data["start"], data["goal"]))
        return Sketch(list_gaps(data["start"], data["goal"], lemmas, len(way), data["moves"]), len(told) - len(lemmas))

    def close_gaps(self, session: "Session", gaps: Sequence[Gap], count: int) -> None:
        """Searches gaps whose problems have ``count`` of them, again and again while one is open and has expansions left."""
        budget = max(1, self.config.nodes // count)
        for _ in range(self.config.attempts):
            by_room: dict[int, list[Gap]] = {}
            for gap in gaps:
                if gap.proof is None and gap.expanded < budget:
                    by_room.setdefault(budget - gap.expanded, []).append(gap)
            for room, some in by_room.items():
                self.search_gaps(session, some, room)

    def search_gaps(self, session: "Session", gaps: Sequence[Gap], nodes: int) -> None:
        roots = [session.begin_at(make_example(gap.start, gap.goal, gap.moves, gap.moves), group=place).root for place, gap in enumerate(gaps)]
        how = BestFirst(nodes, self.run.task.max_turns)
        trees = session.search(roots, how, self.config.samples, partial(score_positions, power=self.config.power), session.is_right)
        for gap, tree in zip(gaps, trees, strict=True):
            gap.trees.append(tree)
            if tree.goal is not None:
                gap.proof = list_turns(tree, tree.goal)

    def recall_proofs(self, sketches: Sequence[Sketch]) -> None:
        known = {(item["start"], item["goal"]): item["turns"] for item in self.run.store.items(LEMMAS)} if self.config.cache else {}
        for gap in (gap for sketch in sketches for gap in sketch.gaps):
            turns = known.get((gap.start, gap.goal))
            if turns is not None and len(turns) <= gap.moves:
                gap.proof = list(turns)

    def keep_proofs(self, sketches: Sequence[Sketch]) -> None:
        """The shortest proof of each gap that was closed."""
        known = {(item["start"], item["goal"]): item for item in self.run.store.items(LEMMAS)}
        for gap in (gap for sketch in sketches for gap in sketch.gaps if gap.proof is not None):
            key = (gap.start, gap.goal)
            if key not in known or len(gap.proof or ()) < len(known[key]["turns"]):
                known[key] = {"start": gap.start, "goal": gap.goal, "turns": gap.proof}
        self.run.store.replace(LEMMAS, list(known.values()))

    def report(self, session: "Session", sketches: Sequence[Sketch], leaves: "Sequence[Node]") -> None:
        count = len(sketches)
        gaps = [gap for sketch in sketches for gap in sketch.gaps]
        self.log("expanded", sum(sketch.expanded for sketch in sketches) / count)
        self.log("gaps_closed", sum(gap.proof is not None for gap in gaps) / len(gaps))
        self.log("masked", sum(sketch.masked for sketch in sketches) / count)
        self.log("recalled", sum(gap.proof is not None and not gap.trees for gap in gaps) / len(gaps))
        self.log("solved", sum(map(session.is_right, leaves)) / count)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Positions expanded for a problem",
                (Series(f"{name}/expanded", "in a round"), Series(f"heldout/{name}/expanded", "held out", dashed=True)),
            ),
            Panel("Gaps", (Series(f"{name}/gaps_closed", "closed"), Series(f"{name}/recalled", "by a proof that was kept"))),
            Panel("Lemmas that were masked, of a problem", (Series(f"{name}/masked", "mean"),)),
        )


def list_turns(tree: "SearchTree", end: "Node") -> list[str]:
    return [write_step(tree.above[position], position) for position in tree.path(end)[1:]]


def write_proof(session: "Session", root: "Node", sketch: Sketch) -> "Node":
    """The sketch's proof as an episode of the whole problem; up to the first gap that is open, then its search's best path."""
    node = root
    for gap in sketch.gaps:
        turns = gap.proof if gap.proof is not None or not gap.trees else list_turns(gap.trees[-1], gap.trees[-1].best)
        for turn in turns or ():
            if node.finish:
                break
            node = session.force(node, turn, whole=not turn.endswith(tuple(session.run.task.stop)))
        if gap.proof is None:
            break
    return node if node is not root else session.force(root, "", whole=True)
