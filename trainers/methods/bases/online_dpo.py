"""Online DPO (arXiv 2402.04792, section 3): DPO on pairs of the policy's own newest answers, ranked as they are sampled."""

from typing import Any, Literal

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    loss: Literal["sigmoid", "ipo"] = param("sigmoid", "Loss of a pair: DPO's or IPO's.", title="Loss")
    missing_eos_penalty: float = param(
        0.0, "Subtracted from the reward of an answer that was cut off before it ended.", title="Missing EOS penalty", advanced=True, ge=0, le=100
    )


class OnlineDPO(Base):
    card = Card(
        name="online-dpo",
        title="Online DPO",
        arxiv="2402.04792",
        system="Direct alignment from online AI feedback",
        base="dpo",
        provenance="paper",
        source="arXiv 2402.04792, section 3; computed by TRL's OnlineDPOTrainer (experimental in TRL 1.16)",
        fit="core",
        idea="Sample two answers to each prompt from the policy as it is, let the reward say which is better, and take a step of DPO on that pair.",
        formula=(
            r"y_w, y_l \in \{y_1, y_2\} \sim \pi_\theta(\cdot|x), \quad R(x, y_w) \geq R(x, y_l)",
            r"h = \beta \log\frac{\pi_\theta(y_w|x)}{\pi_{ref}(y_w|x)} - \beta \log\frac{\pi_\theta(y_l|x)}{\pi_{ref}(y_l|x)}",
            r"L = -\log \sigma(h)",
        ),
        departures=(
            "Reward functions rank the answers, in place of a prompted language model.",
            "Two answers with the same reward are a pair too: the first counts as chosen, as in TRL.",
            "Gradients of accumulated micro-batches are added up and not averaged, as in TRL.",
        ),
        claim=("reward", "higher"),
    )
    Config = Config
    trainer = "online-dpo"
    trains = frozenset({"online-dpo"})

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": self.config.loss, "missing_eos_penalty": self.config.missing_eos_penalty or None}
