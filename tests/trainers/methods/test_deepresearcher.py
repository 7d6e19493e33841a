"""DeepResearcher: the F1 of sets, what broken form costs, and what is read of an episode with failures."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.worlds.deepresearcher import DeepResearcher, list_reactions, score_final_answer
from trainers.worlds.base import replay_episode
from trainers.worlds.search import Search

WORDS = st.lists(st.sampled_from(["a", "Oslo", "Rome", "the", "tower!"]), max_size=4).map(" ".join)


def test_the_worked_example():
    assert score_final_answer("the Eiffel tower", ["eiffel tower."]) == pytest.approx(0.8)
    assert score_final_answer("Oslo", ["Rome", "Oslo city"]) == pytest.approx(2 / 3)
    assert score_final_answer(None, ["Rome"]) == -1


@given(WORDS, WORDS)
def test_an_answer_is_worth_more_than_none_and_the_right_one_most(answer, gold):
    found = score_final_answer(answer, [gold])
    assert 0 <= found <= 1
    assert found == score_final_answer(gold, [answer])
    assert score_final_answer(gold, [gold]) == bool(gold)
    assert found == score_final_answer(f"{answer} {answer}", [gold]), "sets, not counts"


def play(world, example):
    """Texts of four members: right, wrong, cut off after a search, and one that writes the result itself."""
    gold = world.gold(example)
    return [gold, "<answer>none</answer>", gold[: gold.index("<answer>")], "<information>it</information>" + gold]


def test_rewards_of_a_group_and_equality_with_the_world_where_the_form_holds():
    world = Search()
    example = world.examples("train", 1, 0, "medium")[0]
    batch = rollout_batch([0.5] * 4, 4, texts=play(world, example), examples=[example] * 4)
    method = DeepResearcher()
    method.prepare(SimpleNamespace(task=world))
    assert method.rewards(batch, batch.reward).tolist() == [1, 0, -1, -1]
    logged = method.collect()
    assert logged["broken"] == 0.5
    assert "asked_again" not in logged


def test_after_a_failure_the_expert_asks_again_and_others_may_not():
    world = Search({"failures": 0.5})
    asked = 0
    for example in world.examples("train", 30, 0, "medium"):
        try:
            gold = world.gold(example)
        except LookupError:
            continue
        replay = replay_episode(world, example, gold)
        failures = [turn for turn in replay.turns if "error" in turn.step.facts]
        assert list_reactions(replay) == [True] * len(failures)
        asked += len(failures)
        if failures and "error" in replay.turns[0].step.facts:
            first = gold[: gold.index("</information>") + len("</information>")]
            assert list_reactions(replay_episode(world, example, first + "<answer>Rome</answer>")) == [False]
    assert asked > 5
    assert list_reactions(replay_episode(world, example, "")) == []


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("deepresearcher", base="grpo", task__name="search", task__options={"failures": 0.3}, **written_episodes)
    assert {rollout.shaped["deepresearcher"] for rollout in trained.rollouts} == {-1, 1}
    assert [step["deepresearcher/broken"] for step in trained.steps] == [0.5, 0.5]
