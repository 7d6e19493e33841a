"""Strategic persuasion: the sender's reward is how far a receiver's stance has moved towards its side (arXiv 2509.22989).

The receiver's stance a is a point of a scale from 1 to 7; the sender's value is v = a for a claim it argues for and 8 - a for one it argues against.
With v_0 before the first message and v after the last, r = v - v_0. One message is the static case, several with the receiver's replies between them
the dynamic one: the difficulty of the world. Only the sender is trained; replies are context. It differs from GRPO in the reward alone.

Our reading of the abstract and of a note with the definitions. The receiver is a rule of the world ``interview`` (option ``about: stance``), claims
are harmless, and the held-out ones are claims that training never has.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.base import World, replay_episode
from trainers.worlds.interview_stance import FOR, value_stance

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example


def measure_episode_gain(world: World, example: "Example", text: str) -> int:
    """r of an episode, in points of the scale; what was said before a turn that cannot be read counts."""
    side, after = example.data["side"], replay_episode(world, example, text).state["stance"]
    return value_stance(side, after) - value_stance(side, example.data["stance"])


class StrategicPersuasion(Method):
    card = Card(
        name="strategic-persuasion",
        title="Persuasion gain of a receiver's stance",
        arxiv="2509.22989",
        system="Bayesian persuasion environment",
        base="grpo",
        provenance="abstract",
        source="abstract; definitions and settings from a public reading note",
        fit="needs-environment",
        idea="Train a sender by how far it moves a fixed receiver on a scale of seven points, not by whether the receiver agrees in the end.",
        formula=(r"v(a) = a \ \mathrm{for},\ 8 - a \ \mathrm{against}", r"r = v(a_{after}) - v(a_{before})"),
        reading="the reward is that of the note; what a message is and how the receiver weighs it is the world's",
        departures=(
            "The receiver is a rule: evidence that bears on the claim and is new moves it by a point.",
            "The stance before the first message is in the prompt, not asked for.",
            "The mutual information of messages and state is not estimated; the share of messages that move the receiver is shown.",
        ),
        claim=("strategic-persuasion/gain", "higher"),
    )
    worlds = frozenset({"interview"})
    roles = {"rewards": "makes"}
    requires = (
        Requirement("task.options.about", "equals", "stance", "the receiver is in the world with this option"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
        Requirement("training.beta", "at least", 0.0005, "the paper keeps the sender near its start by a KL penalty of 0.001", hard=False),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        world = self.run.task
        assert isinstance(world, World)
        gains = torch.tensor([measure_episode_gain(world, example, text) for example, text in zip(batch.examples, batch.texts, strict=True)]).float()
        before = torch.tensor([value_stance(example.data["side"], example.data["stance"]) for example in batch.examples]).float()
        sides = torch.tensor([example.data["side"] == FOR for example in batch.examples])
        self.log("gain", gains.mean())
        self.log("before", before.mean())
        self.log("after", (before + gains).mean())
        self.log("backfired", (gains < 0).float().mean())
        for name, rows in (("for", sides), ("against", ~sides)):
            if rows.any():
                self.log(f"gain_{name}", gains[rows].mean())
        return gains.to(rewards)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Persuasion gain",
                (Series(f"{name}/gain", "all"), Series(f"{name}/gain_for", "argued for"), Series(f"{name}/gain_against", "argued against")),
                unit="points",
            ),
            Panel("Value of the stance", (Series(f"{name}/before", "before", dashed=True), Series(f"{name}/after", "after")), unit="points"),
            Panel("Receivers who moved away", (Series(f"{name}/backfired", "share of dialogues"),)),
        )
