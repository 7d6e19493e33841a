"""Critique-Coder: a fifth of the training prompts ask whether a given solution is correct (arXiv 2509.22824).

With probability rho, a prompt becomes a critique item: the question, a solution, and a known label. Its reward is 1 when the verdict equals the
label, and 0 otherwise or without a verdict; all other prompts keep their reward. It is one GRPO run with two rewards, chosen by the kind of item.
Truncated completions get advantage 0 and are excluded from the mean over tokens; groups of equal rewards have no gradient in any case. The clip range
[0.8, 1.3] and the mean over tokens are settings of the base.

A verdict is the last conclusion{...}, or else the last <answer>. In words, a verdict that contains T is True; otherwise one that contains F is False.
As numbers, only 1 and 0 count. Extra step time: prompts of critique items contain a solution, so sequences are longer.
"""

import random
import re
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.base import Example
from trainers.texts.spans import extract_answer

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

CONCLUSION = re.compile(r"[\\/]conclusion\{([^{}]{0,200})\}")
KEY = "critique"  # in Example.data: whether the solution in question is right
Words = Literal["1/0", "True/False"]


def parse_verdict(text: str, words: Words = "True/False") -> bool | None:
    """The verdict of a critique; None without one."""
    concluded = CONCLUSION.findall(text)
    said = concluded[-1] if concluded else extract_answer(text)
    if said is None:
        return None
    if words == "1/0":
        return {"1": True, "0": False}.get(said.strip())
    return True if "T" in said else False if "F" in said else None


def verdict_rewards(verdicts: list[bool | None], labels: list[bool]) -> list[float]:
    return [float(said is not None and said == label) for said, label in zip(verdicts, labels, strict=True)]


def balance_critique_items(items: list[tuple[Example, str, bool]], count: int, rng: random.Random) -> list[tuple[Example, str, bool]]:
    """At most ``count`` items, with equal numbers of correct and wrong solutions."""
    right, wrong = ([item for item in items if item[2] is label] for label in (True, False))
    rng.shuffle(right)
    rng.shuffle(wrong)
    each = min(len(right), len(wrong), count // 2)
    return [item for pair in zip(right[:each], wrong[:each], strict=True) for item in pair]


def make_critique_example(example: Example, solution: str, label: bool, words: Words) -> Example:
    """The critique item for a solution."""
    yes, no = words.split("/")
    question = example.prompt[-1].content
    prompt = [*example.prompt[:-1], Message("user", f"{question}\n{solution}\n{yes} or {no}?")]
    return Example(prompt, yes if label else no, {KEY: label})


class Config(Strict):
    share: float = param(0.2, "Share of the training prompts that become critique items.", title="Critique share (rho)", ge=0, le=1)
    solutions: int = param(2, "Solutions sampled for each of these prompts; equal numbers of correct and wrong ones are kept.", ge=1, le=64)
    words: Words = param("1/0", "Words for a verdict; the paper uses True/False.", title="Verdict")
    mask_truncated: bool = param(True, "Exclude truncated completions from the loss.", title="Mask truncated")


class CritiqueCoder(Method):
    card = Card(
        name="critique-coder",
        title="Critique reinforcement learning",
        arxiv="2509.22824",
        system="Critique-Coder",
        base="grpo",
        provenance="code",
        source="github TIGER-AI-Lab/Critique-Coder: verl_tool/workers/reward_manager/crl.py and training configs",
        fit="core",
        idea="For a fifth of the prompts, ask the policy whether a given solution is correct; judging solutions helps it to write them.",
        formula=(r"r = 1[\hat c = c^*]", r"A_i = \frac{r_i - \mathrm{mean}(r)}{\mathrm{std}(r)}"),
        departures=(
            "Solutions are sampled from the starting policy and labelled by the task's verifier; the paper samples them from a weaker model.",
            "A verdict is written as 1 or 0 by default; the paper uses True and False.",
            "The verdict may also be in an answer tag, and the conclusion command may start with either slash.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "maps", "rewards": "gates", "advantages": "gates"}

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        rng = run.rng(self.card.name)
        places = [place for place in range(len(rows)) if rng.random() < self.config.share]
        asked = [rows[place] for place in places for _ in range(self.config.solutions)]
        made = run.sample(asked, key=self.card.name) if asked else []
        items = [(example, done.text, run.right(example, done.text)) for example, done in zip(asked, made, strict=True)]
        kept = balance_critique_items(items, len(places), rng)
        for place, item in zip(places, kept, strict=False):  # a policy that is always right or always wrong leaves fewer items
            rows[place] = make_critique_example(*item, self.config.words)
        return rows

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        asked = torch.tensor([KEY in example.data for example in batch.examples], device=rewards.device)
        labels = [bool(example.data.get(KEY)) for example in batch.examples]
        verdicts = [parse_verdict(text, self.config.words) for text in batch.texts]
        judged = torch.tensor(verdict_rewards(verdicts, labels), dtype=rewards.dtype, device=rewards.device)
        self.report(batch, rewards, judged, asked, torch.tensor(labels, device=rewards.device))
        said = [given is not None for given, one in zip(verdicts, asked.tolist(), strict=True) if one]
        if said:
            self.log("verdict_given", sum(said) / len(said))
        return torch.where(asked, judged, rewards)

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        if not self.config.mask_truncated:
            return advantages
        kept = batch.finished.to(advantages)
        batch.leave_out(~batch.finished, "cut off at the longest completion (critique-coder)")
        return advantages * (kept if advantages.dim() == 1 else kept[:, None])

    def report(self, batch: "RolloutBatch", rewards: Tensor, judged: Tensor, asked: Tensor, labels: Tensor) -> None:
        for name, values, chosen in (
            ("solve_reward", rewards, ~asked),
            ("critique_reward", judged, asked),
            ("right_accepted", judged, asked & labels),
            ("wrong_rejected", judged, asked & ~labels),
        ):
            if chosen.any():
                self.log(name, values[chosen].mean())
        flat = batch.grouped(torch.where(asked, judged, rewards))
        still = flat.amax(1) == flat.amin(1)  # (N,)
        kinds = batch.grouped(asked)[:, 0]
        for name, chosen in (("solve_flat", ~kinds), ("critique_flat", kinds)):
            if chosen.any():
                self.log(name, still[chosen].float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Reward by prompt kind", (Series(f"{name}/solve_reward", "solve"), Series(f"{name}/critique_reward", "critique"))),
            Panel(
                "Verdicts",
                (
                    Series(f"{name}/right_accepted", "correct solutions accepted"),
                    Series(f"{name}/wrong_rejected", "wrong solutions rejected"),
                    Series(f"{name}/verdict_given", "verdict given", dashed=True),
                ),
            ),
            Panel("Zero-variance groups", (Series(f"{name}/solve_flat", "solve"), Series(f"{name}/critique_flat", "critique"))),
        )
