"""CodeV's TAPO: what judged outputs are paid, what crosses a red line, and that without both it is GRPO."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.problems import SpecError
from trainers.methods.worlds.codev_tapo import CodeVTAPO, Config, average_scores, repeats_empty_call, reward_tool_use
from trainers.worlds.observations import Observation
from trainers.worlds.search import Search

WEIGHTS = (1.0, 0.5, 0.2)
SCORES = st.lists(st.floats(0, 1), max_size=6)
EMPTY, FOUND, FAILED = (f"<information>{text}</information>" for text in ("nothing", "Eva's city is Rome.", "failed"))


def pay(right, scores, crossed=0.0):
    return reward_tool_use(torch.tensor(right), torch.tensor(average_scores(scores)), torch.tensor(crossed), WEIGHTS).item()


def test_the_worked_example():
    assert pay(1.0, [1.0, 0.0, 1.0]) == pytest.approx(1.3333, abs=1e-4)
    assert pay(0.0, [1.0, 0.0, 1.0]) == pytest.approx(0.3333, abs=1e-4)
    assert pay(1.0, []) == 1
    assert pay(1.0, [1.0], 1.0) == pytest.approx(1.3)


@given(SCORES, SCORES, st.booleans())
def test_a_right_answer_is_worth_more_than_any_calls_and_useless_calls_earn_nothing(scores, others, crossed):
    assert pay(1.0, scores) >= pay(0.0, others) + WEIGHTS[0] - WEIGHTS[1] - 1e-6
    assert pay(1.0, [*scores, 0.0], float(crossed)) <= pay(1.0, scores)


def see(*turns):
    return [Observation(f"<search>{query}</search>", text) for query, text in turns]


def test_an_empty_call_is_not_made_again():
    assert repeats_empty_call(see(("x", EMPTY), ("y", FOUND), ("x", EMPTY)))
    assert not repeats_empty_call(see(("x", EMPTY), ("y", EMPTY)))
    assert not repeats_empty_call(see(("x", FOUND), ("x", FOUND)))
    assert not repeats_empty_call(see(("x", FAILED), ("x", FOUND)))
    assert not repeats_empty_call([])


def make_batch(world):
    """Four members: the way; the right answer after an empty search twice; after a search beside the point; and a turn that cannot be read."""
    example = next(one for one in world.examples("train", 8, 0, "medium") if len(one.data["evidence"]) == 2)
    way = world.way(example, world.begin(example))
    who = next(one for one in ("Kim", "Ned", "Ben") if one != example.data["person"])
    empty, beside = "<search>zzz</search>", f"<search>{who}'s sister's</search>"
    texts = [world.write_episode(example, [*turns, way[-1]]) for turns in (way[:-1], [empty, empty], [beside])]
    return rollout_batch([1, 1, 1, 0], 4, texts=[*texts, "<search>a<b</search>"], examples=[example] * 4)


def test_rewards_of_a_group():
    world, method = Search(), CodeVTAPO()
    method.prepare(SimpleNamespace(task=world))
    batch = make_batch(world)
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx([1.5, 0.8, 1.0, -0.2])
    logged = method.collect()
    assert (logged["red_lines"], logged["evidence"], logged["calls"]) == (0.5, 2 / 5, 5 / 4)
    quadrants = [logged[f"{kind}_and_{end}"] for kind in ("faithful", "unfaithful") for end in ("right", "wrong")]
    assert quadrants == [0.25, 0, 0.5, 0.25]


def test_without_tools_and_penalty_it_is_grpo():
    world, method = Search(), CodeVTAPO(Config(tools=0.0, penalty=0.0))
    method.prepare(SimpleNamespace(task=world))
    batch = make_batch(world)
    assert torch.equal(method.rewards(batch, batch.reward), batch.reward)


def test_the_worker_s_judge_sees_the_question_and_an_output_alone():
    heard = []

    def ask(questions):
        heard.extend(questions)
        return ["0.5"] * len(questions)

    world, method = Search(), CodeVTAPO(Config(judge="endpoint"))
    method.prepare(SimpleNamespace(task=world, judge=SimpleNamespace(ask=ask)))
    batch = make_batch(world)
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx([1.25, 1.05, 1.25, -0.2])
    assert all(batch.examples[0].prompt[0].content in question for question in heard)
    assert not any("<search>" in question for question in heard)
    with pytest.raises(SpecError, match="no judge endpoint"):
        method.prepare(SimpleNamespace(task=world, judge=None))


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("codev-tapo", base="grpo", task={"name": "graph", "difficulty": "easy"}, **written_episodes)
    paid = [rollout.shaped["codev-tapo"] for rollout in trained.rollouts]
    assert max(paid) == pytest.approx(1.5)
    assert min(paid) == 0  # nothing was written
    assert all(step["codev-tapo/evidence"] == 1 for step in trained.steps)
