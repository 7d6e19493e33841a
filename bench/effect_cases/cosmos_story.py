"""Sibling steps of stories as pairs, against pairs of whole stories: are steps nearer the wanted surprisal, and do they make sense?"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, paired, tiny
from bench.window_reading import build_context
from trainers.policies import loading
from trainers.rollouts.tree import Node

TASK: dict[str, Any] = {"name": "stories", "difficulty": "easy"}
ROOM = 104  # tokens of a story
CONFIG = {"surprisal": 0.5, "width": 0.25}  # nats a token
LAUNCH: dict[str, Any] = {"trainer": "orpo", "task": TASK, "training__max_completion_length": ROOM, "training__max_length": 200}
DATA = {"training__sampled_prompts": 200}
STEPS, HELDOUT = 40, 128


def list_steps(leaf: Node) -> list[tuple[Node, Node]]:
    """(where it stands, where it ends) of each step of a story."""
    path = leaf.episode.path(leaf)
    return [(above, turn) for above, turn in pairwise(path) if turn.closed]


def measure_stories(folder: Path) -> dict[str, float]:
    """Of held-out stories of a kept policy. Surprisal is measured by the policy that training starts from."""
    run = build_context(kept_runs.find_cold_start(TASK), TASK, ROOM)
    examples = run.task.examples("heldout", HELDOUT, 0, TASK["difficulty"])
    session = run.session(examples, "stories", model=loading.load_model(folder, torch.float32).eval())
    leaves = session.play([episode.root for episode in session.begin()])
    steps = [step for leaf in leaves for step in list_steps(leaf)]
    found = run.session(examples, "stories").likelihood([above for above, _ in steps], [turn.ids for _, turn in steps])
    surprisals = [-sum(row) / len(row) for row in found]
    return {
        "distance": sum(abs(one - CONFIG["surprisal"]) for one in surprisals) / len(steps),
        "incoherent": sum("error" in turn.facts for _, turn in steps) / len(steps),
        "accuracy": sum(map(session.is_right, leaves)) / len(leaves),
    }


def measure(seed: int) -> Pairs:
    own, parent = (
        kept_runs.keep_policy(f"cosmos-{name}-{seed}", tiny.spec_of(seed, name, config, steps=STEPS, heldout=0, **LAUNCH, **DATA))
        for name, config in (("cosmos-story", CONFIG), ("", None))
    )
    return paired(measure_stories(own), measure_stories(parent))


CASE = Case(
    method="cosmos-story",
    parent="orpo",
    claim="the surprisal of the steps moves to the wanted one and fewer steps make no sense than with pairs of whole stories",
    quantities=(
        Quantity(
            "distance",
            "mean distance of a held-out step's surprisal from the wanted one, nats a token",
            "lower",
            0.02,
            "two hundredths of a nat",
            by_construction="pairs are chosen by it",
        ),
        Quantity(
            "incoherent",
            "share of held-out steps that could not happen or have a forbidden word",
            "lower",
            0.02,
            "two of a hundred steps",
            by_construction="pairs are chosen by it",
        ),
        Quantity("accuracy", "held-out stories that reach their end, every step possible", "higher", 0.02, "two more of a hundred stories"),
    ),
    problem=f"stories with forbidden words, tiny policy, {STEPS} steps, one round",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, **DATA, "config": CONFIG},
)
