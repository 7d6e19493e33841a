"""SUPO: the policy sums up what it has read when its context is full, and the summaries are trained by the outcome (arXiv 2510.06727).

rollout i -> segments y_i,1 ... y_i,K;  segment k is asked with c_i,k = (question, summary k - 1), and ends in summary k, written by the policy
A_i = (R_i - mean_j R_j) / std_j R_j                                          over the G rollouts of a prompt, not their segments
J = 1 / sum_i,k |y_i,k|  sum_i m_i sum_k sum_t min(rho A_i, clip(rho) A_i)     rho = pi(y_t | c_i,k, y_<t) / pi_old
m_i = 0 where rollout i needs more than S summaries or more turns than there are, without an outcome; else 1

Clip, standard deviation and the mean over tokens are the base's: DAPO. Every segment is a row of its own with its rollout's advantage, and rollouts
with m = 0 count in the mean of their group but not in the loss. It differs from DAPO in the rollout and in m; with a context that is never full it
is DAPO.

The world is ``reader``: the memory that the policy writes is the summary, and when the next chunk would take the context above L tokens, it is read
in a new context with that memory alone. The summary is thus a turn of the world and not asked for by an instruction. Evaluation plays an episode
in one context; ``bench/window_reading.py`` plays it in windows, with any number of summaries.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods import folding
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.rollouts.engine import UNHEARD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainers.methods.batch import RolloutBatch
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Episode, Node

OVERLONG = "overlong"  # in the notes of an episode


def decide_by_length(tokens: int, limit: int, contexts: int, summaries: int) -> folding.Decision:
    """What follows a turn. ``tokens``: of its context with the world's answer, ``limit``: that a context may have (L), ``contexts``: so far,
    ``summaries``: that a rollout may have (S)."""
    if tokens <= limit:
        return "stay"
    return "fold" if contexts <= summaries else "end"


def is_overlong(leaf: "Node") -> bool:
    """Whether an episode ended for want of turns, summaries or room; a turn that was too long by itself is a wrong one."""
    out_of_room = leaf.finish == "length" and (leaf.by != "policy" or leaf.facts.get("error") == UNHEARD)
    return leaf.finish == "turns" or out_of_room


class Config(Strict):
    context: int = param(
        80,
        "Tokens of a context with its prompt; a longer one is summed up. Ours: two chunks.",
        title="Context (L)",
        ge=16,
        le=1_000_000,
    )
    summaries: int = param(2, "Summaries of a rollout; one that needs more is left out of the loss.", title="Summaries (S)", ge=1, le=64)


class SUPO(Method):
    card = Card(
        name="supo",
        title="Summaries as part of the policy",
        arxiv="2510.06727",
        system="SUPO",
        base="dapo",
        provenance="abstract",
        source="abstract, reviews and reading notes (decomposition over segments, group-relative advantages, overlong masking)",
        fit="core",
        idea="Replace a full context by a summary that the policy writes, and train all segments of a rollout, summaries included, by its outcome.",
        formula=(
            r"A_i = \frac{R_i - \mathrm{mean}_j R_j}{\mathrm{std}_j R_j}",
            r"J = \frac{1}{\sum_{i,k} |y_{i,k}|} \sum_i m_i \sum_{k,t}"
            r" \min\left(\rho A_i,\ \mathrm{clip}(\rho, 1 - \epsilon_l, 1 + \epsilon_h) A_i\right)",
        ),
        reading="notation and all values; the sum over segments is divided by the tokens of the batch",
        departures=(
            "The summary is the memory that the world asks for in every turn, not the answer to an instruction.",
            "What did not fit is not summed up but read in the new context.",
        ),
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"advantages": "gates"}
    several_rows = True
    worlds = frozenset({"reader"})
    requires = (
        Requirement("task.options.windows", "at least", 0.05, "the policy has to have seen contexts that hold the memory alone"),
        Requirement("task.options.fold", "differs from", True, "the method decides when a context is folded"),
    )

    def rollout(self, session: "Session") -> "list[Episode]":
        leaves = folding.play_with_folds(session, [episode.root for episode in session.begin()], self.decide)
        for leaf in leaves:
            leaf.episode.notes[OVERLONG] = is_overlong(leaf)
        self.report(session, leaves)
        return [leaf.episode for leaf in leaves]

    def decide(self, node: "Node") -> folding.Decision:
        tokens, contexts = folding.measure_context(node), folding.count_contexts(node)
        return decide_by_length(tokens, self.config.context, contexts, self.config.summaries)

    def report(self, session: "Session", leaves: "Sequence[Node]") -> None:
        lengths = [folding.measure_contexts(leaf) for leaf in leaves]
        self.log("contexts", sum(map(len, lengths)) / len(leaves))
        self.log("longest_context", max(map(max, lengths)))
        self.log("overlong", sum(leaf.episode.notes[OVERLONG] for leaf in leaves) / len(leaves))
        self.log("right", sum(map(session.is_right, leaves)) / len(leaves))

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        overlong = torch.tensor([bool(note.get(OVERLONG)) for note in batch.notes], device=advantages.device)
        batch.leave_out(overlong, "overlong: more summaries or turns than a rollout may have")
        return (~overlong).to(advantages.dtype)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Contexts of a rollout", (Series(f"{name}/contexts", "contexts"),)),
            Panel("Longest context", (Series(f"{name}/longest_context", "tokens"),), unit="tokens"),
            Panel("Rollouts", (Series(f"{name}/right", "right"), Series(f"{name}/overlong", "overlong, not in the loss", dashed=True))),
        )
