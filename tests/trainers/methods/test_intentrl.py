"""IntentRL: the card's numbers, single questions after a given dialogue, and the mean over the policy's own questions."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.methods.context import RunContext
from trainers.methods.worlds.intentrl import Config, IntentRL, grade_dialogue, grade_question, unroll_dialogue
from trainers.worlds.base import replay_episode
from trainers.worlds.interview import Interview
from trainers.worlds.interview_intents import INTENTS, TOPICS

TASK = {"name": "interview", "difficulty": "medium", "options": {"about": "intents"}}
WORLD = Interview(TASK["options"])
EXAMPLES = WORLD.examples("train", 8, 0, "medium")


def play(example, *questions, end="<answer>start</answer>"):
    said = WORLD.tell_turns(example, [*(f"<ask>{question}</ask>" for question in questions), end])
    return "".join(one.text for one in said)


def test_the_worked_examples():
    assert grade_question(0.81, 1.0, False, False, 2, 1) == pytest.approx(1.81)
    assert grade_question(0.81, 1.0, True, False, 2, 1) == pytest.approx(-0.19)
    assert grade_question(0.6, 1.0, False, True, 2, 1) == pytest.approx(0.6)


def test_a_dialogue_earns_the_mean_over_the_questions_after_those_given():
    example = EXAMPLES[0]
    wish = " ".join(example.data["hidden"][0])
    turns = replay_episode(WORLD, example, play(example, wish, wish)).turns
    assert grade_dialogue(turns, 0, 2, 1) == pytest.approx((2 + grade_dialogue(turns, 1, 2, 1)) / 2)
    assert grade_dialogue(turns, 1, 2, 1) == pytest.approx(turns[1].step.facts["content"] + 1 - 2)
    assert grade_dialogue(turns, 2, 2, 1) == 0.0  # the answer alone
    assert grade_dialogue(replay_episode(WORLD, example, "what?").turns, 0, 2, 1) == -1.0


@given(st.sampled_from(EXAMPLES), st.lists(st.sampled_from(INTENTS), max_size=4))
def test_rewards_lie_between_the_worst_and_the_best_question(example, intents):
    turns = replay_episode(WORLD, example, play(example, *(" ".join(intent) for intent in intents))).turns
    assert -2 <= grade_dialogue(turns, 0, 2, 1) <= 2
    assert grade_dialogue(turns, 0, 0, 0) >= grade_dialogue(turns, 0, 2, 1)


@given(st.sampled_from(EXAMPLES), st.integers(0, 50))
def test_an_offline_dialogue_asks_all_the_topic_is_known_for_once_aspect_by_aspect(example, seed):
    asked = [tuple(turn.removeprefix("<ask>").removesuffix("</ask>").split()) for turn in unroll_dialogue(example, random.Random(seed))]
    assert sorted(asked) == sorted(TOPICS[example.data["topic"]])
    aspects = [aspect for aspect, _ in asked]
    assert all(aspects[first:last].count(aspects[first]) == last - first for first, last in find_runs(aspects))
    assert len(find_runs(aspects)) == len(set(aspects))


def find_runs(items):
    starts = [place for place, item in enumerate(items) if place == 0 or items[place - 1] != item]
    return list(zip(starts, [*starts[1:], len(items)], strict=True))


def test_stage_1_takes_its_share_of_the_steps():
    assert [IntentRL(Config(first=0.5)).is_first_stage(step, 4) for step in (1, 2, 3, 4)] == [True, True, False, False]
    assert IntentRL(Config(first=1.0)).is_first_stage(4, 4)
    assert not IntentRL(Config(first=0.0)).is_first_stage(1, 4)


def test_without_penalties_and_given_turns_only_content_and_form_count():
    method = IntentRL(Config(gamma=0, delta=0))
    method.prepare(RunContext(type("Attempt", (), {"task": WORLD})))
    example = EXAMPLES[0]
    wish = " ".join(example.data["hidden"][0])
    batch = rollout_batch([0, 0], 2, texts=[play(example, wish), "x"], examples=[example] * 2)
    assert method.rewards(batch, batch.reward).tolist() == [2, 0]
    logged = method.collect()
    assert (logged["questions"], logged["repeats"], logged["intents"]) == (0.5, 0.0, 1.0)


def test_it_needs_the_person_with_intents(tmp_path):
    spec = make_spec(tmp_path, task={"name": "interview"}, methods=[{"name": "intentrl"}])
    assert [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems] == ["task.options.about"]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("intentrl", {"first": 0.5, "given": 1}, base="grpo", task=TASK, **written_episodes)
    for rollout in trained.rollouts:
        given = [turn.end for turn in rollout.turns if turn.role == "given"]
        group = [one for one in trained.rollouts if (one.step, one.group) == (rollout.step, rollout.group)]
        assert all([turn.end for turn in one.turns if turn.role == "given"] == given for one in group)
        if rollout.step == 1:  # one question, or an answer
            assert [turn.role for turn in rollout.turns] in (["given", "assistant"], [])
    assert [step["intentrl/stage"] for step in trained.steps] == [1, 2]
    first = [rollout for rollout in trained.rollouts if rollout.step == 1]
    assert all(rollout.shaped["intentrl"] <= 2 for rollout in first)
    assert all(len({one.shaped["intentrl"] for one in trained.rollouts if one.step == step}) > 1 for step in (1, 2))
    assert any(rollout.turns[0].role == "given" for rollout in first if rollout.turns)
