"""MRT: each turn is paid by the progress it makes towards an answer that could be given at once (arXiv 2503.07572).

J_j = share right of m answers that the policy gives when it is made to answer after turn j;  J_T = the episode's own outcome, 0 or 1
r_j = J_j - J_{j-1}
A_j = A + alpha r_j      for every token of turn j; A is the base's advantage of the outcome

The last turn's r is the outcome minus the mean of the answers forced before it: the termination baseline of the authors' training. The prefix counts
as given, so a turn has its own progress alone, not that of later ones. It differs from GRPO in the second term; with alpha = 0 it is GRPO.

The authors cut a chain of thought into episodes; here the turns of an episode with tools are they, and an answer is forced by its opening tag. A turn
that brings nothing has no progress, one that leads astray has less than none. Step time: m short answers after each turn, sampled together; equal
contexts of a group are asked once.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import pad_turns, spread_turns
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node

ANSWER = "<answer>"
PROGRESS = "progress"  # in the notes of a completion: r of each of its turns


def measure_progress(values: Sequence[float], outcome: float) -> list[float]:
    """J before each of T turns, and the episode's outcome -> r of the T turns."""
    return [after - before for before, after in pairwise([*values, outcome])]


def measure_regret(values: Sequence[float], best: float = 1.0) -> float:
    """What answering at each of these places loses against ``best``, in all."""
    return sum(best - value for value in values)


class Config(Strict):
    alpha: float = param(
        0.5, "Weight of the progress beside the outcome; 0 is the base. Ours: 0.1 to 1.", title="Progress weight (alpha)", ge=0, le=100
    )
    samples: int = param(4, "Answers that are forced after a turn.", title="Forced answers (m)", ge=1, le=64)


class MRT(Method):
    card = Card(
        name="mrt",
        title="Progress of turns, by forced answers",
        arxiv="2503.07572",
        system="MRT",
        base="grpo",
        provenance="abstract",
        source="abstract; README of github CMU-AIRe/MRT (rollout reward minus termination reward); summaries of others for r_prg and the regret",
        fit="core",
        idea="After each turn, make the policy answer at once: what the turn adds to the share of right answers is its reward.",
        formula=(
            r"r_j = J_j - J_{j-1}, \quad J_j = P_\mu(\text{right} \mid x, z_{\le j})",
            r"A_j = A + \alpha\, r_j",
        ),
        reading="alpha, m and the sum with the base's advantage are ours; the authors train one prefix of each trace at a time.",
        departures=("Turns of an episode with tools take the place of the parts of a chain of thought.",),
        claim=("heldout/length", "lower"),
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"row_advantages": "maps"}
    idle = {"row_advantages": ("alpha", 0.0)}
    worlds = frozenset({"graph", "search", "sums", "tables"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        leaves = session.play([episode.root for episode in session.begin()])
        starts = [[node for node in leaf.episode.path(leaf) if node.by in ("prompt", "world")] for leaf in leaves]
        values = self.force_answers(session, [node for path in starts for node in path if not node.finish])
        notes = {}
        for number, (leaf, path) in enumerate(zip(leaves, starts, strict=True)):
            turns = len(leaf.episode.turns(leaf))
            own = [values[id(node)] for node in path if id(node) in values][:turns]
            notes[number] = {PROGRESS: measure_progress(own, float(session.is_right(leaf)))}
            self.log("regret", measure_regret(own))
            self.log("forced_at_the_start", own[0])
            self.log("forced_before_the_end", own[-1])
        return session.finish(leaves, notes=notes)

    def force_answers(self, session: "Session", nodes: "Sequence[Node]") -> dict[int, float]:
        """J at each node: by its identity. What was sampled for it stays in the tree as abandoned and is never trained on."""
        keys = [(id(node.episode.example), *(tuple(part) for part in node.episode.context_ids(node))) for node in nodes]
        asked = dict(zip(reversed(keys), reversed(nodes), strict=True))  # the first node of each context
        shares = session.success(list(asked.values()), self.config.samples, force=ANSWER)
        found = dict(zip(asked, shares, strict=True))
        for node, key in zip(nodes, keys, strict=True):
            node.notes["forced"] = found[key]
        return {id(node): found[key] for node, key in zip(nodes, keys, strict=True)}

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        turns = batch.turns()
        progress = [batch.rollout.notes[member].get(PROGRESS, []) for member in batch.members.tolist()]
        spread = spread_turns(pad_turns(progress, int(turns.max()) + 1).to(advantages), turns)
        return advantages + self.config.alpha * spread

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Right answers when forced",
                (Series(f"{name}/forced_before_the_end", "before the last turn"), Series(f"{name}/forced_at_the_start", "at once", dashed=True)),
            ),
            Panel("Regret of an episode", (Series(f"{name}/regret", "sum of 1 - J over its turns"),)),
        )
