"""CoSMo: the card's numbers, the plain reward without penalty, and split-merge on equations."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.group.cosmo import Config, CoSMo, apply_segment_budget, merge_equations, refine_completion, split_equation, split_merge
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import MiniGsm

GOLD = "<think>3+3=6 6+5=11 11-1=10</think><answer>10</answer>"


def method(**config):
    made = CoSMo(Config(**config))
    made.prepare(SimpleNamespace(task=MiniGsm()))
    return made


def test_the_worked_example():
    outcome, counts, valid = torch.tensor([1.0, 1, 0, 1]), torch.tensor([5.0, 4, 1, 3]), torch.tensor([True, True, True, False])
    made = apply_segment_budget(outcome, counts, torch.full((4,), 3.0), valid, tolerance=1, penalty=1.0)
    assert made.tolist() == [0.0, 1.0, -1.0, -1.0]


def test_five_segments_towards_three_take_two_iterations():
    accepted = {("a", "b"): "ab", ("c", "d"): "cd"}
    made = split_merge(list("abcde"), 3, lambda left, right: accepted.get((left, right)), lambda segment: [])
    assert made == (["ab", "cd", "e"], 2, "aligned")
    assert split_merge(["a", "b"], 1, lambda left, right: None, lambda segment: [])[1:] == (1, "local optimum")
    assert split_merge(["a"], 9, lambda left, right: None, lambda segment: [segment, segment], 3)[1:] == (3, "out of iterations")


def test_equations_merge_where_they_go_on_and_split_where_they_jump():
    assert merge_equations("3+3=6", "6+5=11") == "3+3+5=11"
    assert merge_equations("3+3=6", "7+5=12") is merge_equations("x", "6+5=11") is None
    assert split_equation("3+3+5-1=10") == ["3+3=6", "6+5-1=10"]
    assert split_equation("3+3=6") == split_equation("1-2+5=4") == split_equation("x") == []


@given(st.integers(1, 5), st.integers(1, 5))
def test_gold_answers_reach_any_target_and_still_end_in_their_answer(changes, target):
    total, lines = 20, []
    for change in range(1, changes + 1):
        lines.append(f"{total}-{change}={total - change}")
        total -= change
    text = f"<think>{' '.join(lines)}</think><answer>{total}</answer>"
    made = refine_completion(refine_completion(text, 1, 5), target, 5)
    assert made.endswith(f"={total}</think><answer>{total}</answer>")
    assert len(made.split("</think>")[0].split()) == min(target, changes)
    if target == changes:
        assert made == text


def test_a_text_without_working_is_left_alone():
    for text in ("", "<answer>3</answer>", "<think></think><answer>3</answer>"):
        assert refine_completion(text, 3, 5) == text


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), st.permutations(range(4)), st.floats(0, 2))
def test_without_penalty_it_is_the_reward_and_rows_are_apart(outcome, order, penalty):
    outcome, counts, targets = torch.tensor(outcome), torch.tensor([0.0, 2, 5, 9]), torch.tensor([3.0, 3, 3, 3])
    valid, order = torch.tensor([True, True, True, False]), list(order)
    assert apply_segment_budget(outcome, counts, targets, torch.ones(4, dtype=torch.bool), 1, 0.0).equal(outcome)
    made = apply_segment_budget(outcome, counts, targets, valid, 1, penalty)
    assert apply_segment_budget(outcome[order], counts[order], targets[order], valid[order], 1, penalty).equal(made[order])
    assert (made <= outcome).all()


def test_the_target_is_the_solutions_or_the_fewest_of_a_right_answer():
    example = Example([], "10", {"start": 3, "changes": [3, 5, -1]})
    texts = [GOLD, "<think>1+1=2</think><answer>10</answer>", "<think></think>", ""]
    batch = rollout_batch([1, 1, 0, 0], 4, texts=texts)
    assert method().rewards(batch, batch.reward).tolist() == [0.0, 1.0, -1.0, -1.0]  # the fewest of a right one is 1
    batch.examples = [example] * 4
    assert method().targets(batch, torch.tensor([3.0, 1, 0, 0])).tolist() == [3.0] * 4
    assert method().rewards(batch, batch.reward)[1] == 0.0
    nobody = rollout_batch([0, 0], 2, texts=[GOLD, "<think>1+1=2</think><answer>2</answer>"])
    assert method().targets(nobody, torch.tensor([3.0, 1.0])).tolist() == [3.0, 1.0]


def test_supervised_rows_with_a_target_are_refined_and_others_left():
    row = {"prompt": [], "completion": [{"role": "assistant", "content": GOLD}]}
    assert method().data([row, row | {"golden_segments": 2}, row | {"golden_segments": "2"}], None) == [
        row,
        row | {"golden_segments": 2, "completion": [{"role": "assistant", "content": GOLD.replace("3+3=6 6+5=11", "3+3+5=11")}]},
        row | {"golden_segments": "2"},
    ]


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    trained = two_steps("cosmo", {"tolerance": 0, "penalty": 0.5})
    assert all(2 <= step["cosmo/target"] <= 3 for step in trained.steps)
    for rollout in trained.rollouts:
        assert rollout.shaped["cosmo"] <= rollout.reward
        assert rollout.shaped["cosmo"] == -1 or rollout.rewards["format"] == 1
