"""Supervised fine-tuning: cross-entropy on the tokens of demonstrations, as in the first step of InstructGPT (arXiv 2203.02155)."""

from trainers.methods.base import Base
from trainers.methods.card import Card


class SFT(Base):
    card = Card(
        name="sft",
        title="Supervised fine-tuning",
        arxiv="2203.02155",
        system="InstructGPT, step 1",
        base="",
        provenance="paper",
        source="arXiv 2203.02155, section 3.5; computed by TRL's SFTTrainer on completion tokens only",
        fit="core",
        idea="Imitate demonstrations token by token. Every other method here starts from a policy trained this way.",
        formula=(r"L = -\frac{1}{T}\sum_t \log \pi_\theta(y_t | x, y_{<t})",),
        claim=("mean_token_accuracy", "higher"),
    )
    trainer = "sft"
    trains = frozenset({"sft"})
