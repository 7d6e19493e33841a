"""Dr. GRPO (arXiv 2503.20783), as published: no division by the group's standard deviation, and normalisation by a constant instead of the
completion's length. Both divisions bias the gradient: the first towards very easy and very hard prompts, the second towards long wrong completions.
The constant is the max completion length.
"""

from typing import Any

from trainers.methods.base import Base
from trainers.methods.card import Card


class DrGRPO(Base):
    card = Card(
        name="dr-grpo",
        title="Dr. GRPO",
        arxiv="2503.20783",
        system="Understanding R1-Zero-Like Training",
        base="grpo",
        provenance="paper",
        source="arXiv 2503.20783, section 3.2; computed by TRL with loss_type dr_grpo and unscaled rewards",
        fit="core",
        idea=(
            "GRPO without its two biases: advantages are not divided by the group's standard deviation, and long wrong "
            "completions are not penalised less."
        ),
        formula=(
            r"A_i = r_i - \mathrm{mean}(r)",
            r"J = \frac{1}{G\,L_{\max}}\sum_i \sum_t \min\left(\rho_{it} A_i,\ \mathrm{clip}(\rho_{it}, 1-\epsilon, 1+\epsilon) A_i\right)",
        ),
        claim=("completions/mean_length", "lower"),
    )
    trainer = "grpo"
    scale = "none"

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "dr_grpo", "scale_rewards": self.scale}
