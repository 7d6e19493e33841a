"""Strategic persuasion: the card's numbers, a gain that is the world's, and claims that only the held-out split has."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.maths.advantages import z_score
from trainers.methods.context import RunContext
from trainers.methods.worlds.strategic_persuasion import StrategicPersuasion, measure_episode_gain
from trainers.worlds.interview import Interview
from trainers.worlds.interview_stance import WORDS, value_stance

TASK = {"name": "interview", "difficulty": "medium", "options": {"about": "stance"}}
WORLD = Interview(TASK["options"])
EXAMPLES = WORLD.examples("train", 12, 0, "hard")


def test_the_worked_examples():
    gains = torch.tensor([float(value_stance("for", after) - value_stance("for", 3)) for after in (4, 5, 3, 6)])
    assert gains.tolist() == [1, 2, 0, 3]
    assert z_score(gains, 4).tolist() == pytest.approx([-0.387, 0.387, -1.162, 1.162], abs=1e-3)
    assert value_stance("against", 2) - value_stance("against", 3) == 1


@given(st.sampled_from(EXAMPLES), st.lists(st.sampled_from(WORDS), max_size=4))
def test_the_gain_is_bounded_by_the_messages_and_by_the_scale(example, words):
    text = "".join(said.text for said in WORLD.tell_turns(example, [f"<say>{word}</say>" for word in words[:3]]))
    gain = measure_episode_gain(WORLD, example, text)
    before = value_stance(example.data["side"], example.data["stance"])
    assert abs(gain) <= min(len(words), 3)
    assert 1 <= before + gain <= 7


def test_the_best_dialogue_earns_a_point_a_message_and_silence_nothing():
    for example in EXAMPLES:
        assert measure_episode_gain(WORLD, example, WORLD.gold(example)) == example.data["messages"] == 3
        assert measure_episode_gain(WORLD, example, "I would rather not.") == 0


def test_both_sides_are_reported():
    method = StrategicPersuasion()
    attempt = type("Attempt", (), {"task": WORLD})
    method.prepare(RunContext(attempt))
    examples = [next(one for one in EXAMPLES if one.data["side"] == side) for side in ("for", "against")]
    batch = rollout_batch([0, 0], 2, texts=[WORLD.gold(examples[0]), "x"], examples=examples)
    assert method.rewards(batch, batch.reward).tolist() == [3, 0]
    logged = method.collect()
    assert (logged["gain_for"], logged["gain_against"], logged["backfired"]) == (3.0, 0.0, 0.0)
    assert logged["after"] - logged["before"] == pytest.approx(1.5)


@pytest.mark.parametrize(("about", "problems"), [("stance", []), ("illness", ["task.options.about"])])
def test_it_needs_the_receiver(tmp_path, about, problems):
    spec = make_spec(tmp_path, task={"name": "interview", "options": {"about": about}}, methods=[{"name": "strategic-persuasion"}])
    assert [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems] == problems


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("strategic-persuasion", base="grpo", task=TASK, **written_episodes)
    assert len({rollout.shaped["strategic-persuasion"] for rollout in trained.rollouts}) > 1
    for rollout in trained.rollouts:
        assert rollout.shaped["strategic-persuasion"] in (-2, -1, 0, 1, 2)
        assert max(0, rollout.shaped["strategic-persuasion"]) / 2 == rollout.rewards["gain"]
    assert "strategic-persuasion/gain" in trained.steps[0]
