"""CE-PO on word problems: is the answers' coherence higher than when accuracy alone is paid for?"""

from bench.effect_cases import Case, tiny
from trainers.methods.group.ce_po import Config


def coherence(seed: int, weight: float) -> float:
    return tiny.run_train(seed, "ce-po", {"weight": weight}, base="grpo", heldout=0).last("ce-po/coherence", 10)


def measure(seed: int) -> tuple[float, float]:
    return coherence(seed, Config().weight), coherence(seed, 1.0)


CASE = Case(
    method="ce-po",
    parent="grpo",
    claim="Answers depend more on their working, and the working on the prompt, than when accuracy alone is paid for.",
    quantity="coherence, last 10 of 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
