"""IGPO: a turn is worth what it adds to the policy's belief in the right answer (arXiv 2510.14967).

s_t = (1/L) sum_j log pi(a_j | context after turn t, <answer>, a_{<j})      a: the gold answer, L tokens; no gradient
g_t = exp(s_t) - exp(s_{t-1})   (or s_t - s_{t-1})                           for each turn that a tool has answered
A_t = gamma^(T-t) A + weight sum_{k >= t} gamma^(k-t) z(g_k)                 A: the base's advantage of the outcome

z standardises over all gains of a group. Every token of turn t has A_t. It differs from GRPO in the second term; at weight 0 and gamma 1 it is GRPO.
A group whose outcomes are all alike has no gradient in GRPO; here it has one if its searches tell differently much. Step time: a forward pass over
each context at the end of each turn; equal contexts of a group are passed once.
"""

import math
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import spread_turns, sum_returns, z_score_by_key
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node

ANSWER = "<answer>"
GAINS = "information_gains"  # in the notes of a completion: of its turns from the first on, one for each that a tool has answered
EPSILON = 1e-6


def measure_gains(beliefs: Sequence[float], scale: str) -> list[float]:
    """g_1 ... g_K from s_0 ... s_K."""
    values = [math.exp(belief) for belief in beliefs] if scale == "probability" else beliefs
    return [after - before for before, after in pairwise(values)]


def compute_gain_returns(gains: Sequence[Sequence[float]], keys: Sequence[Hashable], gamma: float) -> Tensor:
    """R lists of gains of different lengths, the group of each -> (R, K) discounted sums of standardised gains from each turn on, 0 beyond them."""
    width = max([1, *map(len, gains)])
    made, mask = torch.zeros(len(gains), width), torch.zeros(len(gains), width)
    places = [(row, turn) for row, own in enumerate(gains) for turn in range(len(own))]
    if places:
        flat = torch.tensor([gains[row][turn] for row, turn in places])
        rows, turns = (torch.tensor(column) for column in zip(*places, strict=True))
        made[rows, turns] = z_score_by_key(flat, [keys[row] for row, _ in places], EPSILON, ddof=0)
        mask[rows, turns] = 1.0
    return sum_returns(made, mask, gamma)


def discount_outcomes(advantages: Tensor, turns: Tensor, gamma: float) -> Tensor:
    """(R, T) advantages, (R, T) turn of each token (-1 none) -> gamma^(turns left) times each."""
    left = turns.max(1, keepdim=True).values - turns
    return advantages * gamma ** left.to(advantages.dtype)


class Config(Strict):
    gain: Literal["probability", "log"] = param("probability", "What a gain is measured in: as released, or nats as in the later text.", title="Gain")
    weight: float = param(1.0, "Weight of the gains beside the outcome; 0 is the base.", title="Weight", ge=0, le=100)
    gamma: float = param(1.0, "How much less a turn later counts.", title="Discount (gamma)", gt=0, le=1)


class IGPO(Method):
    card = Card(
        name="igpo",
        title="Information gain of turns",
        arxiv="2510.14967",
        system="IGPO",
        base="grpo",
        provenance="code",
        source="github GuoqingWang1/IGPO: scrl/llm_agent/generation.py, verl/trainer/ppo/core_algos.py, verl/utils/reward_score/info_gain.py",
        fit="core",
        idea="Reward each turn by how much more likely the gold answer has become after it, so that searches are told apart in groups that all fail.",
        formula=(
            r"g_t = \exp(s_t) - \exp(s_{t-1}), \quad s_t = \frac{1}{L} \sum_j \log \pi(a_j \mid c_t, a_{<j})",
            r"A_t = \gamma^{T-t} A + \lambda \sum_{k \ge t} \gamma^{k-t} z(g_k)",
        ),
        departures=(
            "The outcome is the task's reward with the base's advantage; the code pays F1 and -2 for broken form.",
            "A gain of exactly 0 counts as one; the code takes it for a turn without a reward.",
            "Gains and outcomes are standardised apart, as in the paper; the code's default is together.",
        ),
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"row_advantages": "maps"}
    worlds = frozenset({"graph", "search", "sums", "tables"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        leaves = session.play([episode.root for episode in session.begin()])
        places = [[node for node in leaf.episode.path(leaf) if node.by in ("prompt", "world")] for leaf in leaves]
        beliefs = self.measure_beliefs(session, [node for path in places for node in path])
        notes = {}
        for number, path in enumerate(places):
            gains = measure_gains([beliefs[id(node)] for node in path], self.config.gain)
            notes[number] = {GAINS: gains}
            self.note_nodes(path, gains, beliefs)
        return session.finish(leaves, notes=notes)

    def measure_beliefs(self, session: "Session", nodes: "Sequence[Node]") -> dict[int, float]:
        """s_t at each node: by its identity."""
        head = self.run.completion_ids(ANSWER, end=False)
        asked: dict[tuple[tuple[int, ...], str], Node] = {}
        keys = []
        for node in nodes:
            prompt, rest = node.episode.context_ids(node)
            keys.append(((*prompt, *rest), node.episode.example.reference))
            asked.setdefault(keys[-1], node)
        golds = {key: self.run.completion_ids(key[1], end=False) for key in asked}
        found = session.likelihood(list(asked.values()), [[*head, *golds[key]] for key in asked])
        means = {key: sum(row[len(head) :]) / max(1, len(golds[key])) for key, row in zip(asked, found, strict=True)}
        return {id(node): means[key] for node, key in zip(nodes, keys, strict=True)}

    def note_nodes(self, path: "Sequence[Node]", gains: Sequence[float], beliefs: dict[int, float]) -> None:
        """On the nodes, for the rollout's page; and gains of turns that found evidence and of those that did not, as metrics."""
        for node in path:
            node.notes["belief"] = math.exp(beliefs[id(node)])
        for node, gain in zip(path[1:], gains, strict=True):
            turn = node.episode.parent(node)
            assert turn is not None  # the world answers a turn
            turn.notes["gain"] = gain
            if "evidence" in turn.facts:
                self.log("gain_useful" if turn.facts["evidence"] else "gain_useless", gain)

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        turns = batch.turns()
        notes = [batch.rollout.notes[member] for member in batch.members.tolist()]
        returns = compute_gain_returns([note.get(GAINS, []) for note in notes], batch.peers, self.config.gamma).to(advantages)
        width = max(returns.shape[1], int(turns.max()) + 1)  # the last turn of an episode has no gain
        returns = torch.nn.functional.pad(returns, (0, width - returns.shape[1]))
        made = discount_outcomes(advantages, turns, self.config.gamma) + self.config.weight * spread_turns(returns, turns)
        self.report(batch, advantages, made)
        return made

    def report(self, batch: "RowBatch", outcomes: Tensor, made: Tensor) -> None:
        """Shares of groups without a gradient, by the outcome alone and with the gains."""
        for name, values in (("silent_by_outcome", outcomes), ("silent", made)):
            loud = (values * batch.mask).abs().amax(1) > 0
            self.log(name, 1 - batch.rollout.grouped(loud[: len(batch.rollout.ids)]).any(1).float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Information gain of a search",
                (Series(f"{name}/gain_useful", "that found evidence"), Series(f"{name}/gain_useless", "that found none", dashed=True)),
            ),
            Panel(
                "Groups without a gradient",
                (Series(f"{name}/silent", "with gains"), Series(f"{name}/silent_by_outcome", "by the outcome alone", dashed=True)),
            ),
        )
