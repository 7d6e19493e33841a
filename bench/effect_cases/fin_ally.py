"""DPO on the same pairs with and without a line of knowledge before each question: does the line help to tell right from wrong?"""

from typing import Any

from bench import made_rows
from bench.effect_cases import Case, Pairs, Quantity
from bench.made_rows import draw_examples, make_rows, score_pairs, write_right_answers
from trainers.contract.dataset_tools.failure_variants import Failure, repeat_mistake, write_working
from trainers.contract.dataset_tools.knowledge_lines import KnowledgeLines
from trainers.contract.dataset_tools.word_problems import read_word_problem
from trainers.tasks.base import Example

TRAINED, HELD_OUT, STEPS = 400, 256, 150


def write_pairs(examples: list[Example]) -> list[dict[str, Any]]:
    """The right answer, preferred to one whose first step goes the wrong way: what the line of knowledge is about."""
    rows = []
    for row in write_right_answers(examples):
        problem = read_word_problem(row["prompt"])
        assert problem is not None
        wrong = write_working(*repeat_mistake(problem, Failure(0, "direction")))
        rows.append({"prompt": row["prompt"], "chosen": row["completion"], "rejected": wrong})
    return rows


def measure(seed: int) -> Pairs:
    plain, unseen = (write_pairs(draw_examples(split, count, seed)) for split, count in (("pairs", TRAINED), ("heldout", HELD_OUT)))
    preferred = []
    for has_line in (True, False):
        trained, asked = (make_rows(KnowledgeLines(), rows, "preference", seed) if has_line else rows for rows in (plain, unseen))
        settings = {"policy": made_rows.UNTRAINED, "training__max_length": 256}
        folder = made_rows.keep_trained(seed, trained, trainer="dpo", steps=STEPS, **settings)
        preferred.append(score_pairs(folder, asked).preferred)
    return {"preferred": (preferred[0], preferred[1])}


CASE = Case(
    method="fin-ally",
    parent="dpo",
    claim="With a line of knowledge before the question, more held-out pairs are told apart than without it, after training on the same pairs.",
    quantities=(
        Quantity(
            "preferred",
            "held-out pairs of a right answer and one with a step in the wrong direction whose right answer is likelier",
            "higher",
            0.02,
            "two more of a hundred pairs",
        ),
    ),
    problem=f"word problems, tiny policy from random weights, {TRAINED} pairs of a right answer and one whose first step goes the wrong way,"
    f" {STEPS} steps of DPO",
    measure=measure,
    seeds=3,
)
