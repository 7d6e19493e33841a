"""What several answers to each held-out prompt say beside the mean of one: how many prompts n answers solve, at equal tokens too, and how right
answers are spread.
"""

import statistics
from collections.abc import Iterator, Sequence

from trainers.judges import rewards
from trainers.maths.pass_rates import compute_anti_concentration, compute_heterogeneity, estimate_pass_at, score_early_success
from trainers.policies.sampling import Completion
from trainers.tasks.base import Example, Task

SMALLEST_BUDGET = 16  # tokens; the others are twice as many each
Outcome = tuple[bool, int]  # of an answer: whether it is right, and its tokens


def compute_repeated_metrics(
    task: Task, examples: Sequence[Example], rounds: Sequence[Sequence[Completion]], most_tokens: int
) -> dict[str, float | None]:
    """``rounds``: an answer to each example, N times; nothing for one round. ``most_tokens``: what an answer may have.

    ``heldout/pass-at-<n>``: prompts that at least one of n answers solves, for n = 2, 4, …, N. ``heldout/pass-within-<T>``: the same for as many
    answers as T tokens are enough for, n = T / mean length, rounded down: the comparison of long answers with several short ones at equal tokens;
    left out where T is not enough for one, or for more than N.
    """
    if len(rounds) < 2:
        return {}
    prompts = [
        [(is_right(task, example, made), sum(made.mask)) for made in answers]
        for example, answers in zip(examples, zip(*rounds, strict=True), strict=True)
    ]
    values: dict[str, float | None] = {f"heldout/pass-at-{count}": average_pass_at(prompts, count) for count in list_powers(2, len(rounds))}
    mean = max(1.0, statistics.fmean(tokens for answers in prompts for _, tokens in answers))
    for budget in list_powers(SMALLEST_BUDGET, int(mean * (len(rounds) + 1))):
        if 1 <= (count := int(budget / mean)) <= len(rounds):
            values[f"heldout/pass-within-{budget}"] = average_pass_at(prompts, count)
    return values | describe_spread(prompts, most_tokens)


def describe_spread(prompts: Sequence[Sequence[Outcome]], most_tokens: int) -> dict[str, float | None]:
    """Heterogeneity of right answers and anti-concentration of all, means over the prompts that have them."""
    scores = [[score_early_success(tokens, right, most_tokens) for right, tokens in answers] for answers in prompts]
    varied = [found for of_prompt in scores if (found := compute_heterogeneity(of_prompt)) is not None]
    return {
        "heldout/heterogeneity": statistics.fmean(varied) if varied else None,
        "heldout/anti-concentration": statistics.fmean(map(compute_anti_concentration, scores)),
    }


def average_pass_at(prompts: Sequence[Sequence[Outcome]], count: int) -> float:
    return statistics.fmean(estimate_pass_at(count, sum(right for right, _ in answers), len(answers)) for answers in prompts)


def list_powers(first: int, most: int) -> Iterator[int]:
    while first <= most:
        yield first
        first *= 2


def is_right(task: Task, example: Example, made: Completion) -> bool:
    """By the task's first reward function; of a world, by the state that the episode ended in."""
    name = next(iter(task.rewards))
    text = made.text if made.answer is None else made.answer
    score = made.scores[name] if name in made.scores else rewards.apply_reward_function(task, name, text, example)
    return (score or 0.0) > 0.5
