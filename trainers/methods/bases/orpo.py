"""ORPO (arXiv 2403.07691, eq. 6 and 7): supervised fine-tuning on the chosen answer, and a penalty on the odds of the rejected one. No reference."""

from trainers.methods.base import Base
from trainers.methods.card import Card


class ORPO(Base):
    card = Card(
        name="orpo",
        title="ORPO",
        arxiv="2403.07691",
        system="Odds ratio preference optimisation",
        base="",
        provenance="paper",
        source="arXiv 2403.07691, section 4; computed by TRL's ORPOTrainer (experimental in TRL 1.16)",
        fit="core",
        idea=(
            "Learn the chosen answers as in supervised fine-tuning and, in the same loss, raise their odds over those of the rejected ones; "
            "no reference policy is needed."
        ),
        formula=(
            r"\log P(y|x) = \frac{1}{|y|}\sum_t \log \pi_\theta(y_t|x, y_{<t}), \quad \mathrm{odds}(y|x) = \frac{P(y|x)}{1 - P(y|x)}",
            r"L = L_{SFT}(y_w) - \beta \log \sigma\left(\log\frac{\mathrm{odds}(y_w|x)}{\mathrm{odds}(y_l|x)}\right)",
        ),
        departures=("The supervised term also counts the tokens of the prompt, as in TRL.",),
        claim=("rewards/accuracies", "higher"),
    )
    trainer = "orpo"
    trains = frozenset({"orpo"})
