"""CE-PO on word problems: is the answers' coherence higher than when accuracy alone is paid for?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.methods.group.ce_po import Config


def trained(seed: int, weight: float) -> tiny.Trained:
    return tiny.run_train(seed, "ce-po", {"weight": weight}, base="grpo")


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, Config().weight), trained(seed, 1.0)
    return {"coherence": (own.last("ce-po/coherence", 10), parent.last("ce-po/coherence", 10))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="ce-po",
    parent="grpo",
    claim="Answers depend more on their working, and the working on the prompt, than when accuracy alone is paid for.",
    quantities=(
        Quantity(
            "coherence",
            "coherence, last 10 of 40 steps",
            "higher",
            0.02,
            "two hundredths of its range",
            by_construction="the reward pays for coherence",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
