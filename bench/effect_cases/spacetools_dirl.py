"""Eight tools that demonstrations hardly ever combine: one tool first, then imitation, then all of them, against all at once."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.worlds.toolbox import Toolbox

ALL_AT_ONCE = {"first": 0.0, "distil": 0.0}
NO_OWN = {"own": 0.0}  # the teacher's episodes alone


def measure(seed: int) -> Pairs:
    own, parent, teacher = (search_runs.run_search(seed, "spacetools-dirl", config, world="toolbox") for config in ({}, ALL_AT_ONCE, NO_OWN))
    return {
        **tiny.budgeted_accuracies(own, parent),
        "evidence": (own.final("heldout/evidence"), parent.final("heldout/evidence")),
        "accuracy without own episodes": (own.final("heldout/accuracy"), teacher.final("heldout/accuracy")),
    }


CASE = Case(
    method="spacetools-dirl",
    parent="grpo",
    claim="One tool first, imitation of its episodes and a teacher's, then all tools answers more held-out questions than all eight tools at once.",
    quantities=(
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
        Quantity("evidence", "share of the calls needed that held-out episodes make", "higher", 0.05, "one call of twenty"),
        Quantity(
            "accuracy without own episodes",
            "held-out accuracy after the same number of steps, the parent imitating the teacher's episodes alone",
            "higher",
            0.02,
            "two more of a hundred questions",
        ),
    ),
    problem=f"questions for one or two of eight tools, of which demonstrations combine two in a tenth, tiny policy, {search_runs.STEPS} steps; the"
    " parent has no teacher",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "toolbox", "difficulty": "easy"}, "training__max_completion_length": Toolbox.episode_tokens},
)
