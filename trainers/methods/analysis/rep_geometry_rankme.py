"""RankMe and alpha-ReQ: the geometry of a policy's representations while it trains (arXiv 2509.23024); both measures standard, sampling our reading.

F (N, D) holds the last-layer state of the last token of N fixed held-out prompts, centred; lambda_1 >= ... are the eigenvalues of F^T F / N.
RankMe = exp(entropy of lambda / sum lambda): how many directions are used (option: shares of the singular values instead, which RankMe's own paper
takes). alpha-ReQ: lambda_i ~ i^-alpha, alpha = minus the least-squares slope of ln lambda_i on ln i. High RankMe and low alpha: spread out; the other
way round: compressed. The paper finds that SFT and DPO spread representations and that reinforcement compresses them, with a loss of diversity.

A probe: it changes nothing, so a run with it is the same as one without. Every few steps it takes one forward pass over the probe prompts, before the
weights move. Ours: 256 prompts (the number is not in the abstract; 1,024 for a large model), the slope from i = 11 to half of r, every 5 steps. The
share of different answers in a batch of rollouts is logged beside them (GRPO). Works on every trainer; a reward model's backbone is measured.
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
    """N prompts as token ids -> (N, D): last-layer states of their last tokens. Leaves the model in the mode it was in."""
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
    prompts: int = param(256, "Fixed held-out prompts that are looked at.", title="Probe prompts (N)", ge=2, le=65_536)
    every: int = param(5, "Steps between two looks; the first step is always looked at.", title="Every", ge=1)
    spectrum: Literal["eigenvalues", "singular values"] = param("eigenvalues", "What RankMe takes the entropy of.")


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
        idea="Two numbers of the spectrum of hidden states tell whether training spreads what a policy represents or compresses it.",
        formula=(
            r"RankMe = \exp\left(-\sum_k p_k \log p_k\right), \quad p_k = \frac{\lambda_k}{\sum_j \lambda_j}",
            r"\lambda_i \propto i^{-\alpha}",
        ),
        reading="prompts, layer, number of prompts and the range of the slope are ours",
        departures=("256 prompts, the slope from the eleventh eigenvalue to half of them, and a look every 5 steps are ours.",),
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
        """The one place that every trainer comes by before its weights move; the gradients are left alone."""
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
            Panel("RankMe", (Series(f"{name}/rankme"),), help="Directions that the last states of fixed prompts use."),
            Panel("Decay of the spectrum", (Series(f"{name}/alpha", "alpha"),), help="The larger, the more compressed."),
            Panel("Different answers in a group", (Series(f"{name}/distinct", "share"), Series("reward", dashed=True))),
            Panel(
                "Eigenvalues",
                (Series(f"{name}/spectrum"),),
                "histogram",
                unit="log10 of the largest",
                low=SMALLEST_LOG,
                high=0.0,
            ),
        )
