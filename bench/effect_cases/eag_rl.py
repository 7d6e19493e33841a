"""Records in which a column of noise agrees with the answer in training alone: are the true columns named, and is held-out accuracy higher for it?"""

from typing import Any

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.worlds.records import Records

OPTIONS = {"leak": 0.7}
LAUNCH: dict[str, Any] = {"training__num_iterations": 2}


def measure(seed: int) -> Pairs:
    configs = ({}, {"weight": 0.0, "rise": 0.0}, {"rise": 0.0})
    own, parent, fixed = (search_runs.run_search(seed, "eag-rl", config, OPTIONS, world="records", **LAUNCH) for config in configs)
    return {
        "cited": (own.final("heldout/cited"), parent.final("heldout/cited")),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "accuracy of the clip": (own.final("heldout/accuracy"), fixed.final("heldout/accuracy")),
    }


CASE = Case(
    method="eag-rl",
    parent="grpo",
    claim="Paid for the expert's features it names the columns that count, and answers more records in which the noise no longer agrees with the"
    " answer.",
    quantities=(
        Quantity(
            "cited",
            "overlap of the columns named with those that decide, held-out records; the parent is paid for answer and form",
            "higher",
            0.05,
            "one column in ten records",
            by_construction="the overlap with the expert's columns is paid",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity(
            "accuracy of the clip",
            "held-out accuracy, the parent having the same reward and a clip that does not open",
            "higher",
            0.02,
            "two more of a hundred records",
        ),
    ),
    problem=f"records of 4 columns that count and 2 of noise, one of which agrees with the answer in 7 of 10 prompts for training, tiny policy,"
    f" {search_runs.STEPS} steps in two passes a batch",
    measure=measure,
    seeds=3,
    launch={
        "base": "grpo",
        "task": {"name": "records", "difficulty": "easy", "options": OPTIONS},
        "training__max_completion_length": Records.episode_tokens,
        **LAUNCH,
    },
)
