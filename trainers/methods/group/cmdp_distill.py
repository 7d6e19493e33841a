"""Constrained distillation: maximise the task's reward within a budget of divergence from a teacher (arXiv 2509.22921).

Token cost c_t = KL(pi(.|s_t) || teacher(.|s_t)); remaining budget z_t = d - sum of c up to t. Both are functions of the text, so no extra state is
needed. R~ = 1[z_T >= 0] R - lambda sum_t 1[z_t < 0] c_t: within the budget only the task reward counts; beyond it only the further divergence counts.
The loss is the group's policy gradient on R~ plus a direct term, lambda times the violating c_t, which depend on the policy directly. In the gradient
of E[R~] both are sums over a completion's tokens, so the direct term is reduced as the base reduces its own loss (divided by B times the max
completion length under Dr. GRPO). The soft constraint, R - lambda sum_t c_t with every c_t in the loss, is the usual distillation penalty, for
comparison.

This is our interpretation of the abstract and the public reviews (Saute-style, with a penalty that depends on the policy); we found no published
equations. We found no values for lambda and d either: we use 1, and 2 nats per completion, which the tiny policy reaches within a few tens of steps.
``teacher`` is the folder of a policy with the same vocabulary, or empty for the policy that the run started from; then the cost is 0 at first and the
method is a hard trust region. The parent is Dr. GRPO, because advantages divided by the group's standard deviation would have a larger scale than the
direct term and dominate it. In the toy problem of the effect case, the policy settles at the edge of its budget, not inside it: about as many
completions are just beyond the budget as within it. z is compared with a tolerance of 1e-6, because rounding can miss a budget that is met exactly.
Step time: the distributions of the policy and, twice, of the teacher take three more forward passes, and the logits are materialised. Extra step
time: the teacher's forward pass, and logits (B, T, V) for the direct gradient of the divergence.
"""

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.maths.distributions import next_token_logprobs
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext

TOLERANCE = 1e-6


def token_kl(policy: Tensor, teacher: Tensor) -> Tensor:
    """(..., V) log-probabilities of both -> (...) nats: KL(policy || teacher)."""
    return (policy.exp() * (policy - teacher)).sum(-1)


def compute_remaining_budget(costs: Tensor, budget: Tensor) -> Tensor:
    """(B, T), (B,) -> (B, T): z_t, the budget that remains after each token."""
    return budget[:, None] - costs.cumsum(1)


def mask_budget_violations(costs: Tensor, budget: Tensor) -> Tensor:
    """(B, T), (B,) -> (B, T) float: 1 where the budget is exceeded."""
    return (compute_remaining_budget(costs, budget) < -TOLERANCE).to(costs.dtype)


def constrain_rewards(rewards: Tensor, costs: Tensor, violating: Tensor, penalty: float) -> Tensor:
    """(B,), (B, T), (B, T) -> (B,): R~; costs are 0 where masked."""
    kept = 1.0 - violating[:, -1]
    return kept * rewards - penalty * (violating * costs).sum(1)


class Config(Strict):
    teacher: str = param("", "Folder of the teacher; empty uses the policy that the run started from.", title="Teacher")
    budget: float = param(2.0, "Divergence budget per completion, or per token on average.", title="Budget (d)", unit="nats", ge=0, le=1e9)
    per_token: bool = param(False, "The budget is per token: a completion's budget is this times its length.", title="Budget per token")
    penalty: float = param(1.0, "Weight of the divergence beyond the budget.", title="Penalty (lambda)", ge=0, le=1e4)
    constraint: Literal["hard", "soft"] = param("hard", "soft penalises all divergence, as in plain distillation with a fixed weight.")


