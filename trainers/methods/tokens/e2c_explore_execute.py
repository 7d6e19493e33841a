"""E2C: a plan and its execution, treated differently in the advantage and in the reward (arXiv 2509.23946).

A response is a plan, a split token and an execution. Advantages of plan tokens (before the split) are multiplied by c; a response without a split
keeps its advantage. Constrained reward: align is the share of the plan's step titles that an execution title contains, or shares more than 0.3 of the
shorter one's words with (longest common subsequence); a correct response earns align, a wrong one 0. The plain reward is the run's own. It differs
from GRPO in these two. On the SFT trainer it is EF-SFT (based on the abstract and README): cross-entropy on the plan tokens only. The paper's first
stage uses c = 1 with the plain reward, a high sampling temperature and large groups; the defaults are those of its second stage.

On the lab's tasks, the plan is the <think> part and the split is </think>. Numbered titles ("1. set up the equation") count as in the paper.
Reasoning in equations has no titles, and its execution is only the answer: align is then 1 if the answer equals the result of the last equation, else
0. A correct guess without reasoning therefore earns nothing. The search task has no plan and would earn nothing under the constrained reward.
"""

import re
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts.spans import extract_answer

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch, TokenBatch
    from trainers.methods.context import RunContext

TITLE = re.compile(r"^[ *#]*[0-9]{1,3}\.[ *]*(\S.*)$", re.MULTILINE)
ENOUGH = 0.3  # of the shorter title's words


def list_step_titles(text: str) -> list[str]:
    """Titles of numbered steps."""
    return [found.strip(" *").lower() for found in TITLE.findall(text)]


def common_words(one: str, other: str) -> float:
    """Longest common subsequence of words, as a share of the shorter text's."""
    short, long = sorted((one.split(), other.split()), key=len)
    best = [0] * (len(long) + 1)
    for word in short:
        before = best
        best = [0] * len(before)
        for place, theirs in enumerate(long, 1):
            best[place] = before[place - 1] + 1 if word == theirs else max(before[place], best[place - 1])
    return best[-1] / max(len(short), 1)


def aligned_titles(planned: list[str], executed: list[str]) -> float:
    found = [any(title in other or common_words(title, other) > ENOUGH for other in executed) for title in planned]
    return sum(found) / max(len(planned), 1)


def score_conclusion(plan: str, answer: str | None) -> float:
    """1 if the answer is the result of the last equation of the plan; the plan may abbreviate a name (Fri for Friday)."""
    result = plan.rpartition("=")[2].strip()
    if "=" not in plan or not result or answer is None:
        return 0.0
    return float(result == answer or (result.isalpha() and answer.startswith(result)))


def compute_plan_alignment(text: str, split: str) -> float:
    """Share of the plan that the execution uses; 0 for a response without a split."""
    plan, found, execution = text.partition(split)
    if not found:
        return 0.0
    planned = list_step_titles(plan)
    return aligned_titles(planned, list_step_titles(execution)) if planned else score_conclusion(plan, extract_answer(execution))


def plan_tokens(batch: "RolloutBatch", row: int, split: str) -> Tensor:
    """(T,) bool: tokens before the split; none without one."""
    return batch.span(row, 0, max(0, batch.texts[row].find(split)))


def before_split(ids: Tensor, mask: Tensor, split: list[int]) -> Tensor:
    """(B, T), (B, T) -> (B, T) float: loss tokens before the first occurrence of the ids ``split``; 0 in a row without one."""
    plan = torch.zeros_like(mask)
    for row in range(len(ids)):
        own = mask[row].nonzero()[:, 0]
        seen = ids[row, own].tolist()
        starts = (place for place in range(len(seen)) if seen[place : place + len(split)] == split)
        plan[row, own[: next(starts, 0)]] = 1.0
    return plan


