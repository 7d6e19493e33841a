"""RC-GRPO: reward-conditioned GRPO (arXiv 2602.03025). First, fine-tune on good and bad completions whose prompts carry a quality mark, so that the
mark controls quality. Then give the members of a GRPO group different marks, so that each group mixes qualities and its rewards differ.

Stage 1 (trainer sft): the task judges the demonstrations; the prompt of a wrong one gets the low mark, that of a correct one the high mark. Stage 2
(trainer grpo): each member gets the high mark with probability p, by random draw or in fixed numbers (round(p G) high). Reward and advantage ignore
the marks: mean and standard deviation are those of the mixed group. The mark stays in the prompt when log-probabilities are computed. Lower bound:
Var(R) >= p (1 - p) (mu_high - mu_low)^2, the variance between the marks. The policy is deployed with the high mark.

This is our interpretation of an abstract and second-hand notes (no official code): the reward of a low-marked completion is not inverted. The marks
are text in the last message instead of special tokens. By default the high mark is empty: the plain prompt is then the deployed condition, and
held-out evaluation and later stages use it without knowing about marks. It differs from the base only in the prompts. It assumes stage 1, because
otherwise the marks mean nothing: start from the policy of an SFT run with this method. Rows of a dataset can give their quality in a column
``reward`` (1 = correct); rows that cannot be judged stay unmarked. Extra step time: the mark lengthens the prompts of the members that have one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    import random

    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example


def draw_quality_marks(members: int, share: float, fixed: bool, rng: "random.Random") -> list[bool]:
    """Which members get the high mark; with fixed numbers, the first ones do."""
    if fixed:
        high = round(share * members)
        return [place < high for place in range(members)]
    return [rng.random() < share for _ in range(members)]


def variance_between(rewards: Tensor, high: Tensor) -> Tensor:
    """(B,), (B,) bool -> scalar: p (1 - p) (mu_high - mu_low)^2; 0 where one mark is missing."""
    if not high.any() or high.all():
        return rewards.new_zeros(())
    share = high.float().mean()
    return share * (1 - share) * (rewards[high].mean() - rewards[~high].mean()) ** 2


def append_quality_mark(text: str, mark: str) -> str:
    return f"{text} {mark}" if mark else text


class Config(Strict):
    share: float = param(
        0.5, "Probability of the high mark; the paper uses the share of successes in the stage-1 data.", title="High-mark share (p)", ge=0, le=1
    )
    numbers: Literal["fixed", "lot"] = param(
        "fixed", "fixed: round(p G) members get the high mark. lot: each member draws its mark at random.", title="Assignment of marks"
    )
    high: str = param("", "Text appended to the prompt for good completions; empty = the plain prompt.", title="High mark", max_length=60)
    low: str = param("(low)", "Text appended to the prompt for bad completions.", title="Low mark", min_length=1, max_length=60)


class RCGRPO(Method):
    card = Card(
        name="rc-grpo",
        title="Reward-conditioned GRPO",
        arxiv="2602.03025",
        system="RC-GRPO, RCTP",
        base="grpo",
        provenance="abstract",
        source="abstract and a review-style summary; two third-party implementations",
        fit="core",
        idea="Teach the policy to write good or bad completions on request, then request both in every group, so that rewards in a group differ.",
        formula=(
            r"c_i \sim \mathrm{Bernoulli}(p), \quad y_i \sim \pi(\cdot | x, c_i), \quad A_i = \frac{R_i - \mathrm{mean}(R)}{\mathrm{std}(R)}",
            r"\mathrm{Var}(R) \ge p (1 - p) (\mu_{high} - \mu_{low})^2",
        ),
        reading="abstract only; marks are text, and the high one is empty by default; rewards of low-marked completions are not inverted",
        departures=("Marks are text in the last message instead of special tokens.",),
        claim=("frac_reward_zero_std", "lower"),
    )
    Config = Config
    roles = {"data": "maps"}
    trains = frozenset({"grpo", "sft"})
    owns = frozenset({"prompt"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """Stage 1: adds the quality mark to supervised rows. GRPO's examples stay unchanged."""
        if run.attempt.spec.training.trainer != "sft":
            return rows
        known = {} if run.attempt.spec.dataset else {read_last_message(example.prompt): example for example in self.examples(run)}
        qualities = [self.quality(row, known) for row in rows]
        judged = [quality for quality in qualities if quality is not None]
        self.log("data_high", sum(judged) / max(1, len(judged)))
        self.log("data_unmarked", 1 - len(judged) / len(rows))
        marks = {True: self.config.high, False: self.config.low, None: ""}
        return [{**row, "prompt": with_mark(row["prompt"], marks[quality])} for row, quality in zip(rows, qualities, strict=True)]

    def examples(self, run: "RunContext") -> "list[Example]":
        """The examples that the task's demonstrations were written for."""
        spec = run.attempt.spec
        return run.task.examples("train", run.training.demonstrations, spec.seed, spec.task.difficulty)

    def quality(self, row: dict[str, Any], known: "dict[str, Example]") -> bool | None:
        if row.get("reward") is not None:
            return float(row["reward"]) > 0.5
        example = known.get(row["prompt"][-1]["content"])
        return None if example is None else self.run.right(example, row["completion"][-1]["content"])

    def prompts(self, example: "Example", members: int, step: int) -> list[list[Message]]:
        rng = self.run.rng("rc-grpo", step, read_last_message(example.prompt))
        high = draw_quality_marks(members, self.config.share, self.config.numbers == "fixed", rng)
        last = example.prompt[-1]
        forms = {good: Message(last.role, append_quality_mark(last.content, self.config.high if good else self.config.low)) for good in (True, False)}
        return [[*example.prompt[:-1], forms[good]] for good in high]

    def observe(self, batch: "RolloutBatch") -> None:
        high = torch.tensor([not prompt[-1].content.endswith(f" {self.config.low}") for prompt in batch.prompts])
        reward = batch.reward.detach().float().cpu()
        for name, chosen in (("high", high), ("low", ~high)):
            if chosen.any():
                self.log(f"reward_{name}", reward[chosen].mean())
        groups = zip(batch.grouped(reward), batch.grouped(high), strict=True)
        self.log("between", torch.stack([variance_between(rewards, marks) for rewards, marks in groups]).mean())
        spread = batch.grouped(reward)
        self.log("silent", (spread.amax(1) == spread.amin(1)).float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Reward by mark",
                (Series("rc-grpo/reward_high", "high"), Series("rc-grpo/reward_low", "low")),
                help="A gap means that the mark controls quality. Without a gap, groups vary no more than without marks.",
            ),
            Panel(
                "Zero-variance groups",
                (Series("rc-grpo/silent", "equal rewards"), Series("rc-grpo/between", "variance between the marks", dashed=True)),
            ),
        )


def read_last_message(prompt: Sequence[Message]) -> str:
    return prompt[-1].content


def with_mark(prompt: Sequence[dict[str, str]], mark: str) -> list[dict[str, str]]:
    return [*prompt[:-1], {**prompt[-1], "content": append_quality_mark(prompt[-1]["content"], mark)}]
