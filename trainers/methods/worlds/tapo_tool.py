"""TAPO: tool-augmented policy optimisation, DAPO's recipe for episodes with tool calls (arXiv 2510.07038; not CodeV's method of the same name).

Three things are added to the base DAPO, which brings the wide clip and the mean over tokens; the world's words are context in any run of the lab.

1. A group is trained on only where some of its answers are right and some are not: 0 < mean(acc) < 1. Groups of one kind are replaced by further
   groups of the batch's prompts of mixed outcome, for up to ``batches`` generation batches; what is of one kind after that gets no gradient.
2. R = acc + min(-(len - (L_max - L_buf)) / L_buf * f, 0): from L_max - L_buf tokens on an episode costs reward. ``len`` counts the tool's words too,
   as the code does, so that a call that was not needed costs.
3. The world's tokens are out of the loss.

The claim that calls go where they are needed rests on the second: where a call buys a right answer it pays, elsewhere it only costs. Extra step time:
what is sampled and dropped, reported as ``batches`` and ``policy_tokens``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.tasks.base import Example
from trainers.worlds.base import World

if TYPE_CHECKING:
    import random

    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion


def compute_overlong_penalty(lengths: Tensor, longest: int, buffer: float, factor: float) -> Tensor:
    """(B,) tokens -> (B,), 0 or less: linear from ``longest - buffer`` tokens on, ``-factor`` at ``longest``."""
    return (-(lengths - (longest - buffer)) / buffer * factor).clamp(max=0.0)


def find_mixed_groups(right: Tensor, group_size: int) -> Tensor:
    """(B,) bool -> (N,) bool: groups with right and wrong answers."""
    groups = right.view(-1, group_size)
    return groups.any(1) & ~groups.all(1)


def draw_evenly(items: "Sequence[Example]", count: int, rng: "random.Random") -> "list[Example]":
    """``count`` of ``items`` in random order, each as often as the others or once more."""
    drawn = list[Example]()
    while len(drawn) < count:
        drawn += rng.sample(list(items), len(items))
    return drawn[:count]


class Config(Strict):
    filter: bool = param(True, "Train only on groups that have right and wrong answers.", title="Filter groups")
    batches: int = param(10, "Generation batches until what is missing of a full batch is left out.", title="Max generation batches", ge=1, le=100)
    buffer: float = param(
        0.5, "Share of the maximum completion length in which length costs reward (1024 of 2048 in the paper).", title="Overlong buffer", gt=0, le=1
    )
    factor: float = param(1.0, "Penalty at the maximum length.", title="Overlong factor (f)", ge=0, le=100)


class TAPOTool(Method):
    card = Card(
        name="tapo-tool",
        title="Tool-augmented policy optimisation",
        arxiv="2510.07038",
        system="TAPO",
        base="dapo",
        provenance="code",
        source="github Goer17/TAPO: examples/tapo_single_node.sh, src/tcg_ray_trainer.py, verl/workers/reward_manager/tapo.py",
        fit="core",
        idea="DAPO for episodes with tool calls: only groups of mixed outcome are trained on, and long episodes, the tool's words included, cost.",
        formula=(
            r"0 < \frac{1}{G}\sum_i \mathrm{acc}_i < 1",
            r"R = \mathrm{acc} + \min\left(-\frac{|y| - (L_{max} - L_{buf})}{L_{buf}} f,\ 0\right)",
        ),
        departures=(
            "Groups that are missing are sampled again from the batch's own prompts of mixed outcome; the code goes on to other prompts.",
            "A batch that stays incomplete is trained without its groups of one kind; the code fills it up with them.",
            "The dual clip at 10 of the script, which acts on ratios above 10 alone, is left out.",
        ),
        claim=("tapo-tool/calls", "lower"),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "maps", "advantages": "gates"}
    idle = {"rewards": ("factor", 0.0), "advantages": ("filter", False)}
    owns = frozenset({"rollout"})
    requires = (Requirement("training.beta", "equals", 0.0, "DAPO has no KL penalty", hard=False),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        made, size = session.complete(), session.group_size
        sampled, batches = count_policy_tokens(made), 1
        right = session.right(session.examples, made)
        mixed = find_mixed_groups(torch.tensor(right), size).tolist()
        offered = [session.examples[group * size] for group, kept in enumerate(mixed) if kept] or session.examples[::size]
        while self.config.filter and batches < self.config.batches and not all(mixed):
            missing = [group for group, kept in enumerate(mixed) if not kept]
            examples = [example for example in draw_evenly(offered, len(missing), session.rng) for _ in range(size)]
            again = session.complete([example.prompt for example in examples], examples)
            found = find_mixed_groups(torch.tensor(session.right(examples, again)), size).tolist()
            for place, group in enumerate(missing):
                if found[place]:
                    here, there, mixed[group] = slice(group * size, (group + 1) * size), slice(place * size, (place + 1) * size), True
                    session.examples[here], made[here] = examples[there], again[there]
                    session.prompts[here] = [example.prompt for example in examples[there]]
            sampled, batches = sampled + count_policy_tokens(again), batches + 1
        self.log("batches", batches)
        self.log("policy_tokens", sampled)
        return made

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        lengths = torch.tensor([len(ends) for ends in batch.ends]).to(rewards)
        penalty = compute_overlong_penalty(lengths, batch.max_tokens, self.config.buffer * batch.max_tokens, self.config.factor)
        self.log("overlong", (penalty < 0).float().mean())
        return rewards + penalty

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        if not self.config.filter:
            return torch.ones_like(advantages)
        mixed = find_mixed_groups(batch.correct, batch.group_size)
        self.log("dropped", (~mixed).float().mean())
        kept = mixed.repeat_interleave(batch.group_size).to(advantages)
        return kept if advantages.dim() == 1 else kept[:, None].expand_as(advantages)

    def observe(self, batch: "RolloutBatch") -> None:
        task = self.run.task
        if not isinstance(task, World):
            return
        calls = [sum(text.count(tag) for tag in task.stop) for text in batch.texts]
        self.log("calls", sum(calls) / len(calls))
        for needed, name in enumerate(("needless", "needed")):  # of prompts that say how many calls they need
            known = [count for count, example in zip(calls, batch.examples, strict=True) if example.data.get("needed") == needed]
            if known:
                self.log(f"calls_{name}", sum(known) / len(known))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Calls per episode",
                (
                    Series(f"{name}/calls", "all"),
                    Series(f"{name}/calls_needed", "where one is needed"),
                    Series(f"{name}/calls_needless", "elsewhere"),
                ),
            ),
            Panel("Groups and length", (Series(f"{name}/dropped", "groups left out"), Series(f"{name}/overlong", "episodes in the overlong buffer"))),
            Panel("Generation batches per step", (Series(f"{name}/batches", "batches"),)),
        )


def count_policy_tokens(made: "Sequence[Completion]") -> int:
    return sum(sum(one.mask) for one in made)
