"""Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300, eq. 3): token-level ratios are clipped, and the loss is averaged over each
completion, then over completions. Advantages are rewards standardised within the group.
"""

from typing import Any

from trainers.methods.base import Base
from trainers.methods.card import Card


class GRPO(Base):
    card = Card(
        name="grpo",
        title="GRPO",
        arxiv="2402.03300",
        system="DeepSeekMath",
        base="",
        provenance="paper",
        source="arXiv 2402.03300, section 4.1; computed by TRL with loss_type grpo",
        fit="core",
        idea="Sample a group of completions for each prompt; reinforce those above the group's mean reward and push down those below it.",
        formula=(
            r"A_i = \frac{r_i - \mathrm{mean}(r)}{\mathrm{std}(r)}",
            r"J = \frac{1}{G}\sum_i \frac{1}{|o_i|}\sum_t \min\left(\rho_{it} A_i,\ \mathrm{clip}(\rho_{it}, 1-\epsilon, 1+\epsilon) A_i\right)",
        ),
        departures=("The standard deviation is the sample one, plus 1e-4, as in TRL.",),
    )
    trainer = "grpo"
    scale = "group"

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "grpo", "scale_rewards": self.scale}
