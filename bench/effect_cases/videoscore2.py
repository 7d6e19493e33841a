"""A judge with three scores, imitated from noisy annotators and then paid in bands, against payment for three right scores alone."""

import random
from pathlib import Path
from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, paired, tiny
from trainers.methods.group.videoscore2 import HIGHEST, KEY, LOWEST, NAMES, VideoScore2, parse_scores
from trainers.tasks.mini_gsm import MiniGsm

IMITATION, STEPS, HELDOUT, TOKENS = 60, 60, 256, 40
TASK = {"name": "mini_gsm", "difficulty": "easy"}
FIRST: dict[str, Any] = {"trainer": "sft", "task": TASK, "training__demonstrations": 1024, "training__learning_rate": 1e-3}
LAUNCH: dict[str, Any] = {"base": "grpo", "task": TASK, "training__max_completion_length": TOKENS}


def judge_heldout(folder: Path) -> dict[str, float]:
    """Of judgements of answers to held-out questions: the share with all three scores right, and the mean distance of a score, a missing one the
    furthest."""
    rng, task = random.Random("videoscore2/heldout"), MiniGsm()
    items = [VideoScore2().draw_item(task, example, rng) for example in task.examples("heldout", HELDOUT, 0, "easy")]
    asked = [item[0] for item in items if item is not None]
    made = kept_runs.sample_answers([example.prompt for example in asked], asked, folder, TASK, TOKENS)
    exact, total = 0, 0.0
    for example, completion in zip(asked, made, strict=True):
        said, true = parse_scores(completion.text), example.data[KEY]
        total += sum(abs(one - other) for one, other in zip(said, true, strict=True)) if said else len(NAMES) * (HIGHEST - LOWEST)
        exact += said == tuple(true)
    return {"accuracy": exact / len(asked), "distance": total / (len(NAMES) * len(asked))}


def train_judge(seed: int, reward: str) -> Path:
    """Folder of the judge after both stages; the first one is the same whatever ``reward`` is."""
    first = kept_runs.keep_policy(f"videoscore2-first-{seed}", tiny.spec_of(seed, "videoscore2", {}, steps=IMITATION, heldout=0, **FIRST))
    policy = {"kind": "folder", "path": str(first)}
    data = tiny.spec_of(seed, "videoscore2", {"reward": reward}, steps=STEPS, heldout=0, policy=policy, **LAUNCH)
    return kept_runs.keep_policy(f"videoscore2-{reward}-{seed}", data)


def measure(seed: int) -> Pairs:
    return paired(judge_heldout(train_judge(seed, "banded")), judge_heldout(train_judge(seed, "exact")))


CASE = Case(
    method="videoscore2",
    parent="grpo",
    claim="Paid in bands, a judge is nearer to the true scores and has all three right more often than paid for three right scores alone.",
    quantities=(
        Quantity(
            "distance",
            "mean distance of a score from the true one, answers to held-out questions (points of 5)",
            "lower",
            0.05,
            "one score of twenty nearer by a point",
            by_construction="the band pays for small distances",
        ),
        Quantity("accuracy", "share of judgements of answers to held-out questions with all scores right", "higher", 0.02, "two more of a hundred"),
    ),
    problem=f"answers to word problems with rules for true scores, tiny policy, {IMITATION} supervised steps on noisy scores, then {STEPS} of GRPO",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
