"""Steps paid by outcome and votes, a judge that learns and tasks that follow, against the outcome alone in tasks that stay as they are."""

from typing import Any

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

TASK = {"name": "rooms", "difficulty": "easy", "options": {"judged": True}}
OUTCOME: dict[str, Any] = {"weight": 0.0, "judge": False, "rewrite": False}
PROMPTS = 32  # each is played again and again, so that it can follow
FIRST = 5  # steps
KINDS = ("rlanything/judge_good", "rlanything/judge_bad")


def run_rooms(seed: int, method: str = "", config: dict[str, Any] | None = None) -> tiny.Trained:
    return search_runs.run_search(seed, method, config, TASK["options"], world="rooms", base="dapo", training__prompts=PROMPTS)  # type: ignore[arg-type]


def compare_ends(made: tiny.Trained, name: str) -> tuple[float, float]:
    """A metric at the end and at the beginning of one run."""
    return made.last(name, FIRST), sum(step[name] for step in made.steps[:FIRST]) / FIRST


def measure(seed: int) -> Pairs:
    own, outcome, parent = run_rooms(seed, "rlanything"), run_rooms(seed, "rlanything", OUTCOME), run_rooms(seed)
    return {
        "bad moves seen": compare_ends(own, "rlanything/judge_bad"),
        "moves judged right": (
            sum(compare_ends(own, name)[0] for name in KINDS) / len(KINDS),
            sum(compare_ends(own, name)[1] for name in KINDS) / len(KINDS),
        ),
        "silent groups": (own.last("rlanything/silent_groups", 15), outcome.last("rlanything/silent_groups", 15)),
        "against the outcome alone": (own.final("heldout/accuracy"), outcome.final("heldout/accuracy")),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="rlanything",
    parent="dapo",
    claim="The judge comes to see planted bad moves, success is not below that of training on the outcome alone, and fewer groups are silent.",
    quantities=(
        Quantity(
            "bad moves seen",
            "share of planted bad moves that the judge calls bad, last 5 steps; the parent: the first 5",
            "higher",
            0.05,
            "one more of twenty moves",
            by_construction="the judge is paid for agreeing with outcomes",
        ),
        Quantity(
            "moves judged right",
            "mean share of right verdicts on planted good and bad moves, last 5 steps; the parent: the first 5",
            "higher",
            0.05,
            "one more of twenty moves; who calls every move bad has a half",
        ),
        Quantity(
            "silent groups",
            "share of groups left out of the loss, last 15 steps; the parent never rewrites a task",
            "lower",
            0.05,
            "one group of twenty",
            by_construction="tasks that all or none of a group solve are rewritten",
        ),
        Quantity(
            "against the outcome alone",
            "held-out accuracy after 60 steps; the parent has neither votes nor new versions",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="32 rows of four rooms with a key, a policy that also judges moves, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "dapo", "task": TASK, "training__max_completion_length": 136, "training__prompts": PROMPTS},
)
