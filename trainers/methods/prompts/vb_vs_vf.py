"""Cloning of right samples, the arm without a verifier in a comparison with RL, and what tells beforehand which should win (arXiv 2502.12118).

VF: k samples of the policy as it is to each of N prompts, at most H tokens long; cross-entropy on those that are right, and nothing else. VB: GRPO
with the same verifier on as many samples. The paper proves that VB wins by a gap of order sqrt(H) where right traces differ and rewards are not
concentrated at their mean. Both are measured on the samples; with r(y) = 1 - T / H for a right answer of T tokens, 0 for a wrong one, per prompt x:
    heterogeneity        sigma^2(x) = Var(r(y) | y right)
    anti-concentration   c(x)       = P(r(y) >= mean r + std r)
It differs from SFT in its rows. r is the paper's share of a trace at which the problem is solved already, where that is known at its end alone. The
paper is known from its abstract and notes of others; the two statistics are our reading.
"""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainers.attempt import ranks
from trainers.attempt.repeated_answers import is_right
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.pass_rates import compute_anti_concentration, compute_heterogeneity, score_early_success
from trainers.methods.base import Method
from trainers.methods.card import Card, Requirement
from trainers.policies.sampling import as_rows

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.policies.sampling import Completion
    from trainers.tasks.base import Example


class Config(Strict):
    prompts: int = param(480, "Training prompts that are sampled (our value: as many as 60 steps of GRPO with 8 groups have).", ge=1, le=1_000_000)
    samples: int = param(8, "Samples of each prompt (k).", title="Samples per prompt", ge=2, le=256)
    temperature: float = param(1.0, "Sampling temperature.", title="Temperature", gt=0, le=10)


class ClonedRightSamples(Method):
    card = Card(
        name="vb-vs-vf",
        title="Cloning of right samples",
        arxiv="2502.12118",
        system="verifier-based vs verifier-free",
        base="sft",
        provenance="abstract",
        source="abstract; notes of others for the rate of the gap",
        fit="variant",
        idea="Clone the policy's own right samples, to be compared with RL on as many, and measure when RL should win.",
        formula=(
            r"L = -\frac{1}{|D|}\sum_{y \in D} \log \pi(y|x), \quad D = \{y_i \sim \pi_b : y_i \text{ right}\}",
            r"\sigma^2(x) = \mathrm{Var}(r \mid y \text{ right}), \quad c(x) = P(r \ge \bar r + \mathrm{std}\, r)",
        ),
        reading="both statistics, and r by the length of an answer",
        departures=("The traces that are cloned are the policy's own; the paper's come from an expert.",),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"sft"})
    requires = (Requirement("dataset", "equals", None, "it trains on samples of its own"),)
    roles = {"data": "makes"}

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        return ranks.done_by_first(lambda: self.sample_right_rows(run))

    def sample_right_rows(self, run: "RunContext") -> list[dict[str, Any]]:
        spec, each = run.attempt.spec, self.config.samples
        examples = run.task.examples("train", self.config.prompts, spec.seed, spec.task.difficulty)
        repeated = [example for example in examples for _ in range(each)]
        made = run.sample(repeated, self.config.temperature, "vb-vs-vf")
        right = [is_right(run.task, example, one) for example, one in zip(repeated, made, strict=True)]
        self.report(made, right, run.training.max_completion_length or run.training.max_length)
        return [clone_completion(example, one) for example, one, good in zip(repeated, made, right, strict=True) if good]

    def report(self, made: "Sequence[Completion]", right: Sequence[bool], budget: int) -> None:
        """The statistics of the samples, whose groups follow each other."""
        scores = [score_early_success(sum(one.mask), good, budget) for one, good in zip(made, right, strict=True)]
        groups = [scores[start : start + self.config.samples] for start in range(0, len(scores), self.config.samples)]
        varied = [found for group in groups if (found := compute_heterogeneity(group)) is not None]
        self.log("data_right", sum(right) / len(right))
        self.log("data_concentration", statistics.fmean(map(compute_anti_concentration, groups)))
        if varied:
            self.log("data_heterogeneity", statistics.fmean(varied))


def clone_completion(example: "Example", made: "Completion") -> dict[str, Any]:
    """A supervised row of the sampled tokens as they are; what the world said is not in the loss."""
    return {
        "prompt": as_rows(example.prompt),
        "completion": [{"role": "assistant", "content": made.text}],
        "input_ids": [*made.prompt_ids, *made.ids],
        "completion_mask": [*([0] * len(made.prompt_ids)), *made.mask],
    }
