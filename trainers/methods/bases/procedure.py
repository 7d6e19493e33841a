"""A procedure: rounds of sampling from a policy whose weights stay as they are.

Alone it samples each prompt and measures the answers, which is the parent that methods on it are compared with: the frozen policy. A method decides
what is sampled (``curriculum``, ``prompts``, ``rollout``) and keeps what it learns in its state and the run's store (``observe``). Held-out prompts
are answered by the policy alone before the first round and by the method after it.
"""

from trainers.methods.base import Base
from trainers.methods.card import Card, Panel, Series


class Procedure(Base):
    card = Card(
        name="procedure",
        title="Procedure without training",
        arxiv="",
        system="the frozen policy",
        base="",
        provenance="code",
        source="this lab's own loop, trainers/adapters/procedure.py",
        fit="core",
        idea="Sample in rounds and change no weight: what a method learns is kept beside the policy, in texts and numbers.",
        formula=(r"y \sim \pi_0(\cdot \mid x, s_k), \qquad s_{k+1} = f(s_k, x, y, r)",),
        claim=("procedure/accuracy", "higher"),
        parallel=False,
    )
    trainer = "procedure"
    trains = frozenset({"procedure"})

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel("Right answers by round", (Series("procedure/accuracy", "share right"),)),
            Panel(
                "Flips",
                (Series("procedure/wrong_to_right", "wrong to right"), Series("procedure/right_to_wrong", "right to wrong")),
                help="Of the prompts that an earlier round had, by what most of their answers were.",
            ),
            Panel(
                "Tokens for an answer",
                (Series("procedure/tokens_per_answer", "in a round"), Series("heldout/written", "held out", dashed=True)),
                unit="tokens",
                help="All that the policy wrote, whatever became of it.",
            ),
            Panel("Items in the store", (Series("procedure/store", "items"),)),
        )
