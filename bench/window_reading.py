"""Held-out episodes of a kept policy, played turn by turn: in the world ``reader`` in windows, whose contexts hold the memory alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainers.attempt.context import Attempt
from trainers.attempt.stop import StopRequest
from trainers.contract.spec import parse_spec
from trainers.methods import folding
from trainers.methods.context import RunContext
from trainers.methods.worlds.supo import decide_by_length
from trainers.policies import loading
from trainers.tasks.registry import load_chosen_task

EVERY_TURN = 1  # tokens of a context beyond which it is folded: after each turn


def build_context(folder: Path, task: dict[str, Any], tokens: int) -> RunContext:
    """What sessions of a kept policy are opened with. ``tokens``: of a context after its prompt."""
    spec = parse_spec({"task": task, "training": {"trainer": "grpo", "max_completion_length": tokens}, "output": str(folder), "device": "cpu"})
    unheard: Any = SimpleNamespace()
    world = load_chosen_task(spec.task)
    return RunContext(Attempt(spec, folder, world, loading.load_policy(folder, spec), unheard, StopRequest(folder, None)))


def score_in_windows(folder: Path, task: dict[str, Any], count: int, limit: int, summaries: int = 8, tokens: int = 120) -> float:
    """Share of held-out episodes with the right answer. ``limit``: tokens of a context beyond which it is folded; ``summaries``: of an episode;
    ``tokens``: of a context after its prompt.
    """
    run = build_context(folder, task, tokens)
    session = run.session(run.task.examples("heldout", count, 0, run.attempt.spec.task.difficulty), "windows", max_tokens=tokens)

    def decide(node: Any) -> folding.Decision:
        return decide_by_length(folding.measure_context(node), limit, folding.count_contexts(node), summaries)

    leaves = folding.play_with_folds(session, [episode.root for episode in session.begin()], decide)
    return sum(map(session.is_right, leaves)) / len(leaves)
