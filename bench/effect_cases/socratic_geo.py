"""Problems around what a policy failed at, against the same problems with another number anywhere: DPO on as many pairs of either."""

from typing import Any

from bench import kept_runs, made_rows
from bench.effect_cases import Case, Pairs, Quantity
from bench.made_rows import draw_examples, make_rows, write_right_answers
from trainers.contract.dataset_tools.failure_variants import Config, FailureVariants, find_failure
from trainers.contract.dataset_tools.word_problems import read_word_problem
from trainers.tasks.base import Example

ASKED, HELD_OUT, STEPS, TOKENS = 400, 256, 60, 64


def answer_and_pair(seed: int) -> list[dict[str, Any]]:
    """What the policy gets wrong of its problems: the right answer, preferred to its own."""
    examples: list[Example] = draw_examples("pairs", ASKED, seed)
    right = write_right_answers(examples)
    texts = made_rows.answer_after(
        kept_runs.find_cold_start(made_rows.choose_task()), examples, [row["prompt"] for row in right], [""] * ASKED, TOKENS
    )
    rows = []
    for row, text in zip(right, texts, strict=True):
        problem = read_word_problem(row["prompt"])
        if problem is not None and find_failure(problem, text) is not None:
            rows.append({"prompt": row["prompt"], "chosen": row["completion"], "rejected": text})
    return rows


def measure(seed: int) -> Pairs:
    failed, held_out = answer_and_pair(seed), draw_examples("heldout", HELD_OUT, seed)
    arms = [make_rows(FailureVariants(Config(target=target)), failed, "preference", seed) for target in ("failing", "random")]
    fewest = min(map(len, arms))
    found = []
    for rows in arms:
        folder = made_rows.keep_trained(seed, rows[:fewest], trainer="dpo", steps=STEPS)
        found.append(made_rows.score_heldout(folder, held_out, TOKENS))
    return {"accuracy": (found[0], found[1])}


CASE = Case(
    method="socratic-geo",
    parent="dpo",
    claim="Pairs of new problems whose failing step was changed teach more than as many whose changed step is any.",
    quantities=(Quantity("accuracy", "held-out answers that are right", "higher", 0.02, "two more of a hundred answers"),),
    problem=f"word problems, tiny policy, its failures at {ASKED} problems, two variants of each, {STEPS} steps of DPO",
    measure=measure,
    seeds=3,
)
