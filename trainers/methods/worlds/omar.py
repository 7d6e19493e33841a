"""OMAR: one policy plays every role of a conversation, and each role learns from its own score (arXiv 2602.03109).

R_i the score of role i at the end. ``credit`` says what its turns k = 1..K_i and their tokens t = 1..T_k get:
group       A = (R_i - mean) / std over the episodes of the same prompt and role, for every token of role i (critic-free, ours)
two-level   r_k = 0 but for r_{K_i} = R_i;  d_k = r_k + g_h V_{k+1} - V_k,  A_k = d_k + g_h l_h A_{k+1},  V_k = V at the first token of turn k
            A_{k,T_k} = A_k,  A_{k,t} = g V_{k,t+1} - V_{k,t} + g l A_{k,t+1};  then standardised over the tokens of the role

A role is trained on its own turns alone, each in the context that it saw, with its private profile. With ``groups`` at "all" both roles are compared
with each other, or standardised together: what fails where their scores have different scales. It differs from GRPO in the second seat, which here is
played by the policy too, and in the credit. V is a head on the policy's last layer, one for each role.

This is our reading of the abstract; the two levels are those of bi-level advantages of agents. The world ``bargain`` stands for conversations, and
held-out prompts are played against its rule. The score of a seat is what the run's reward functions say of it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import estimate_advantages, estimate_token_advantages, z_score_by_key
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.value_head import ValueHead, explain_variance
from trainers.worlds.bargain import PARTNER, Bargain
from trainers.worlds.base import POLICY

if TYPE_CHECKING:
    from trainers.methods.batch import RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Episode, Node

SEATS = (POLICY, PARTNER)
SCORES = "scores"  # in the notes of a completion: seat -> R
Role = tuple[int, str]  # a member of the batch, and a seat


def list_roles(members: Sequence[int], seats: Sequence[str]) -> dict[Role, list[int]]:
    """The rows of each seat of each member, in the order of its turns: rows of a member come in the order in which they were written."""
    found: dict[Role, list[int]] = {}
    for place, role in enumerate(zip(members, seats, strict=True)):
        found.setdefault(role, []).append(place)
    return found


def compare_scores(scores: dict[Role, float], group_size: int, by_role: bool) -> dict[Role, float]:
    """R of each role of each member -> its z-score among the same prompt's, of the same seat or of all."""
    keys = [(member // group_size, seat if by_role else "") for member, seat in scores]
    return dict(zip(scores, z_score_by_key(torch.tensor(list(scores.values())), keys).tolist(), strict=True))


def estimate_turns(rewards: Sequence[float], values: Sequence[Sequence[float]], gamma: float, lam: float) -> list[list[float]]:
    """R and V at the first token of each turn, of n roles with different numbers of turns -> A of each turn."""
    width = max([1, *map(len, values)])
    paid, known, mask = (torch.zeros(len(rewards), width) for _ in range(3))
    for row, (reward, own) in enumerate(zip(rewards, values, strict=True)):
        known[row, : len(own)], mask[row, : len(own)] = torch.tensor(own), 1.0
        if own:
            paid[row, len(own) - 1] = reward
    made = estimate_advantages(paid, known, mask, gamma, lam)
    return [row[: len(own)] for row, own in zip(made.tolist(), values, strict=True)]


class Config(Strict):
    credit: Literal["group", "two-level"] = param("group", "group: no critic. two-level: advantages of turns, then of their tokens.", title="Credit")
    groups: Literal["role", "all"] = param("role", "What scores are compared with: the same role's, or both roles'.", title="Compared with")
    gamma_turns: float = param(1.0, "g_h, of turns (ours).", title="Discount of turns (g_h)", gt=0, le=1)
    lam_turns: float = param(0.95, "l_h, of turns (ours).", title="Decay of turns (l_h)", ge=0, le=1)
    gamma: float = param(1.0, "g, of tokens (ours).", title="Discount of tokens (g)", gt=0, le=1)
    lam: float = param(0.95, "l, of tokens (ours).", title="Decay of tokens (l)", ge=0, le=1)
    value_rate: float = param(3e-3, "Learning rate of the value heads.", title="Value heads' learning rate", gt=0, le=1, advanced=True)
    value_passes: int = param(20, "Gradient steps of the value heads on each batch.", title="Value heads' passes", ge=1, le=1000, advanced=True)


class OMAR(Method):
    card = Card(
        name="omar",
        title="One policy in every role",
        arxiv="2602.03109",
        system="OMAR",
        base="dapo",
        provenance="abstract",
        source="the abstract; no official code was found",
        fit="needs-environment",
        idea="One policy plays all sides of a conversation; each side's final score becomes advantages of its turns, and of their tokens.",
        formula=(
            r"A_k = r_k + g_h V_{k+1} - V_k + g_h l_h A_{k+1}",
            r"A_{k,T_k} = A_k, \quad A_{k,t} = g V_{k,t+1} - V_{k,t} + g l A_{k,t+1}",
        ),
        reading="both levels, their discounts, and the variant without a critic",
        departures=(
            "Two sides bargain by offers; the paper has social conversations that a large model scores.",
            "A side is shown its worths and the other's last offer, not all that was said.",
            "The critic is a head on the policy's last layer for each role, whose gradient stops there.",
        ),
        claim=("omar/joint", "higher"),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"row_advantages": "makes"}
    worlds = frozenset({"bargain"})
    several_rows = True
    requires = (
        Requirement("task.options.partner", "differs from", "seat", "it seats the policy on both sides itself; held-out prompts need the rule"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.table = Bargain({**run.task.options, "partner": "seat"}, run.seed)  # where both seats are played
        self.heads: dict[str, ValueHead] = {}
        if self.config.credit == "two-level":
            self.heads = {seat: ValueHead(run, self.config.value_rate, self.config.value_passes) for seat in SEATS}

    def rollout(self, session: "Session") -> "list[Episode]":
        session.engine.world = self.table
        leaves = session.play([episode.root for episode in session.begin()])
        for leaf in leaves:
            leaf.episode.notes[SCORES] = {seat: session.total(leaf, seat) for seat in SEATS}
        self.report(session, leaves)
        return [leaf.episode for leaf in leaves]

    def report(self, session: "Session", leaves: "Sequence[Node]") -> None:
        """How well both do together, and signs of going through the motions: no deal, offers made before."""
        turns = [leaf.episode.turns(leaf) for leaf in leaves]
        joint = [session.outcome(leaf)["joint"] or 0.0 for leaf in leaves]
        self.log("joint", sum(joint) / len(joint))
        self.log("deals", sum(value > 0 for value in joint) / len(joint))
        self.log("turns", sum(map(len, turns)) / len(turns))
        offers = [[(turn[-1].seat, turn[-1].facts.get("query")) for turn in own] for own in turns]
        self.log("repeated", sum(len(own) - len(set(own)) for own in offers) / sum(map(len, offers)))
        for seat in SEATS:
            self.log(f"score/{seat}", sum(leaf.episode.notes[SCORES][seat] for leaf in leaves) / len(leaves))

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        members, seats = batch.members.tolist(), batch.seats
        roles = list_roles(members, seats)
        scores = {role: float(batch.rollout.notes[role[0]][SCORES][role[1]]) for role in roles}
        if self.config.credit == "two-level":
            return self.estimate_tokens(batch, roles, scores).to(advantages)
        compared = compare_scores(scores, batch.rollout.group_size, self.config.groups == "role")
        values = torch.tensor([compared[role] for role in zip(members, seats, strict=True)]).to(advantages)
        return values[:, None] * batch.mask

    def estimate_tokens(self, batch: "RowBatch", roles: dict[Role, list[int]], scores: dict[Role, float]) -> Tensor:
        """(R, T): the advantages of both levels. Each row holds one turn."""
        config = self.config
        turns = torch.where(batch.mask > 0, 0, -1)
        values, states = self.read_values(batch)
        firsts = [[float(values[row][batch.mask[row] > 0][0]) if batch.mask[row].any() else 0.0 for row in rows] for rows in roles.values()]
        own = torch.zeros(len(turns), 1)
        found = estimate_turns(list(scores.values()), firsts, config.gamma_turns, config.lam_turns)
        for rows, advantages in zip(roles.values(), found, strict=True):
            own[rows, 0] = torch.tensor(advantages)
        made = estimate_token_advantages(own.to(values), values, turns, config.gamma, config.lam)
        self.fit_heads(batch, states, values, made + values)
        return standardise_tokens(made, batch.mask, batch.seats if config.groups == "role" else [""] * len(turns))

    def read_values(self, batch: "RowBatch") -> tuple[Tensor, dict[str, Tensor]]:
        """(R, T) values of the policy's tokens, and of each seat the states (n, D) of its tokens, row after row."""
        values, states = torch.zeros_like(batch.mask), {}
        for seat in SEATS:
            rows = [place for place, one in enumerate(batch.seats) if one == seat and batch.mask[place].any()]
            if not rows:
                continue
            prompts = [row.prompt_ids if (row := batch.rows[place]) is not None else [] for place in rows]
            places = [batch.mask[place].nonzero()[:, 0].tolist() for place in rows]
            states[seat] = self.heads[seat].read_states(prompts, batch.ids[rows].tolist(), places)
            there = select_seat(batch, seat)
            values[there] = self.heads[seat].estimate(states[seat]).to(values)
        return values, states

    def fit_heads(self, batch: "RowBatch", states: dict[str, Tensor], values: Tensor, targets: Tensor) -> None:
        for seat, own in states.items():
            there = select_seat(batch, seat)
            self.log(f"explained/{seat}", explain_variance(values[there], targets[there]))
            self.log(f"value_error/{seat}", self.heads[seat].fit(own, targets[there]))

    def state(self) -> dict[str, Any]:
        return {seat: head.state() for seat, head in self.heads.items()}

    def restore(self, state: dict[str, Any]) -> None:
        for seat, own in state.items():
            self.heads[seat].restore(own)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("What both get", (Series(f"{name}/joint", "of the best deal"), Series(f"{name}/deals", "episodes with a deal", dashed=True))),
            Panel("Scores of the roles", tuple(Series(f"{name}/score/{seat}", seat) for seat in SEATS)),
            Panel("Offers made before", (Series(f"{name}/repeated", "share of all offers"),)),
            Panel("Value heads", tuple(Series(f"{name}/explained/{seat}", f"explained variance, {seat}") for seat in SEATS)),
        )


def select_seat(batch: "RowBatch", seat: str) -> Tensor:
    """(R, T) bool: the trained tokens of a seat."""
    own = torch.tensor([one == seat for one in batch.seats], device=batch.mask.device)
    return (batch.mask > 0) & own[:, None]


def standardise_tokens(values: Tensor, mask: Tensor, keys: Sequence[str]) -> Tensor:
    """(R, T), (R, T), R keys -> z-scores over the tokens of the rows with the same key; 0 where masked."""
    there = mask > 0
    made = torch.zeros_like(values)
    spread = [key for key, count in zip(keys, there.sum(1).tolist(), strict=True) for _ in range(count)]
    made[there] = z_score_by_key(values[there], spread).to(values)
    return made
