"""FrameMind: members of a group see the same thing in many small or few large pieces, and are compared with each other (arXiv 2509.24008).

member i of a group has level l_i, spread evenly over the ladder of views
R_i = [right answer] + f [right form] + lambda [right answer and 2 to 3 turns]
A_i = (R_i - mean R) / (std R + eps)      over the whole group, whatever the levels

Then the loss of the base; what the world writes is masked out of it. It differs from GRPO in the levels and in the bonus for turns, which is paid for
a right answer alone. With ``spread`` off all members of a group have the level of their prompt: groups of one level, with the same reward.

This is our interpretation of the abstract and of public reviews: they name a ladder of resolutions across a group, a reward for calling tools and a
bonus of 0.5 for two or three turns. The authors' ladder goes from many small frames of a video to few large ones at equal cost, and the tools look
at frames and clips. This is a text stand-in: the video is a text of the world ``reader`` with the option ``levels``, a piece is a chunk of one, two
or four lines, all levels hold the same text, and the tool opens the next chunk.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.reader import LEVELS, Reader

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Episode, Node

FEWEST_TURNS, MOST_TURNS = 2, 3  # that the bonus is paid for
LEVEL, TURNS = "level", "turns"  # in the notes of an episode


def choose_level(member: int, group: int) -> int:
    """Lines of a piece of a member: the levels one after the other, beginning with another one in each group."""
    return LEVELS[(member + group) % len(LEVELS)]


def reward_views(right: Tensor, formed: Tensor, turns: Tensor, form: float, bonus: float) -> Tensor:
    """(B,) each -> (B,) R. ``right`` and ``formed`` are 0 or 1, ``turns`` counts those of the policy, the answer's among them."""
    few = (turns >= FEWEST_TURNS) & (turns <= MOST_TURNS)
    return right + form * formed + bonus * right * few


class Config(Strict):
    bonus: float = param(0.5, "What a right answer after two or three turns earns beyond 1.", title="Bonus for turns (lambda)", ge=0, le=10)
    form: float = param(0.1, "What the right form earns (ours).", title="Form (f)", ge=0, le=10)
    spread: bool = param(True, "Give the members of a group different levels; off: all have their prompt's.", title="Levels in a group")


class FrameMind(Method):
    card = Card(
        name="framemind",
        title="Different views in a group (text stand-in)",
        arxiv="2509.24008",
        system="FrameMind (DRFS-GRPO)",
        base="grpo",
        provenance="abstract",
        source="abstract; public reviews of the paper (ladder of resolutions, reward of tool calls, bonus of 0.5 for two or three turns)",
        fit="needs-modality",
        idea="Show the members of a group the same thing in many small or few large pieces, so that comparing them teaches which view pays.",
        formula=(
            r"R_i = [a_i = a^*] + f\,[\text{form}] + \lambda\,[a_i = a^*,\ 2 \le \text{turns}_i \le 3]",
            r"A_i = \frac{R_i - \mathrm{mean}_j R_j}{\mathrm{std}_j R_j + \epsilon} \quad \text{over all levels } l_j",
        ),
        reading="the sum of the three terms, the weight of the form and how levels are spread are ours",
        departures=(
            "A text stand-in: a level is the length of a text's chunks, in place of number and size of frames; its numbers compare with no paper's.",
            "The tool opens the next chunk; the authors' ask for any frame or clip.",
        ),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"rollout", "prompt"})
    roles = {"rewards": "makes"}
    worlds = frozenset({"reader"})
    requires = (
        Requirement("task.options.levels", "equals", True, "the policy has to have seen texts at every level"),
        Requirement("task.options.fold", "differs from", True, "an episode is one context here"),
        Requirement("dataset", "equals", None, "it cuts the texts of the world's own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Episode]":
        world, roots = self.run.task, list["Node"]()
        assert isinstance(world, Reader)
        for row, example in enumerate(session.examples):
            group, member = divmod(session.first_row + row, session.group_size)
            level = choose_level(member, group + session.step) if self.config.spread else len(example.data["lines"][0])
            version = world.recut_example(example, level)
            session.prompts[row] = list(version.prompt)
            roots.append(session.begin_at(version, session.prompts[row], group=group, member=member).root)
            roots[-1].episode.notes[LEVEL] = level
        leaves = session.play(roots)
        for leaf in leaves:
            notes = leaf.episode.notes
            notes[TURNS] = len(leaf.episode.turns(leaf))
            self.log(f"right_{notes[LEVEL]}", float(session.is_right(leaf)))
            self.log(f"turns_{notes[LEVEL]}", notes[TURNS])
        return [leaf.episode for leaf in leaves]

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        right, formed = batch.correct.to(rewards), (batch.rewards[:, batch.reward_names.index("format")] > 0.5).to(rewards)
        turns = torch.tensor([float(note.get(TURNS, 0)) for note in batch.notes]).to(rewards)
        made = reward_views(right, formed, turns, self.config.form, self.config.bonus)
        self.log("paid_for_turns", (made > right + self.config.form * formed).float().mean())
        return made

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        words = {level: f"{level} line{'s' * (level > 1)} a piece" for level in LEVELS}
        return (
            Panel("Right answers by level", tuple(Series(f"{name}/right_{level}", words[level]) for level in LEVELS)),
            Panel("Turns by level", tuple(Series(f"{name}/turns_{level}", words[level]) for level in LEVELS)),
            Panel("Right answers in two or three turns", (Series(f"{name}/paid_for_turns", "share of episodes"),)),
        )
