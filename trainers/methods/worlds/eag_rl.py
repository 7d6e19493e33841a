"""EAG-RL: naming the features that a small expert model relies on is paid, and the clip opens where entropy is low (arXiv 2508.13579).

R = 1[answer right] + w |F n F_exp| / |F u F_exp| + 1[right form]
    F: the features that the policy names;  F_exp: the k with the largest |w_j x_j| of a logistic regression, a quarter of the largest at least
eps_hi(t) = eps + kappa max(0, H_ref - H_t) / H_ref
    H_t: mean token entropy of the batch (nats);  H_ref: that of the first batch unless it is given
L = -min(rho A, clip(rho, 1 - eps_lo, 1 + eps_hi(t)) A)

It differs from GRPO in the reward and in the upper bound; with w = 0 and kappa = 0 it is GRPO on answer and form, with eps for both of its bounds. In
a single pass over a batch every ratio is 1, and the bounds do nothing.

All formulas are our reading of the abstract and a public review. The authors train a clinical predictor with attention, and start their policy from
searches that it guides. Here the expert is a logistic regression that is fitted to records of the world before training, and the policy starts from
the world's demonstrations.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.logistic import fit_logistic_regression
from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.base import parse_answer
from trainers.worlds.records import COLUMNS, NOISE, YES, measure_overlap, split_features

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

RIDGE = 1e-4  # of the expert: keeps its weights finite where the columns separate all records, and leaves little to what only agrees at times
LEAST_ATTENTION = 0.25  # of the largest in a record, to be one of the expert's features


def compute_upper_bound(entropy: float, reference: float, base: float, rise: float) -> float:
    """eps_hi; ``rise``: kappa."""
    return base + rise * max(0.0, reference - entropy) / reference if reference > 0 else base


def clip_surrogate(log_ratios: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """(B, T), (B, T) or (B, 1) -> (B, T) losses."""
    ratios = log_ratios.exp()
    return -torch.min(ratios * advantages, torch.clamp(ratios, 1 - low, 1 + high) * advantages)


def rank_features(weights: Mapping[str, float], values: Mapping[str, int], count: int) -> list[str]:
    """The ``count`` columns of a record that the expert attends to most, without those it hardly attends to."""
    attention = {column: abs(weights[column] * value) for column, value in values.items()}
    least = LEAST_ATTENTION * max(attention.values(), default=0.0)
    return sorted((column for column, one in attention.items() if one and one >= least), key=lambda column: -attention[column])[:count]


def fit_expert(examples: "Sequence[Example]") -> dict[str, float]:
    """Column -> weight, 0 for a column that no record has."""
    inputs = torch.tensor([[float(example.data["values"].get(column, 0)) for column in COLUMNS] for example in examples])
    labels = torch.tensor([float(example.reference == YES) for example in examples])
    weights = fit_logistic_regression(torch.cat([inputs, torch.ones(len(inputs), 1)], 1), labels, RIDGE)  # the last one is the intercept
    return dict(zip(COLUMNS, weights[:-1].tolist(), strict=True))


class Config(Strict):
    weight: float = param(0.5, "Paid for naming the expert's features (our value); 0: they are only measured.", title="Overlap (w)", ge=0, le=10)
    form: float = param(0.2, "Paid for the right form (our value).", title="Form", ge=0, le=10)
    features: int = param(3, "Features of the expert that are looked at (our value).", title="Features (k)", ge=1, le=10)
    base: float = param(0.2, "Bound of the ratio below 1, and above it where entropy is high (our value).", title="Clip (eps)", gt=0, lt=1)
    rise: float = param(0.2, "How much the upper bound rises as entropy falls to 0 (our value).", title="Rise (kappa)", ge=0, le=5)
    reference: float = param(0.0, "Entropy below which it rises; 0: that of the first batch.", title="Reference entropy (H_ref)", unit="nats", ge=0)
    records: int = param(2000, "Records that the expert is fitted to.", title="Records", ge=50, le=100_000, advanced=True)


class EAGRL(Method):
    card = Card(
        name="eag-rl",
        title="An expert's features named",
        arxiv="2508.13579",
        system="EAG-RL",
        base="grpo",
        provenance="abstract",
        source="abstract; a public review for the list of features, the alignment and the upper bound",
        fit="variant",
        idea="Pay for naming the features that a small expert model relies on, and widen the clip where entropy is low.",
        formula=(
            r"R = [a = a^*] + w\, \frac{|F \cap F_{exp}|}{|F \cup F_{exp}|} + \mathrm{form}",
            r"\epsilon_{hi}(t) = \epsilon + \kappa\, \frac{\max(0, H_{ref} - H_t)}{H_{ref}}",
        ),
        reading="all formulas and values, and that the reference entropy is the first batch's",
        departures=(
            "The expert is a logistic regression on records of a generated table, not a clinical predictor with attention.",
            "Features to which it attends less than a quarter as much as to its first one are not its features.",
            "The policy starts from the world's demonstrations, not from searches that the expert guides.",
        ),
        claim=("heldout/cited", "higher"),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"policy loss"})
    roles = {"rewards": "makes"}
    needs = frozenset({"logprobs"})
    worlds = frozenset({"records"})
    requires = (
        Requirement("dataset", "equals", None, "the expert needs the world's own records"),
        Requirement(
            "training.num_iterations",
            "at least",
            2,
            "in a single pass every ratio is 1, so that the upper bound does nothing",
            hard=False,
            or_field="training.steps_per_generation",
        ),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.expert: dict[str, float] = {}
        self.reference_entropy: float = self.config.reference
        self.upper: float = self.config.base

    def prepare(self, run: "RunContext") -> None:
        spec = run.attempt.spec
        self.expert = fit_expert(run.task.examples("train", self.config.records, spec.seed, spec.task.difficulty))
        most = max(map(abs, self.expert.values()))
        self.log("expert_noise", max(abs(self.expert[column]) for column in NOISE) / most)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, made = self.config, []
        for right, example, text in zip(batch.correct.tolist(), batch.examples, batch.texts, strict=True):
            named, rest = split_features(text)
            wanted = rank_features(self.expert, example.data["values"], config.features)
            overlap = 0.0 if named is None else measure_overlap(named, wanted)
            formed = named is not None and parse_answer(rest) is not None
            made.append(right + config.weight * overlap + config.form * formed)
            self.log("overlap", overlap)
            self.log("named", float(len(named or [])))
            self.log("noise_named", float(sum(column in NOISE for column in named or [])))
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def observe(self, batch: "RolloutBatch") -> None:
        assert batch.entropies is not None  # needs "logprobs"
        entropy = float(masked_mean(batch.entropies, batch.mask))
        self.reference_entropy = self.reference_entropy or entropy
        self.upper = compute_upper_bound(entropy, self.reference_entropy, self.config.base, self.config.rise)
        self.log("entropy", entropy)
        self.log("upper_bound", self.upper)

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        log_ratios = batch.logprobs - batch.old_logprobs
        self.log("clipped_above", masked_mean((log_ratios.detach().exp() > 1 + self.upper).to(batch.mask), batch.mask))
        return batch.base_mean(clip_surrogate(log_ratios, batch.token_advantages(), self.config.base, self.upper))

    def state(self) -> dict[str, Any]:
        return {"reference_entropy": self.reference_entropy, "upper": self.upper}

    def restore(self, state: dict[str, Any]) -> None:
        self.reference_entropy, self.upper = state["reference_entropy"], state["upper"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Features named", (Series(f"{name}/overlap", "overlap with the expert's"),)),
            Panel("Features of an answer", (Series(f"{name}/named", "named"), Series(f"{name}/noise_named", "of noise"))),
            Panel(
                "Upper bound and entropy", (Series(f"{name}/upper_bound", "bound above 1"), Series(f"{name}/entropy", "entropy, nats", dashed=True))
            ),
            Panel("Ratios above the bound", (Series(f"{name}/clipped_above", "share of tokens"),)),
        )
