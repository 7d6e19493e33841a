"""SpaceTools' DIRL: its stages, given episodes that are trained on, and GRPO without the first two."""

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.turn_scripts import script_nodes
from trainers.methods.history import History
from trainers.methods.worlds.spacetools_dirl import ALL_TOOLS, DISTIL, GIVEN, Config, SpaceToolsDIRL, find_stage
from trainers.worlds.toolbox import Toolbox

WORLD = Toolbox()


def make_method(run, **config):
    method = SpaceToolsDIRL(Config(**config))
    method.prepare(run)
    return method


def test_the_stages_of_a_run():
    assert [find_stage(step, 8, 0.25, 0.5) for step in range(1, 9)] == [1, 1, 2, 2, 2, 2, 3, 3]


@given(st.integers(1, 50), st.integers(1, 50), st.floats(0, 1), st.floats(0, 1))
def test_stages_come_in_their_order_and_without_the_first_two_there_is_the_third(step, total, first, distil):
    assert find_stage(step, total, first, distil) <= find_stage(step + 1, total, first, distil)
    assert find_stage(step, total, 0.0, 0.0) == ALL_TOOLS


def test_only_imitation_changes_advantages():
    method = SpaceToolsDIRL(Config(first=0.2, distil=0.4))
    advantages = torch.tensor([[0.5, -1.0, 0.0], [1.0, 1.0, 1.0]])
    made = {step: method.advantages(rollout_batch([0.0, 1.0], 2, step=step), advantages) for step in (2, 3, 6, 7)}
    assert torch.equal(made[2], advantages)
    assert torch.equal(made[7], advantages)
    assert made[3].tolist() == made[6].tolist() == [[1.0] * 3] * 2


@pytest.fixture
def session(make_session):
    found = make_session(WORLD)
    found.total_steps, found.max_tokens = 9, 96
    return found


def test_questions_for_one_tool_are_added_and_drawn_in_the_first_stage_alone(session):
    method = make_method(session.run, first=0.5, distil=0.25, singles=3)
    rows = WORLD.examples("train", 5, 0, "easy")
    made = method.data(rows, session.run)
    assert made[:5] == rows
    assert [[tool for tool, _ in example.data["plan"]] for example in made[5:]] == [["age"]] * 3
    for step, weights in ((1, [0] * 5 + [1] * 3), (3, [1] * 5 + [0] * 3), (4, [1] * 5 + [0] * 3)):
        assert method.curriculum(History(8, 4, step)).tolist() == weights
    alone = make_method(session.run, first=0.0)
    assert alone.data(rows, session.run) == rows
    assert alone.curriculum(History(5, 4, 1)) is None


def test_the_second_stage_gives_whole_episodes_and_trains_on_the_policys_turns(session):
    method = make_method(session.run, first=0.0, distil=1.0, own=0.5)
    session.step = 5
    session.run.examples = WORLD.examples("train", 6, 7, "easy")
    method.questions = 5
    kept = session.run.examples[5]
    method.kept = [(5, WORLD.way(kept, WORLD.begin(kept)))]
    made = method.rollout(session)
    assert {one.notes[GIVEN] for one in made} == {"own", "teacher"}
    for one, example in zip(made, session.examples, strict=True):
        assert one.text == WORLD.gold(example)
        assert (example is kept) == (one.notes[GIVEN] == "own")
        assert one.mask == [int(turn.role != "tool") for turn in one.turns for _ in range(turn.start, turn.end)]
        assert 0 < sum(one.mask) < len(one.mask)
        assert all((logprob < 0) == bool(own) for logprob, own in zip(one.logprobs, one.mask, strict=True))
    assert [prompt[-1].content for prompt in session.prompts] == [example.prompt[-1].content for example in session.examples]
    assert method.collect()["own_given"] == sum(one.notes[GIVEN] == "own" for one in made) / len(made)


def test_right_episodes_of_the_first_stage_are_kept_and_survive_a_checkpoint():
    method = make_method(SimpleNamespace(task=WORLD), first=0.5)
    examples = WORLD.examples("train", 2, 0, "easy")
    texts = [WORLD.gold(examples[0]), "<answer>none</answer>"]
    batch = rollout_batch([1.0, 0.0], 2, texts=texts, examples=examples, example_ids=[4, 7], step=1)
    method.observe(batch)
    assert method.kept == [(4, WORLD.way(examples[0], WORLD.begin(examples[0])))]
    assert method.collect()["right/one_tool"] == 0.5
    batch.step = 9
    method.observe(batch)
    assert len(method.kept) == 1
    other = SpaceToolsDIRL()
    other.restore(json.loads(json.dumps(method.state())))
    assert other.kept == method.kept


def test_the_third_stage_is_the_sessions_own_sampling(session, monkeypatch):
    method = make_method(session.run, first=0.0, distil=0.0)
    before = list(session.examples)
    script_nodes(monkeypatch, lambda node: "<answer>none</answer>")
    monkeypatch.setattr(session, "complete", lambda: [SimpleNamespace(mask=[1, 0])])
    assert len(method.rollout(session)) == 1
    assert session.examples == before
    logged = method.collect()
    assert (logged["stage"], logged["policy_tokens"]) == (ALL_TOOLS, 1)
    assert DISTIL == 2


@pytest.mark.training
def test_one_real_step_of_each_stage(two_steps, written_episodes):
    settings = {"first": 0.34, "distil": 0.33}
    trained = two_steps("spacetools-dirl", settings, base="grpo", task={"name": "toolbox"}, training__max_steps=3, **written_episodes)
    assert [step["spacetools-dirl/stage"] for step in trained.steps] == [1, 2, 3]
    for rollout in trained.rollouts:
        if rollout.step == 2:
            assert rollout.advantage == 1
            assert rollout.rewards["correct"] == 1
            assert rollout.completion.endswith("</answer>")
            assert any(f"{rollout.prompt[-1].content}" == example.prompt[-1].content for example in WORLD.examples("train", 32, 0, "easy"))
        if rollout.step == 1:
            assert rollout.prompt[-1].content.startswith("What is the age of ")
    assert trained.steps[0]["spacetools-dirl/right/one_tool"] > 0
