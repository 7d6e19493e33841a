"""Preferences over thoughts and answers against those over whole episodes, where other sentences have nearly the same words: what is found?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"distractors": 2}
LAUNCH = {
    "trainer": "dpo",
    "task": {"name": "search", "difficulty": "easy", "options": OPTIONS},
    "training__max_completion_length": 96,
    "training__max_length": 200,
}
DATA = {"training__sampled_prompts": 400}


def measure(seed: int) -> Pairs:
    own, parent = tiny.run_train(seed, "rar2", {"prompts": 200}, **LAUNCH, **DATA), tiny.run_train(seed, **LAUNCH, **DATA)
    return {"recall": (own.final("heldout/evidence"), parent.final("heldout/evidence")), **tiny.budgeted_accuracies(own, parent)}


CASE = Case(
    method="rar2",
    parent="dpo",
    claim="With pairs of thoughts and answers more of what is needed is found than with pairs of whole episodes.",
    quantities=(
        Quantity("recall", "share of the needed sentences that held-out episodes find", "higher", 0.02, "two more of a hundred sentences"),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="questions in the world search, two distractors for each needed sentence, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
