"""ARPO: a group is a few rollouts from the prompt, which fork where a tool's answer leaves the policy uncertain (arXiv 2507.19849).

H_t = 1 / log V  sum over the first ``entropy_tokens`` tokens of turn t of their entropies
P(fork before turn t) = clip(p_b + w (H_t - H_0), 0, 1)     for t >= 1, the turns that follow a tool's answer

A group of M members begins with ``initial`` rollouts. Each time one of them writes a turn after a tool's answer, the entropy of that turn decides
whether branches leave the same place and write it anew; at most ``beam`` - 1 of them, and no more than M members in all. Where all have ended before
there are M, further rollouts begin at the prompt. Each leaf is a member, scored alone; the advantages are those of the base.

Credit. "soft", as released: every leaf is trained on its whole path with its own advantage. "hard": a turn that several leaves share has the mean of
their advantages in each of them. The gradient of the first pass over a batch is the same, because the sum over the leaves is; they differ once the
clip acts. It differs from GRPO in the rollouts alone; with ``initial`` at the group's size it is GRPO.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import average_nodes
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node


def measure_entropy(entropies: Sequence[float], count: int, vocabulary: int) -> float:
    """H of a turn: the sum of its first ``count`` entropies, nats, in units of the largest that one token can have."""
    return math.fsum(entropies[:count]) / math.log(vocabulary)


def compute_fork_probability(rise: float, base: float, weight: float) -> float:
    return min(1.0, max(0.0, base + weight * rise))


class Config(Strict):
    initial: int = param(4, "Rollouts of a group that begin at the prompt; the others fork from them.", title="Initial rollouts", ge=1, le=256)
    beam: int = param(2, "Members that may go on from one place: itself and its branches.", title="Beam", ge=1, le=16)
    base: float = param(0.5, "Probability of a branch where the entropy is that of the first turn.", title="Base probability (p_b)", ge=0, le=1)
    weight: float = param(0.2, "How much a rise of the entropy adds to the probability; 0: branches at random.", title="Weight (w)", ge=0, le=100)
    entropy_tokens: int = param(20, "Tokens at the beginning of a turn whose entropies count.", advanced=True, ge=1, le=1000)
    credit: Literal["soft", "hard"] = param("soft", "Turns that leaves share have each leaf's own advantage, or the mean of all.", title="Credit")


@dataclass
class Group:
    """The members of one prompt while they are played. ``nodes``: where each stands; ``first``: H_0 of each, None until it is known."""

    start: int  # its first row in the session
    size: int  # its rows there
    nodes: "list[Node]" = field(default_factory=list)
    first: list[float | None] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.size - len(self.nodes)

    @property
    def is_done(self) -> bool:
        return not self.room and all(node.finish for node in self.nodes)

    def add(self, node: "Node", first: float | None) -> None:
        self.nodes.append(node)
        self.first.append(first)


def split_groups(rows: int, first_row: int, size: int) -> list[Group]:
    """The groups of a session; where several processes sample a batch, the first and the last may be parts of one."""
    numbers = [(first_row + row) // size for row in range(rows)]
    return [Group(numbers.index(number), numbers.count(number)) for number in sorted(set(numbers))]


class ARPO(Method):
    card = Card(
        name="arpo",
        title="Branches where a tool's answer leaves doubt",
        arxiv="2507.19849",
        system="ARPO",
        base="grpo",
        provenance="code",
        source="github dongguanting/ARPO: vllm_rollout_with_tools.py, ARPO_7B_Reasoning_1node.sh, as described by readers of the code; the paper",
        fit="core",
        idea="Fork a rollout after a tool's answer, the more likely the more the policy's entropy has risen, instead of sampling whole rollouts.",
        formula=(
            r"P(\text{fork}) = \mathrm{clip}\left(p_b + w\,(H_t - H_0),\ 0,\ 1\right)",
            r"H_t = \frac{1}{\log V} \sum_{j \le k} H(\pi(\cdot \mid s_{t,j}))",
        ),
        departures=(
            "The entropy is that of the turn after the tool's answer, as in the paper; the released code looks at the turn before it.",
            "Entropies are exact, over the whole vocabulary; the code takes the ten likeliest tokens.",
            "The reward is the task's own.",
        ),
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"row_advantages": "maps"}
    idle = {"row_advantages": ("credit", "soft")}
    worlds = frozenset({"search", "graph", "sums", "tables", "interview"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        groups = split_groups(len(session.examples), session.first_row, session.group_size)
        branches, forkable = 0, 0
        while not all(group.is_done for group in groups):
            for group in groups:
                self.begin_rollouts(session, group)
            open_ = [(group, place) for group in groups for place, node in enumerate(group.nodes) if not node.finish]
            before = [group.nodes[place] for group, place in open_]
            after = session.play(before, turns=1)
            for (group, place), above, node in zip(open_, before, after, strict=True):
                group.nodes[place] = node
                forkable += above.by == "world"
                branches += self.fork(session, group, place, above, node)
        leaves = [leaf for group in groups for leaf in group.nodes]
        self.report(leaves, branches, forkable)
        return session.finish(leaves, shared="every")

    def begin_rollouts(self, session: "Session", group: Group) -> None:
        """At first, and wherever none of the group goes on before it is complete."""
        if group.room and all(node.finish for node in group.nodes):
            count = min(self.config.initial, group.room)
            rows = range(group.start + len(group.nodes), group.start + len(group.nodes) + count)
            for episode in session.begin(rows):
                group.add(episode.root, None)

    def fork(self, session: "Session", group: Group, place: int, above: "Node", node: "Node") -> int:
        """Branches beside the turn that was just written from ``above`` to ``node``; returns how many."""
        config, first = self.config, group.first[place]
        turns = node.episode.turns(node)
        entropies = [entropy for one in turns[-1] for entropy in one.entropies] if turns else []
        entropy = measure_entropy(entropies, config.entropy_tokens, len(self.run.tokenizer))
        if first is None:
            group.first[place] = entropy
        if first is None or above.by != "world":
            return 0
        rise = entropy - first
        self.log("rise", rise)
        chance = compute_fork_probability(rise, config.base, config.weight)
        made = 0
        for _ in range(config.beam - 1):
            if group.room and session.rng.random() < chance:
                group.add(session.branch(above, 1, f"entropy {rise:+.2f}")[0], first)
                made += 1
        return made

    def report(self, leaves: "Sequence[Node]", branches: int, forkable: int) -> None:
        """``calls``: tool calls that a member took, those of a shared turn counted once; ``calls_alone``: had each been sampled by itself."""
        paths = [[node for node in leaf.episode.path(leaf) if node.by == "world"] for leaf in leaves]
        distinct = {id(node) for path in paths for node in path}
        self.log("branches", branches / len(leaves))
        self.log("calls", len(distinct) / len(leaves))
        self.log("calls_alone", sum(map(len, paths)) / len(leaves))
        if forkable:
            self.log("fork_rate", branches / forkable)

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        return average_nodes(advantages, batch.nodes) if self.config.credit == "hard" else advantages

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Members that are branches", (Series(f"{name}/branches", "of the group"), Series(f"{name}/fork_rate", "of turns after a tool"))),
            Panel(
                "Tool calls of a member", (Series(f"{name}/calls", "shared ones once"), Series(f"{name}/calls_alone", "each by itself", dashed=True))
            ),
            Panel("Rise of the entropy after a tool's answer", (Series(f"{name}/rise", "H_t - H_0"),)),
        )
