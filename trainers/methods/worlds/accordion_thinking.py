"""Accordion-Thinking: rollouts with their context folded and unfolded in turn, so that summaries learn to suffice (arXiv 2602.03249).

segment k: z_k = (t_k, s_k), what was read and the summary that closes it
folded:   c_{k+1} = (x, s_k), the text t_k is dropped;   unfolded: c_{k+1} = (c_k, z_k)
a rollout goes on while a segment ends in one summary of at most L_sum tokens, for at most K segments; else it ends there, with r = 0
A_i = r_i - mean_j r_j   over the G rollouts of a prompt, without a standard deviation; every token of every segment of rollout i has A_i
r: 1 for a right answer, else 0

One batch is unfolded, the next folded. It differs from DAPO in the folded batches, the reward and the missing deviation.

The world is ``reader``: a chunk is t_k, the memory that the policy writes is s_k. As the world's memory replaces the one before, a folded context
holds the last summary alone, where the authors keep all of them in a row. Evaluation plays an episode in one context, unfolded;
``bench/window_reading.py`` folds it.
"""

from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import centre_by_group
from trainers.methods import folding
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Episode, Node

SUMMARY = "memory"  # the tool whose call closes a segment


def decide_by_summary(is_summary: bool, tokens: int, longest: int, segments: int, most: int) -> folding.Decision:
    """What follows a turn. ``tokens``: of its summary, ``longest``: that one may have (L_sum), ``segments``: so far, ``most``: of a rollout (K)."""
    if not is_summary:
        return "stay"
    return "fold" if tokens <= longest and segments < most else "end"


def choose_mode(mode: str, batches: int) -> bool:
    """Whether the next batch is folded, after so many."""
    return mode == "folded" or (mode == "mixed" and batches % 2 == 1)


class Config(Strict):
    mode: Literal["mixed", "folded", "unfolded"] = param(
        "mixed", "Batches in turn, beginning with an unfolded one, or all of one kind.", title="Mode"
    )
    summary: int = param(16, "Tokens of a summary; a longer one ends a folded rollout. The authors: 1536.", title="Summary (L_sum)", ge=1, le=100_000)
    segments: int = param(6, "Segments of a folded rollout.", title="Segments (K)", ge=2, le=64)


class AccordionThinking(Method):
    card = Card(
        name="accordion-thinking",
        title="Folded and unfolded contexts",
        arxiv="2602.03249",
        system="Accordion-Thinker",
        base="dapo",
        provenance="code",
        source="github yangzhch6/Accordion-Thinking: README, verl/trainer/ppo/ray_trainer.py, verl/trainer/ppo/sequence_node.py",
        fit="core",
        idea="Train on rollouts that keep all they have read and on rollouts that keep their summaries alone, until both answer equally well.",
        formula=(
            r"c_{k+1} = (x, s_k) \ \mathrm{folded}, \quad c_{k+1} = (c_k, t_k, s_k) \ \mathrm{unfolded}",
            r"A_i = r_i - \mathrm{mean}_j r_j \ \mathrm{for\ every\ segment\ of\ rollout\ } i",
        ),
        departures=(
            "A step has one kind of rollouts, in turn; the authors update on both in every step.",
            "A folded context holds the last summary alone, because the world's memory replaces the one before.",
            "What is dropped is the text of a chunk, in place of a thought.",
            "The loss is averaged over tokens as DAPO's.",
        ),
    )
    Config = Config
    owns = frozenset({"rollout", "advantages"})
    roles = {"rewards": "makes", "advantages": "makes"}
    several_rows = True
    worlds = frozenset({"reader"})
    requires = (
        Requirement("task.options.windows", "at least", 0.05, "the policy has to have seen contexts that hold the memory alone"),
        Requirement("task.options.fold", "differs from", True, "the method decides when a context is folded"),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.batches = 0

    def rollout(self, session: "Session") -> "list[Episode]":
        folds = choose_mode(self.config.mode, self.batches)
        self.batches += 1
        roots = [episode.root for episode in session.begin()]
        leaves = folding.play_with_folds(session, roots, self.decide) if folds else session.play(roots)
        kind = "folded" if folds else "unfolded"
        self.log(f"right_{kind}", sum(map(session.is_right, leaves)) / len(leaves))
        self.log(f"longest_{kind}", max(max(folding.measure_contexts(leaf)) for leaf in leaves))
        self.log(f"unfinished_{kind}", sum(leaf.finish != "stop" for leaf in leaves) / len(leaves))
        return [leaf.episode for leaf in leaves]

    def decide(self, node: "Node") -> folding.Decision:
        turn = folding.find_turn(node)
        is_summary = turn.facts.get("tool") == SUMMARY
        return decide_by_summary(is_summary, len(turn.ids), self.config.summary, folding.count_contexts(node), self.config.segments)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        return batch.correct.to(rewards)

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        return centre_by_group(batch.shaped, batch.group_size).to(advantages)

    def state(self) -> dict[str, Any]:
        return {"batches": self.batches}

    def restore(self, state: dict[str, Any]) -> None:
        self.batches = state["batches"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        kinds = (("folded", False), ("unfolded", True))
        return (
            Panel("Right answers", tuple(Series(f"{name}/right_{kind}", kind, dashed) for kind, dashed in kinds)),
            Panel("Longest context", tuple(Series(f"{name}/longest_{kind}", kind, dashed) for kind, dashed in kinds), unit="tokens"),
            Panel("Rollouts without an end", tuple(Series(f"{name}/unfinished_{kind}", kind, dashed) for kind, dashed in kinds)),
        )
