"""Scores answers whose worth is known before a policy exists: the gold one, none at all, and the gold one with a wrong result."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainers.contract.problems import Problem
from trainers.judges.rewards import RewardFailed, score_column, weighted_sum
from trainers.tasks.base import Example, Task

# About one token each in a byte-level tokenizer that splits digits: a tag, up to four letters, a digit and the space before it, any other character.
PIECE = re.compile(r"</?[a-z]+>|[A-Za-z]{1,4}|\s(?=[0-9])|[^\sA-Za-z]")


@dataclass(frozen=True)
class DryRun:
    """One answer to sample ``sample`` and what every reward function gives it; ``reward`` is their weighted sum."""

    sample: int
    kind: str  # gold, reference, empty, wrong
    completion: str
    rewards: dict[str, float | None]
    reward: float | None


@dataclass
class DryRuns:
    runs: list[DryRun] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def warn(self, name: str, message: str, fix: str) -> None:
        if not any(warning.field == name for warning in self.warnings):  # one sample is enough to make the point
            self.warnings.append(Problem(name, None, message, fix, given=False))


def gold_of(task: Task, example: Example) -> str | None:
    try:
        return task.gold(example)
    except LookupError:  # an example of a dataset that does not say how its answer is reached
        return None


def answers_to(task: Task, samples: list[Example], number: int) -> Iterator[tuple[str, str]]:
    """(kind, completion): the gold answer if the task can write it, else the bare reference; no answer; the gold answer with another sample's
    reference in it.
    """
    example = samples[number]
    gold = gold_of(task, example)
    if gold is not None:
        yield "gold", gold
    elif example.reference:
        yield "reference", example.reference
    yield "empty", ""
    other = next((sample for sample in samples if sample.reference != example.reference), None)
    if gold is None or other is None:
        return
    before, found, after = gold.rpartition(example.reference)
    wrong = before + other.reference + after if found else gold_of(task, other)
    if wrong is not None:
        yield "wrong", wrong


def dry_run(task: Task, weights: dict[str, float], samples: list[Example], count: int, paths: Mapping[str, str] | None = None) -> DryRuns:
    """Scores known answers to the first ``count`` samples; the others only lend their references as wrong results.

    ``paths``: where a function stands in the spec, by its name, where that is not the task's. Functions that load models or ask an endpoint are
    left out.
    """
    found = DryRuns()
    for number in range(min(count, len(samples))):
        runs = []
        for kind, text in answers_to(task, samples, number):
            rewards = score_known_answer(task, text, samples[number], found, paths or {})
            runs.append(DryRun(number, kind, text, rewards, weighted_sum(rewards, weights)))
        found.runs += runs
        compare_dry_runs(runs, weights, found)
    return found


def score_known_answer(task: Task, text: str, example: Example, found: DryRuns, paths: Mapping[str, str]) -> dict[str, float | None]:
    rewards: dict[str, float | None] = {}
    for name, reward in task.rewards.items():
        rewards[name] = None
        if reward.scorer is not None and not reward.scorer.light:
            continue
        where = paths.get(name, f"task.rewards.{name}")
        try:
            [score] = score_column(task, name, [(text, example)])
        except RewardFailed as error:
            problem = Problem(where, None, str(error), "correct it" if name in paths else "correct the task", given=False)
            if all(problem.field != known.field for known in found.problems):
                found.problems.append(problem)
            continue
        rewards[name] = score.value
        if score.error:
            found.warn(where, f"has no opinion on a known answer: {score.error}", "see that the rows have what it needs")
    return rewards


def compare_dry_runs(runs: list[DryRun], weights: dict[str, float], found: DryRuns) -> None:
    """Warns of what would teach the policy something else than to answer like the gold answer."""
    gold = next((run for run in runs if run.kind == "gold"), None)
    for other in runs:
        if gold is None or other is gold:
            continue
        if gold.reward is None and other.reward is None:  # an environment says what an episode is worth, not its text
            continue
        if (other.reward or 0.0) >= (gold.reward or 0.0):
            message = f"{describe_dry_run(other)} is rewarded with {other.reward}, the gold answer with {gold.reward}"
            found.warn("task.rewards", message, "give correctness a larger weight")
        for name, weight in weights.items():
            best, value = gold.rewards[name], other.rewards[name]
            if weight > 0 and value is not None and (best is None or value > best):
                message = f"{describe_dry_run(other)} gets {value}, the gold answer {'no score' if best is None else best}"
                found.warn(f"task.rewards.{name}", message, "give it no weight, or correct the task")


def describe_dry_run(run: DryRun) -> str:
    return {"empty": "an empty answer", "wrong": "a wrong answer"}[run.kind]


def about_tokens(text: str) -> int:
    """A rough count of tokens, for warnings; tokenizers differ by tens of percent."""
    return len(PIECE.findall(text))