class Config(Strict):
    weight: float = param(2.0, "Multiplier on the advantage of plan tokens; 1 = unchanged.", title="Plan weight (c)", ge=0, le=100)
    reward: Literal["constrained", "plain"] = param(
        "constrained", "constrained: a correct completion earns the share of its plan that it used. plain: the run's own reward."
    )
    split: str = param("</think>", "Text that ends the plan.", title="Split", min_length=1, max_length=100)


class E2C(Method):
    card = Card(
        name="e2c-explore-execute",
        title="Explore-Execute Chain",
        arxiv="2509.23946",
        system="E2C-RL, EF-SFT",
        base="grpo",
        provenance="code",
        source="github yks23/Explore-Execute-Chain: verl/workers/actor/dp_actor.py, verl/utils/reward_score/e2c.py, scripts/e2c_rl.sh",
        fit="core",
        idea="Plan first, then execute: plan tokens get larger updates, and a correct completion earns reward only as far as it follows its plan.",
        formula=(
            r"A_t = c \cdot A \quad (t < s), \qquad A_t = A \quad (t \ge s)",
            r"r = 1[right] \cdot \frac{1}{|P|} \sum_{p \in P} 1[p \in execution]",
        ),
        departures=(
            "The plan is the thinking part of the lab's tasks; if it has no numbered titles, its conclusion is used instead.",
            "Fine-tuning on plan tokens only follows the abstract and README.",
            "Not implemented: separate entropy and KL coefficients, overlong shaping, plan selection at test time, and the forced phase tag.",
        ),
        claim=("e2c-explore-execute/alignment", "higher"),
    )
    Config = Config
    roles = {"rewards": "makes"}
    idle = {"rewards": ("reward", "plain")}
    trains = frozenset({"grpo", "sft"})
    requires = (
        Requirement("task.name", "differs from", "kb", "the search task has no plan: the constrained reward is 0 for every completion", hard=False),
    )

    def prepare(self, run: "RunContext") -> None:
        self.split_ids = run.completion_ids(self.config.split, end=False)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        align = torch.tensor([compute_plan_alignment(text, self.config.split) for text in batch.texts], dtype=rewards.dtype, device=rewards.device)
        self.log("alignment", align.mean())
        self.log("alignment_right", masked_mean(align, batch.correct.to(align.dtype)))
        return rewards if self.config.reward == "plain" else align * batch.correct

    def token_weights(self, batch: "LossBatch") -> Tensor:
        plan = torch.stack([plan_tokens(batch.rollout, row, self.config.split) for row in batch.rows.tolist()]).to(batch.mask.dtype) * batch.mask
        execution = batch.mask - plan
        for name, tokens in (("plan", plan), ("execution", execution)):
            self.log(f"{name}_entropy", masked_mean(batch.entropies.detach(), tokens))
            self.log(f"{name}_tokens", tokens.sum(1).mean())
        return 1.0 + (self.config.weight - 1.0) * plan

    def sft_weights(self, batch: "TokenBatch") -> Tensor:
        plan = before_split(batch.ids, batch.mask, self.split_ids)
        self.log("plan_share", masked_mean(plan, batch.mask))
        tokens, planned = ranks.all_of_tensor(torch.stack([batch.mask.sum(), plan.sum()])[None]).sum(0)  # of every process
        return plan * tokens / planned.clamp(min=1.0)  # the trainer divides by all loss tokens

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        own = "e2c-explore-execute"
        return (
            Panel("Alignment", (Series(f"{own}/alignment", "all completions"), Series(f"{own}/alignment_right", "correct completions", dashed=True))),
            Panel(
                "Entropy of plan and execution", (Series(f"{own}/plan_entropy", "plan"), Series(f"{own}/execution_entropy", "execution")), unit="nats"
            ),
            Panel("Tokens per phase", (Series(f"{own}/plan_tokens", "plan"), Series(f"{own}/execution_tokens", "execution")), "stack", unit="tokens"),
        )
