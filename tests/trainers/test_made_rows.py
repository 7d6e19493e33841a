"""What the effects of dataset tools are measured with: answers in batches count as they do one by one."""

import pytest

from bench import made_rows
from bench.effect_cases.skyreels_v2 import has_steps_in_order
from trainers.policies.tiny import ensure_untrained_policy

PAIRS = [
    {"prompt": "Max has 3 apples, gets 3. How many?", "chosen": "<think>3+3=6</think><answer>6</answer>", "rejected": "<answer>5</answer>"},
    {"prompt": "Ida has 12 eggs, loses 3, buys 14. How many?", "chosen": "<answer>23</answer>", "rejected": "<think>12-3=9 9+14=2</think>"},
]


def test_a_batch_of_answers_is_as_likely_as_each_alone() -> None:
    folder = ensure_untrained_policy()
    alone, together = [made_rows.score_pairs(folder, [pair]) for pair in PAIRS], made_rows.score_pairs(folder, PAIRS)
    assert together.preferred == sum(one.preferred for one in alone) / 2
    assert together.chosen == pytest.approx(sum(one.chosen for one in alone) / 2, rel=1e-4)


def test_the_share_of_right_answers_is_the_tasks_own() -> None:
    examples = made_rows.draw_examples("heldout", 4, 0)
    right = [row["completion"] for row in made_rows.write_right_answers(examples)]
    assert made_rows.share_right(right, examples) == 1
    assert made_rows.share_right([*right[:3], "<answer>-1</answer>"], examples) == 0.75


@pytest.mark.parametrize(("working", "in_order"), [("3+3=6 6-1=5", True), ("6-1=5 3+3=6", False), ("3+3=6", True), ("", True)])
def test_steps_are_in_order_where_each_begins_at_the_last_result(working: str, in_order: bool) -> None:
    assert has_steps_in_order(f"<think>{working}</think><answer>5</answer>") is in_order
