"""Pairs of plans and solutions from final answers against pairs of whole episodes: more plans of single steps, and more right answers?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny

LAUNCH = {
    "trainer": "dpo",
    "task": {"name": "planned_search", "difficulty": "easy"},
    "training__max_completion_length": 100,
    "training__max_length": 200,
}
DATA = {"training__sampled_prompts": 400}


def measure(seed: int) -> Pairs:
    own, parent = tiny.run_train(seed, "acesearcher", {"prompts": 160}, **LAUNCH, **DATA), tiny.run_train(seed, **LAUNCH, **DATA)
    return {"single": (own.final("heldout/single"), parent.final("heldout/single")), **tiny.budgeted_accuracies(own, parent)}


CASE = Case(
    method="acesearcher",
    parent="dpo",
    claim="After one round more plans ask for one step in each sub-question, and more final answers are right, without labels of sub-answers.",
    quantities=(
        Quantity("single", "share of held-out plans with one step in each sub-question", "higher", 0.02, "two more of a hundred plans"),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="questions of two steps in the world planned_search, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
