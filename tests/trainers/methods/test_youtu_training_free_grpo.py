"""Training-free GRPO: which groups teach, what becomes of a lesson, and that no weight moves."""

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.test_procedure import digest_files
from trainers.methods.worlds.youtu_training_free_grpo import (
    EDITS,
    EXPERIENCES,
    Config,
    Operation,
    TrainingFreeGRPO,
    apply_operations,
    criticise_group,
    has_both_outcomes,
    merge_lessons,
)
from trainers.policies.tiny import ensure_untrained_policy
from trainers.rollouts.store import Store
from trainers.worlds.conventions import Conventions, make_example


def make_method(**config) -> TrainingFreeGRPO:
    method = TrainingFreeGRPO(Config(**config))
    method.prepare(SimpleNamespace(store=Store()))
    return method


def test_the_worked_example():
    assert not has_both_outcomes([1, 1, 1, 1, 1])
    assert not has_both_outcomes([0, 0])
    assert has_both_outcomes([1, 0, 1, 0, 0])
    operations = [Operation("ADD", text="e1"), Operation("UPDATE", "G0", "e0'")]
    made, last = apply_operations({"G0": "e0"}, operations, 0)
    assert made == {"G0": "e0'", "G1": "e1"}
    assert last == 1
    assert apply_operations({"G0": "e0"}, [Operation("DELETE", "G0"), Operation("NONE")], 0)[0] == {}


def test_a_lesson_is_what_right_answers_have_and_wrong_ones_lack():
    texts = ["<answer>12 rice oz</answer>", "<answer>12 rice kg</answer>", "<answer>9 rice oz</answer>", "no answer", "<answer>12</answer>"]
    assert criticise_group("rice", texts, [1, 0, 0, 0, 0]) == {("rice", "oz"): 1}
    assert criticise_group("rice", texts, [0, 0, 0, 0, 0]) == {}
    assert criticise_group("rice", texts, [0, 0, 0, 0, 1]) == {}  # no unit to learn


def test_lessons_add_update_and_delete_and_equal_ones_wait():
    known = {"G0": "rice kg", "G1": "rice lb", "G2": "milk kg"}
    lessons = Counter({("rice", "oz"): 3, ("rice", "kg"): 1, ("milk", "kg"): 1, ("rope", "cm"): 2, ("wool", "lb"): 1, ("wool", "kg"): 1})
    operations = merge_lessons(lessons, known)
    assert operations == [
        Operation("UPDATE", "G1", "rice oz"),
        Operation("DELETE", "G0"),
        Operation("NONE", "G2", "milk kg"),
        Operation("ADD", text="rope cm"),
    ]
    assert apply_operations(known, operations, 2)[0] == {"G2": "milk kg", "G1": "rice oz", "G3": "rope cm"}


@given(st.dictionaries(st.tuples(st.sampled_from(["rice", "milk"]), st.sampled_from(["kg", "oz"])), st.integers(1, 5)))
def test_the_same_lessons_again_change_nothing(votes):
    lessons = Counter(votes)
    made, last = apply_operations({}, merge_lessons(lessons, {}))
    assert apply_operations(made, merge_lessons(lessons, made), last) == (made, last)
    assert {operation.kind for operation in merge_lessons(lessons, made)} <= {"NONE"}


def test_experiences_stand_in_later_prompts_and_say_where_they_came_from():
    method, example = make_method(), make_example("rice", [7, 5], {})
    assert method.prompts(example, 2, 1) == [example.prompt] * 2  # none yet: the frozen policy's own prompt
    method.revise([Operation("ADD", text="rice oz"), Operation("ADD", text="milk kg")], 1, {"rice": [0, 3]})
    assert method.prompts(example, 1, 2)[0][0].content == "Notes: rice oz, milk kg. 7+5 rice?"
    method.revise([Operation("DELETE", "G1")], 2, {})
    method.revise([Operation("ADD", text="rope cm")], 3, {})
    assert method.experiences == {"G0": "rice oz", "G2": "rope cm"}  # a key is given once
    edits = method.run.store.items(EDITS)
    assert [(edit["step"], edit["kind"], edit["key"]) for edit in edits] == [
        (1, "ADD", "G0"),
        (1, "ADD", "G1"),
        (2, "DELETE", "G1"),
        (3, "ADD", "G2"),
    ]
    assert edits[0]["groups"] == [0, 3]


def test_the_oldest_experiences_go_first():
    method = make_method(most=1)
    method.revise([Operation("ADD", text="rice oz"), Operation("ADD", text="milk kg")], 1, {})
    assert method.run.store.items(EXPERIENCES) == [["G1", "milk kg"]]


@pytest.mark.training
def test_two_real_rounds(two_steps, written_episodes):
    settings = {**written_episodes, "training__max_completion_length": 24, "training__prompts": 2, "task": {"name": "conventions"}}
    trained = two_steps("youtu-training-free-grpo", {}, trainer="procedure", **settings)
    first, second = trained.steps
    assert first["youtu-training-free-grpo/skipped"] == 0  # the first and second members write the right answer, the others none
    assert first["youtu-training-free-grpo/experiences"] == second["youtu-training-free-grpo/experiences"] > 0
    assert second["youtu-training-free-grpo/edits"] == 0
    assert {rollout.prompt[0].content.startswith("Notes: none.") for rollout in trained.rollouts if rollout.step == 1} == {True}
    assert not any(rollout.prompt[0].content.startswith("Notes: none.") for rollout in trained.rollouts if rollout.step == 2)
    assert digest_files(trained.folder / "final") == digest_files(ensure_untrained_policy(Conventions()))
