"""Direct preference optimisation (arXiv 2305.18290, eq. 7), as published."""

from typing import Any

from trainers.methods.card import Card
from trainers.methods.pair_columns import PairColumns


class DPO(PairColumns):
    card = Card(
        name="dpo",
        title="DPO",
        arxiv="2305.18290",
        system="Direct Preference Optimization",
        base="",
        provenance="paper",
        source="arXiv 2305.18290, section 4; computed by TRL with loss_type sigmoid",
        fit="core",
        idea="Learn from preference pairs without a reward model: raise the likelihood of chosen over rejected, both relative to a reference policy.",
        formula=(
            r"h = \beta \log\frac{\pi_\theta(y_w|x)}{\pi_{ref}(y_w|x)} - \beta \log\frac{\pi_\theta(y_l|x)}{\pi_{ref}(y_l|x)}",
            r"L = -\log \sigma(h)",
        ),
        claim=("rewards/accuracies", "higher"),
    )

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": ["sigmoid"]}