class CMDPDistill(Method):
    card = Card(
        name="cmdp-distill",
        title="Constrained distillation",
        arxiv="2509.22921",
        system="constrained MDP distillation",
        base="dr-grpo",
        provenance="abstract",
        source="abstract and public reviews",
        fit="core",
        idea=(
            "A completion keeps its reward while its divergence from the teacher stays within a budget; beyond that, only the "
            "excess divergence counts."
        ),
        formula=(
            r"z_t = d - \sum_{u \le t} \mathrm{KL}\left(\pi(\cdot|s_u)\,\|\,\pi_T(\cdot|s_u)\right)",
            r"\tilde R = 1[z_T \ge 0]\,R - \lambda \sum_t 1[z_t < 0]\,c_t",
        ),
        reading="equations are based on the abstract and public reviews; the direct term is reduced as the base reduces its own loss",
        departures=("Without a teacher folder, the teacher is the policy that the run started from.",),
        claim=("cmdp-distill/satisfied", "higher"),
    )
    Config = Config
    roles = {"rewards": "maps"}
    needs = frozenset({"logits"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.violating = torch.empty(0)  # (B, T) of the sampled batch

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.teacher = run.frozen(self.config.teacher) if self.config.teacher else None
        if self.teacher is not None and self.teacher.config.vocab_size != run.model.config.vocab_size:
            sizes = f"{self.teacher.config.vocab_size} tokens, the policy {run.model.config.vocab_size}"
            raise SpecError([Problem("methods", "cmdp-distill", f"the teacher has {sizes}", "choose a teacher with the policy's tokenizer")])

    def of(self, model: Any, prompts: list[list[int]], ids: Tensor) -> Tensor:
        """(B, T, V) log-probabilities of a model at the sampling temperature."""
        return next_token_logprobs(model, prompts, ids, self.run.tokenizer.pad_token_id, self.run.training.temperature)

    @torch.no_grad()
    def of_teacher(self, prompts: list[list[int]], ids: Tensor) -> Tensor:
        return self.of(self.teacher if self.teacher is not None else self.run.reference, prompts, ids)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        with torch.no_grad():
            policy = self.of(self.run.model, batch.prompt_ids, batch.ids)
        return self.constrain(rewards, token_kl(policy, self.of_teacher(batch.prompt_ids, batch.ids)) * batch.mask, batch.lengths)

    def constrain(self, rewards: Tensor, costs: Tensor, lengths: Tensor) -> Tensor:
        """(B,) rewards, (B, T) token costs, (B,) lengths -> (B,) R~; stores which tokens the loss penalises."""
        config = self.config
        budget = config.budget * (lengths if config.per_token else torch.ones_like(lengths))
        violating = mask_budget_violations(costs, budget)
        self.report(costs, violating, budget)
        if config.constraint == "soft":
            self.violating = torch.ones_like(costs)
            return rewards - config.penalty * costs.sum(1)
        self.violating = violating
        return constrain_rewards(rewards, costs, violating, config.penalty)

    def loss(self, batch: "LossBatch") -> Tensor | None:  # type: ignore[override]
        direct = self.direct(batch)
        return None if direct is None else batch.base_mean(direct)

    def direct(self, batch: "LossBatch") -> Tensor | None:
        """(B, T) penalised divergence of the tokens beyond the budget, with gradient; None where there is none."""
        held = batch.of(self.violating) * batch.mask
        if self.config.penalty == 0 or not held.any():
            return None
        assert batch.logits is not None
        teacher = self.of_teacher(batch.of(batch.rollout.prompt_ids), batch.ids)
        return self.config.penalty * token_kl(torch.log_softmax(batch.logits, -1), teacher) * held

    def report(self, costs: Tensor, violating: Tensor, budget: Tensor) -> None:
        self.log("divergence", costs.sum(1).mean())
        self.log("budget", budget.mean())
        self.log("satisfied", 1.0 - violating[:, -1].mean())
        self.log_histogram("spent", costs.sum(1) / budget.clamp(min=TOLERANCE), 0.0, 2.0)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Divergence from the teacher",
                (Series(f"{name}/divergence", "per completion"), Series(f"{name}/budget", "budget", dashed=True)),
                unit="nats",
            ),
            Panel("Completions within the budget", (Series(f"{name}/satisfied", "share"),)),
            Panel("Budget spent", (Series(f"{name}/spent"),), "histogram", help="Share of completions by divergence divided by budget, from 0 to 2."),
        )
