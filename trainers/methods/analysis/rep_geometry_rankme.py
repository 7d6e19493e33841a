"""RankMe and alpha-ReQ: the geometry of a policy's representations during training (arXiv 2509.23024). Both measures are standard; how they are
sampled is our interpretation.

F (N, D) holds the centred last-layer state of the last token of each of N fixed held-out prompts; lambda_1 >= ... are the eigenvalues of F^T F / N.
RankMe = exp(entropy of lambda / sum lambda) is the effective number of directions in use (an option uses the singular values instead, as the RankMe
paper does). alpha-ReQ assumes lambda_i ~ i^-alpha; alpha is minus the least-squares slope of ln lambda_i on ln i. High RankMe and low alpha mean that
representations are spread out; the opposite means that they are compressed. The paper finds that SFT and DPO spread representations, and that RL
compresses them with a loss of diversity.

This method only measures: a run with it is identical to one without. Every few steps it runs one forward pass over the probe prompts, before the
weights are updated. Our choices: 256 prompts (the abstract gives no number; 1,024 for a large model), the slope from i = 11 to half of r, and a
measurement every 5 steps. On GRPO, the share of distinct answers in a batch of rollouts is logged too. Works with every trainer; for a reward model
the backbone is measured.
"""

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.spectrum import covariance_eigenvalues, exponential_entropy, power_law_slope
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

FIRST = 11  # eigenvalue the slope begins with
SMALLEST_LOG = -6.0  # of the drawn spectrum: log10 of an eigenvalue's share of the largest


def compute_rankme(eigenvalues: Tensor, of: Literal["eigenvalues", "singular values"] = "eigenvalues") -> float:
    """(r,) -> between 1 and r; 0 for a spectrum of zeros."""
    return float(exponential_entropy(eigenvalues if of == "eigenvalues" else eigenvalues.sqrt()))


def alpha_req(eigenvalues: Tensor) -> float:
    """(r,) largest first -> alpha, from the eleventh eigenvalue to half of them."""
    return power_law_slope(eigenvalues, FIRST, max(FIRST + 1, len(eigenvalues) // 2))


@torch.no_grad()
def last_states(model: Any, prompts: list[list[int]], pad: int, device: torch.device) -> Tensor:
    """N prompts as token ids -> (N, D): last-layer states of their last tokens. Restores the train/eval mode of the model."""
    width, states, training = max(map(len, prompts)), [], model.training
    model.eval()
    try:
        for start in range(0, len(prompts), 64):
            some = prompts[start : start + 64]
            ids = torch.tensor([[pad] * (width - len(row)) + row for row in some], device=device)
            there = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in some], device=device)
            places = (there.cumsum(1) - 1).clamp(min=0)
            out = model(input_ids=ids, attention_mask=there, position_ids=places, output_hidden_states=True, use_cache=False)
            states.append(out.hidden_states[-1][:, -1].float())
    finally:
        model.train(training)
    return torch.cat(states)


class Config(Strict):
    prompts: int = param(256, "Number of fixed held-out prompts to measure.", title="Probe prompts (N)", ge=2, le=65_536)
    every: int = param(5, "Steps between two measurements; the first step is always measured.", title="Every (steps)", ge=1)
    spectrum: Literal["eigenvalues", "singular values"] = param("eigenvalues", "Values whose entropy defines RankMe.")


class RepGeometry(Method):
    card = Card(
        name="rep-geometry-rankme",
        title="Representation geometry: RankMe and alpha-ReQ",
        arxiv="2509.23024",
        system="Tracing the Representation Geometry of Language Models",
        base="grpo",
        provenance="abstract",
        source="abstract; RankMe (arXiv 2210.02885) and alpha-ReQ as commonly defined",
        fit="core",
        idea="Track two statistics of the spectrum of hidden states, which show whether training spreads or compresses the policy's representations.",
        formula=(
            r"RankMe = \exp\left(-\sum_k p_k \log p_k\right), \quad p_k = \frac{\lambda_k}{\sum_j \lambda_j}",
            r"\lambda_i \propto i^{-\alpha}",
        ),
        reading="prompts, layer, number of prompts and slope range are our choices",
        departures=(
            "The number of prompts (256), the slope range (eleventh eigenvalue to half of them) and the interval (5 steps) are our choices.",
        ),
        claim=("rep-geometry-rankme/rankme", "lower"),
    )
    Config = Config
    trains = frozenset({"grpo", "dpo", "kto", "sft", "reward"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.steps = 0

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        spec = run.attempt.spec
        examples = run.task.examples("heldout", self.config.prompts, spec.seed, spec.task.difficulty)
        self.probe = run.prompt_ids([example.prompt for example in examples])

    def gradients(self, model: Any) -> None:
        """Runs just before the weights are updated, the only point that every trainer passes; the gradients stay unchanged."""
        if self.steps % self.config.every == 0:
            self.look(covariance_eigenvalues(last_states(model, self.probe, self.run.tokenizer.pad_token_id, self.run.device)))
        self.steps += 1

    def look(self, eigenvalues: Tensor) -> None:
        self.log("rankme", compute_rankme(eigenvalues, self.config.spectrum))
        self.log("alpha", alpha_req(eigenvalues))
        shares = (eigenvalues / eigenvalues.max().clamp(min=1e-30)).clamp(min=10**SMALLEST_LOG).log10()
        self.log_histogram("spectrum", shares, SMALLEST_LOG, 0.0)

    def observe(self, batch: "RolloutBatch") -> None:
        texts = [batch.texts[start : start + batch.group_size] for start in range(0, len(batch.texts), batch.group_size)]
        self.log("distinct", sum(len(set(group)) / len(group) for group in texts) / len(texts))

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def restore(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "RankMe", (Series(f"{name}/rankme"),), help="Effective number of directions spanned by the last-token states of the fixed prompts."
            ),
            Panel("Spectrum decay", (Series(f"{name}/alpha", "alpha"),), help="Larger values mean more compressed representations."),
            Panel("Distinct answers in a group", (Series(f"{name}/distinct", "share"), Series("reward", dashed=True))),
            Panel(
                "Eigenvalues",
                (Series(f"{name}/spectrum"),),
                "histogram",
                unit="log10 of the largest",
                low=SMALLEST_LOG,
                high=0.0,
            ),
        )
