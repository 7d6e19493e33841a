"""InfoAgent: the card's numbers, questions of the run's difficulty and below, right traces, and the outcome as the only reward."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.worlds.infoagent import InfoAgent, measure_difficulty, share_levels, write_right_trace
from trainers.policies import tiny
from trainers.policies.sampling import Completion
from trainers.worlds.entity_search import EntitySearch

WORLD = EntitySearch()
TASK = {"name": "entity_search", "difficulty": "medium"}


def test_the_worked_examples():
    assert measure_difficulty([4, 6, 12], [True, True, False]) == 5.0
    assert measure_difficulty([12], [False]) is None
    made = Completion([])
    for role, ids in (("assistant", [1, 2]), ("tool", [3, 4]), ("assistant", [5])):
        made.add(role, ids, [0.0] * len(ids), [0.0] * len(ids))
    assert made.mask == [1, 1, 0, 0, 1]


@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from(["easy", "medium", "hard"]))
def test_levels_share_out_all_questions(count, easier, own):
    parts = share_levels(["easy", "medium", "hard"], own, count, easier)
    assert sum(many for _, many in parts) == count
    assert parts[-1][0] == own
    assert parts[-1][1] >= count - count * easier - 1e-6
    assert share_levels(["easy", "medium", "hard"], own, count, 0.0) == [(own, count)]


def test_a_trace_is_right_and_the_worlds_words_are_not_in_its_loss():
    family = tiny.find_family(WORLD)
    tokenizer = tiny.build_tokenizer(family.texts, family.tags)
    example = WORLD.examples("train", 1, 0, "medium")[0]
    row = write_right_trace(WORLD, example, tokenizer)
    assert WORLD.rewards["correct"].function(row["completion"][0]["content"], example) == 1
    trained = tokenizer.decode([id_ for id_, own in zip(row["input_ids"], row["completion_mask"], strict=True) if own])
    assert "<information>" not in trained
    assert trained.count("<search>") == len(example.data["evidence"])


def test_the_outcome_alone_pays_and_calls_are_reported_by_depth():
    examples = [WORLD.examples("train", 1, 0, level)[0] for level in ("easy", "medium")]
    texts = ["<search>a</search>" * 3 + "<answer>x</answer>", "<search>a</search><answer>x</answer>"]
    batch = rollout_batch([1, 0], 2, examples=examples, texts=texts)
    method = InfoAgent()
    assert method.rewards(batch, torch.tensor([5.0, 5.0])).tolist() == [1, 0]
    method.observe(batch)
    depths = [len(example.data["evidence"]) for example in examples]
    logged = method.collect()
    assert (logged["calls_right"], logged["calls_wrong"], logged[f"difficulty_{depths[0]}"]) == (3, 1, 3)
    assert f"difficulty_{depths[1]}" not in logged or depths[0] == depths[1]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("infoagent", base="grpo", task=TASK, **{**written_episodes, "training__max_completion_length": 160})
    assert {rollout.rewards["correct"] for rollout in trained.rollouts} == {0.0, 1.0}
    assert all(rollout.shaped["infoagent"] == rollout.rewards["correct"] for rollout in trained.rollouts)


@pytest.mark.training
def test_two_supervised_steps_on_right_traces(two_steps):
    trained = two_steps("infoagent", trainer="sft", task=TASK, policy={"kind": "tiny", "cold_start": False})
    assert trained.steps[0]["infoagent/data_searches"] > 2
