"""ReMemR1: a memory that is rewritten chunk by chunk, and old memories that can be looked up; outcome and steps are paid (arXiv 2509.23040).

step t is asked with (question, memory m_{t-1}, recalled text u_t, chunk c_t) alone; what it recalls is the old memory that is most like its query
Rec(z) = share of the gold answer's words that occur in z
r_step(t) = 1 for the form  +  Rec(m_t) - Rec(m_{t-1}) of a step that writes the memory,  max(0, Rec(u + prompt) - Rec(prompt)) of one that recalls
A_out = R - mean R over the rollouts of a prompt;   A_step(t) = r_step(t) - mean of r_step over the rollouts of a prompt at the same step t
A_t = alpha A_out + (1 - alpha) A_step(t)  for every token of step t;   R = 1 for a right answer, else 0

No standard deviation is taken. Every step is a context and a row of its own. It differs from DAPO in the contexts and in the advantages; with
alpha = 1 steps have the outcome alone.

The world is ``reader``, with old memories by the cosine of their TF-IDF; its option ``late`` is what recalling is for. A call is a turn there, so
that a memory is written in one turn and looked up in another, where the authors' steps may do both; a turn that answers has the form alone.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import centre_by_group
from trainers.maths.credit import centre_by_key
from trainers.methods import folding
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch, RowBatch
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Episode, Node

STEPS = "step_rewards"  # in the notes of an episode: of its contexts, in their order
FORM = 1.0


def measure_recall(text: str, golds: Sequence[str]) -> float:
    """Rec: mean over gold answers of the share of their words that occur in ``text``; 0 without gold answers."""
    words = text.replace(".", " ").split()
    shares = [sum(word in words for word in gold.split()) / len(gold.split()) for gold in golds if gold.split()]
    return sum(shares) / len(golds) if golds else 0.0


def reward_memory(before: str, after: str, golds: Sequence[str]) -> float:
    return measure_recall(after, golds) - measure_recall(before, golds)


def reward_recall(prompt: str, recalled: str, golds: Sequence[str]) -> float:
    return max(0.0, measure_recall(f"{recalled} {prompt}", golds) - measure_recall(prompt, golds))


def reward_step(prompt: "Node", turn: "Node | None", golds: Sequence[str]) -> float:
    """r_step of the context that begins at ``prompt``; ``turn``: where its turn ends, None for one that was never over."""
    if turn is None or ("error" in turn.facts and "tool" not in turn.facts):
        return 0.0
    before, after, tool = prompt.state, turn.state, turn.facts.get("tool")
    if tool == "memory":
        return FORM * bool(after["memory"]) + reward_memory(before["memory"], after["memory"], golds)
    if tool == "recall":
        return FORM * bool(turn.facts["query"]) + reward_recall(prompt.text, after["recalled"], golds)
    return FORM


def mix_advantages(outcomes: Tensor, steps: Tensor, keys: Sequence[object], alpha: float) -> Tensor:
    """(R,) outcome advantages and step rewards of rows, the question and step of each -> (R,)."""
    return alpha * outcomes + (1 - alpha) * centre_by_key(steps, keys)


class Config(Strict):
    alpha: float = param(0.8, "Weight of the outcome beside the steps; 1: the outcome alone.", title="Outcome weight (alpha)", ge=0, le=1)


class ReMemR1(Method):
    card = Card(
        name="rememr1",
        title="Memories that can be looked up",
        arxiv="2509.23040",
        system="ReMemR1 (RLMLR)",
        base="dapo",
        provenance="code",
        source="github syr-cn/ReMemR1: recurrent/impls/memory_revisit.py, verl/trainer/ppo/metric_utils.py, verl/trainer/ppo/ray_trainer.py",
        fit="core",
        idea="Let the policy look up its own old memories, and pay each step for what it adds to the memory beside the outcome.",
        formula=(
            r"r_t = 1[\mathrm{form}] + \mathrm{Rec}(m_t) - \mathrm{Rec}(m_{t-1}) + \max(0, \mathrm{Rec}(u_{t+1}, c) - \mathrm{Rec}(c))",
            r"A_t = \alpha (R - \bar R) + (1 - \alpha)(r_t - \bar r_t)",
        ),
        departures=(
            "Writing the memory and looking one up are turns of their own.",
            "A step that no other rollout of the prompt has reached has no step advantage; the code leaves it its raw reward.",
            "The world's rule for words decides what occurs; the code looks for substrings.",
            "The loss is averaged over tokens as DAPO's, and there is no KL term unless the trainer has one.",
        ),
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"rewards": "makes", "row_advantages": "makes"}
    several_rows = True
    worlds = frozenset({"reader"})
    requires = (
        Requirement("task.options.windows", "at least", 0.05, "the policy has to have seen contexts that hold the memory alone"),
        Requirement("task.options.fold", "differs from", True, "the method decides when a context is folded"),
    )

    def rollout(self, session: "Session") -> "list[Episode]":
        leaves = folding.play_with_folds(session, [episode.root for episode in session.begin()], lambda node: "fold")
        for leaf in leaves:
            self.reward_steps(leaf)
        self.log("right", sum(map(session.is_right, leaves)) / len(leaves))
        self.log("steps", sum(map(folding.count_contexts, leaves)) / len(leaves))
        recalls = [[turn for turn in find_turns(leaf) if turn is not None and turn.facts.get("tool") == "recall"] for leaf in leaves]
        self.log("recalls", sum(map(bool, recalls)) / len(leaves))
        found = [float(bool(turn.state["recalled"])) for own in recalls for turn in own]
        if found:
            self.log("found", sum(found) / len(found))
        return [leaf.episode for leaf in leaves]

    def reward_steps(self, leaf: "Node") -> None:
        """Writes r_step of each context on the way to ``leaf`` into the notes of the episode and of the turn."""
        golds, prompts, turns = [leaf.episode.example.reference], find_prompts(leaf), find_turns(leaf)
        rewards = [reward_step(prompt, turn, golds) for prompt, turn in zip(prompts, turns, strict=True)]
        for turn, reward in zip(turns, rewards, strict=True):
            if turn is not None:
                turn.notes["step_reward"] = reward
        leaf.episode.notes[STEPS] = rewards

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        return batch.correct.to(rewards)

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        rollout, members = batch.rollout, batch.members
        places = [row.place if row is not None else 0 for row in batch.rows]
        notes = [rollout.notes[member].get(STEPS, []) for member in members.tolist()]
        steps = torch.tensor([own[place] if place < len(own) else 0.0 for own, place in zip(notes, places, strict=True)]).to(advantages)
        outcomes = centre_by_group(rollout.shaped, rollout.group_size).to(advantages)[members]
        mixed = mix_advantages(outcomes, steps, list(zip(batch.peers, places, strict=True)), self.config.alpha)
        self.log("share_of_steps", compute_step_share(outcomes, mixed, self.config.alpha))
        return mixed[:, None] * batch.mask

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Right answers", (Series(f"{name}/right", "of the rollouts"),)),
            Panel("Looking up", (Series(f"{name}/recalls", "rollouts that do"), Series(f"{name}/found", "look-ups that find one", dashed=True))),
            Panel("Steps of a rollout", (Series(f"{name}/steps", "steps"),)),
            Panel("Advantages", (Series(f"{name}/share_of_steps", "share that steps make"),)),
        )


def find_prompts(leaf: "Node") -> "list[Node]":
    return [node for node in leaf.episode.path(leaf) if node.by == "prompt"]


def find_turns(leaf: "Node") -> "list[Node | None]":
    """Where the turn of each context on the way to ``leaf`` ends; None for one that has none."""
    found: list[Node | None] = []
    for node in leaf.episode.path(leaf):
        if node.by == "prompt":
            found.append(None)
        elif node.closed:
            found[-1] = node
    return found


def compute_step_share(outcomes: Tensor, mixed: Tensor, alpha: float) -> Tensor:
    """(R,) -> scalar: of the size of the advantages, what steps make; 0 where there are none."""
    steps = (mixed - alpha * outcomes).abs().sum()
    whole = steps + (alpha * outcomes).abs().sum()
    return steps / whole if whole > 0 else steps.new_zeros(())
