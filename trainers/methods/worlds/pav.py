"""PAV: each turn is paid by its advantage under a prover, another policy than the one that is trained (arXiv 2410.08146).

Q^mu(s) = 1 - (1 - Q^pi(s))^K                      the prover mu: best of K answers of the policy itself
A^mu_h = Q^mu(s_h) - Q^mu(s_{h-1})                 s_h: the state after turn h; after the last it is the outcome, 0 or 1
A_h = A + alpha A^mu_h                             for every token of turn h; A is the base's advantage of the outcome

Q^pi is the share right of n continuations from the state. The effective reward of the paper is Q^pi(s_h, a_h) + alpha A^mu_h; the outcome, which A is
made from, is an unbiased sample of the first. A weak prover fails from everywhere and a strong one succeeds from everywhere, so both have advantages
near 0; with K = 1 the prover is the policy, whose own advantages tell its gradient nothing new. It differs from GRPO in the second term; with
alpha = 0 it is GRPO. Step time: n whole continuations after each turn, sampled together; equal contexts of a group are played once.
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

ADVANTAGES = "prover_advantages"  # in the notes of a completion: A^mu of each of its turns


def compute_best_of(value: float, count: int) -> float:
    """The chance that one of ``count`` answers is right."""
    return 1.0 - (1.0 - value) ** count


def compute_prover_advantages(values: Sequence[float], outcome: float, count: int) -> list[float]:
    """Q^pi before each of T turns, and the episode's outcome -> A^mu of the T turns."""
    return [after - before for before, after in pairwise([compute_best_of(value, count) for value in (*values, outcome)])]


class Config(Strict):
    alpha: float = param(1.0, "Weight of the prover's advantages; 0 is the base. Ours: the paper sweeps it.", title="Weight (alpha)", ge=0, le=100)
    count: int = param(4, "Answers that the prover may give, of which the best counts; 1: the policy itself.", title="Best of (K)", ge=1, le=1024)
    samples: int = param(4, "Continuations that a state's value is the mean of.", title="Continuations (n)", ge=1, le=64)


class PAV(Method):
    card = Card(
        name="pav",
        title="Advantages of turns under a prover",
        arxiv="2410.08146",
        system="PAV",
        base="grpo",
        provenance="paper",
        source="paper, sections 3 to 5",
        fit="core",
        idea="Reward a step by how much it raises the chance of a complementary prover, the best of a few answers of the policy, to succeed.",
        formula=(
            r"Q^{\mu}(s) = 1 - (1 - Q^{\pi}(s))^K",
            r"A_h = A + \alpha\,\left(Q^{\mu}(s_h) - Q^{\mu}(s_{h-1})\right)",
        ),
        departures=(
            "Values are means of continuations from the state; the paper fits a verifier to them.",
            "Turns of an episode with tools are the steps.",
            "GRPO's advantages stand for the value of the policy; the search at test time is not implemented.",
        ),
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"row_advantages": "maps"}
    idle = {"row_advantages": ("alpha", 0.0)}
    worlds = frozenset({"graph", "interview", "rewrites", "rooms", "search", "sums", "tables"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        leaves = session.play([episode.root for episode in session.begin()])
        starts = [[node for node in leaf.episode.path(leaf) if node.by in ("prompt", "world")] for leaf in leaves]
        values = self.measure_values(session, [node for path in starts for node in path if not node.finish])
        notes = {}
        for number, (leaf, path) in enumerate(zip(leaves, starts, strict=True)):
            own = [values[id(node)] for node in path if id(node) in values][: len(leaf.episode.turns(leaf))]
            gains = compute_prover_advantages(own, float(session.is_right(leaf)), self.config.count)
            notes[number] = {ADVANTAGES: gains}
            self.log("size", sum(map(abs, gains)) / len(gains))
            self.log("prover", compute_best_of(own[0], self.config.count))
            self.log("policy", own[0])
        return session.finish(leaves, notes=notes)

    def measure_values(self, session: "Session", nodes: "Sequence[Node]") -> dict[int, float]:
        """Q^pi at each node: by its identity. The continuations stay in the tree as abandoned and are never trained on."""
        keys = [(id(node.episode.example), *(tuple(part) for part in node.episode.context_ids(node))) for node in nodes]
        asked = dict(zip(reversed(keys), reversed(nodes), strict=True))  # the first node of each context
        found = dict(zip(asked, session.success(list(asked.values()), self.config.samples), strict=True))
        for node, key in zip(nodes, keys, strict=True):
            node.notes["value"] = found[key]
        return {id(node): found[key] for node, key in zip(nodes, keys, strict=True)}

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        turns = batch.turns()
        gains = [batch.rollout.notes[member].get(ADVANTAGES, []) for member in batch.members.tolist()]
        spread = spread_turns(pad_turns(gains, int(turns.max()) + 1).to(advantages), turns)
        return advantages + self.config.alpha * spread

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Success from the prompt", (Series(f"{name}/prover", "prover"), Series(f"{name}/policy", "policy", dashed=True))),
            Panel("Size of the prover's advantages", (Series(f"{name}/size", "mean of |A|"),)),
        )
