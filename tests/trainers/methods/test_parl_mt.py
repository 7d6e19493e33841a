"""PARL-MT: the card's numbers, contexts that hold the progress alone, and one reward for all turns of a conversation."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.methods.worlds.parl_mt import Config, ParlMT, grade_conversation, play_conversations
from trainers.policies.sampling import Completion
from trainers.worlds.booking import Booking
from trainers.worlds.booking_progress import list_gold_contents

TASK = {"name": "booking", "difficulty": "easy", "options": {"progress": True}}
WORLD = Booking(TASK["options"])
EXAMPLES = WORLD.examples("train", 6, 0, "medium")


def write_gold(prompts, examples):
    return [Completion([], ids=[1, 2], mask=[1, 1], text=WORLD.gold(example)) for example in examples]


def write_wrong_calls(prompts, examples):
    return [Completion([], ids=[1], mask=[1], text="<progress>nothing</progress><call>city Mars</call>") for _ in examples]


def test_the_worked_examples():
    assert grade_conversation([True, False, True], 3, False, 0.5, 0.5) == pytest.approx(1 / 3)
    assert grade_conversation([True, True, True], 3, True, 0.5, 0.5) == 1.0
    assert grade_conversation([True], 3, False, 0.5, 0.5) == pytest.approx(1 / 6)


@given(st.lists(st.booleans(), max_size=5), st.integers(0, 3), st.booleans())
def test_a_conversation_earns_between_0_and_the_weights(matches, more, is_right):
    graded = grade_conversation(matches, len(matches) + more or 1, is_right, 0.5, 0.5)
    assert 0 <= graded <= 1
    assert (graded == 1) == (is_right and all(matches) and len(matches) > 0 and not more)


def test_each_context_holds_the_last_progress_and_what_the_user_says():
    for one in play_conversations(EXAMPLES, write_gold):
        script = one.example.data["script"]
        assert (one.matches, one.is_right) == ([True] * (len(script) + 1), True)
        prompts = [prompt[0].content for prompt, _ in one.contexts]
        assert prompts[0] == f"Done: nothing. {script[0][2]}"
        assert all(prompt.endswith(words) for prompt, (_, _, words) in zip(prompts, script, strict=False))
        assert prompts[-1].endswith("That is all.")
        assert all(len(prompt.split()) <= 9 + len(words.split()) for prompt, (_, _, words) in zip(prompts, script, strict=False))


def test_wrong_calls_are_heard_out_and_an_unreadable_turn_ends_the_conversation():
    for one in play_conversations(EXAMPLES, write_wrong_calls):
        assert one.matches == [False] * len(list_gold_contents(one.example))
        assert (one.booking, one.is_right) == ({}, False)
    silent = play_conversations(EXAMPLES, lambda prompts, examples: [Completion([], text="well") for _ in examples])
    assert all(one.matches == [False] for one in silent)


def test_the_row_is_the_turn_of_the_prompt_or_the_last_that_was_reached():
    method = ParlMT()
    session = SimpleNamespace(examples=EXAMPLES, prompts=[example.prompt for example in EXAMPLES], complete=write_gold)
    rows = method.rollout(session)
    assert [row.notes["turn"] for row in rows] == [example.data["turn"] for example in EXAMPLES]
    assert [row.text for row in rows] == [WORLD.gold(example) for example in EXAMPLES]
    assert session.prompts == [example.prompt for example in EXAMPLES]  # gold turns lead to gold progress
    assert method.collect()["policy_tokens"] == 2 * sum(len(list_gold_contents(example)) for example in EXAMPLES)
    session.complete = lambda prompts, examples: [Completion([], ids=[1], mask=[1], text="well") for _ in examples]
    assert {row.notes["turn"] for row in method.rollout(session)} == {0}


def test_every_turn_has_the_reward_of_the_conversation_and_a_replay_has_the_worlds():
    method, notes = ParlMT(Config()), [{"return": 0.25, "final": False, "matched": 0.5}, {"return": 1.0, "final": True, "matched": 1.0}]
    batch = rollout_batch([0, 0], 2, notes=notes, prompt_ids=[[1, 2], [1, 2, 3]])
    assert method.rewards(batch, batch.reward).tolist() == [0.25, 1.0]
    assert method.collect() == {"final": 0.5, "matched": 0.75, "context": 2.5}
    plain = rollout_batch([0, 1], 2)
    assert torch.equal(method.rewards(plain, plain.reward), plain.reward)


def test_it_needs_the_progress_in_the_prompt(tmp_path):
    spec = make_spec(tmp_path, task={"name": "booking"}, methods=[{"name": "parl-mt"}])
    assert [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems] == ["task.options.progress"]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("parl-mt", base="grpo", task=TASK, **written_episodes)
    assert all(rollout.prompt[0].content.startswith("Done: ") for rollout in trained.rollouts)
    assert len({rollout.shaped["parl-mt"] for rollout in trained.rollouts}) > 2
    for place, step in enumerate(trained.steps, 1):
        own = [rollout.shaped["parl-mt"] for rollout in trained.rollouts if rollout.step == place]
        assert sum(own) / len(own) == pytest.approx(0.5 * step["parl-mt/matched"] + 0.5 * step["parl-mt/final"], abs=1e-5)
        assert step["parl-mt/policy_tokens"] > sum(rollout.length for rollout in trained.rollouts if rollout.step == place)
