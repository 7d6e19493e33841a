"""Reading a text that is longer than a context: with summaries that are trained by the outcome, and with episodes that are cut off."""

from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.window_reading import score_in_windows

CONTEXT = 80  # tokens of a context, its prompt included: two chunks of four
ROOM = CONTEXT - 43  # of them after the first prompt
SUMMARIES = 2  # of a rollout in training
TIGHT = 60  # tokens of a context that holds one chunk: four summaries are needed
TASK: dict[str, Any] = {"name": "reader", "difficulty": "medium", "options": {"chunks": 4, "windows": 0.5}}
LAUNCH: dict[str, Any] = {
    "base": "dapo",
    "task": TASK,
    "config": {"context": CONTEXT, "summaries": SUMMARIES},
    "training__max_completion_length": 112,
}
STEPS, HELDOUT = 40, 128


def measure(seed: int) -> Pairs:
    launch = {name: value for name, value in LAUNCH.items() if name != "config"}
    own = kept_runs.keep_policy(f"supo-{seed}", tiny.spec_of(seed, "supo", LAUNCH["config"], steps=STEPS, heldout=0, **launch))
    cut = {**launch, "training__max_completion_length": ROOM}
    parent = kept_runs.keep_policy(f"supo-truncated-{seed}", tiny.spec_of(seed, steps=STEPS, heldout=0, **cut))
    return {
        "accuracy": (score_in_windows(own, TASK, HELDOUT, CONTEXT), kept_runs.score_heldout(parent, TASK, HELDOUT, ROOM)),
        "accuracy in windows": (score_in_windows(own, TASK, HELDOUT, CONTEXT), score_in_windows(parent, TASK, HELDOUT, CONTEXT)),
        "more summaries": (score_in_windows(own, TASK, HELDOUT, TIGHT, 2 * SUMMARIES), score_in_windows(own, TASK, HELDOUT, TIGHT, SUMMARIES)),
    }


CASE = Case(
    method="supo",
    parent="dapo",
    claim="within the same context more held-out questions are answered with summaries than with episodes that are cut off, and more summaries help",
    quantities=(
        Quantity("accuracy", "held-out accuracy, each arm in contexts as it was trained in them", "higher", 0.02, "two more of a hundred questions"),
        Quantity("accuracy in windows", "held-out accuracy of both arms with summaries", "higher", 0.02, "two more of a hundred questions"),
        Quantity(
            "more summaries",
            f"held-out accuracy of the method in contexts of {TIGHT} tokens with twice as many summaries as in training; the parent: with as many",
            "higher",
            0.02,
            "two more of a hundred questions",
        ),
    ),
    problem=f"texts of four chunks in the world reader, contexts of {CONTEXT} tokens, tiny policy, {STEPS} steps",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
