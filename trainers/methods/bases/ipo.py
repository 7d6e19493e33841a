"""IPO (arXiv 2310.12036, eq. 17): a squared loss pulls the margin towards a fixed value. An unbounded margin would overfit deterministic
preferences.
"""

from typing import Any

from trainers.methods.card import Card
from trainers.methods.pair_columns import PairColumns


class IPO(PairColumns):
    card = Card(
        name="ipo",
        title="IPO",
        arxiv="2310.12036",
        system="Identity preference optimisation",
        base="dpo",
        provenance="paper",
        source="arXiv 2310.12036, section 5; computed by TRL with loss_type ipo",
        fit="core",
        idea="Pull the margin between chosen and rejected towards a fixed target instead of increasing it without limit.",
        formula=(
            r"h = \frac{1}{|y_w|}\log\frac{\pi_\theta(y_w|x)}{\pi_{ref}(y_w|x)} - \frac{1}{|y_l|}\log\frac{\pi_\theta(y_l|x)}{\pi_{ref}(y_l|x)}",
            r"L = \left(h - \frac{1}{2\beta}\right)^2",
        ),
        departures=("Log-ratios are averaged over the tokens of a completion, as TRL does after asking the authors.",),
        claim=("rewards/accuracies", "higher"),
    )

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": ["ipo"]}
