"""ASTRO: linearised trees, which prompts are trained on, and real steps of both stages."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.move_trees import every_move, make_tree  # noqa: F401
from trainers.contract.search_traces import linearise_paths
from trainers.methods.worlds.astro import Astro, Config
from trainers.worlds.base import replay_episode
from trainers.worlds.rewrites import Rewrites

WORLD = Rewrites({"undo": True})
QUESTION = "From 4 to 11 in 3 moves."
PATHS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=4)


def test_the_worked_example():
    assert linearise_paths(["ab", "ac"]) == ["a", "b", 1, "c"]
    assert linearise_paths(["ab", "cd", "ce"]) == ["a", "b", 0, "c", "d", 1, "e"]
    assert linearise_paths(["ab"]) == ["a", "b"]


@given(PATHS)
def test_a_trace_leads_along_each_path_and_ends_with_the_last(paths):
    at, seen = [], []
    for step in linearise_paths(paths):
        at = at[:step] if isinstance(step, int) else [*at, step]
        seen.append(list(at))
    assert at == paths[-1]
    assert all(path in seen for path in paths)


def grown():
    """4 to 11: two wrong ends after a common move, one at once, and the way."""
    return make_tree(WORLD, QUESTION, [["-1", "-1", "-1"], ["-1", "-1", "+3"], ["+3", "-1", "-1"], ["*2", "+3"]])


def test_a_trace_visits_the_likeliest_wrong_ends_and_goes_back_to_the_last_common_step():
    tree = grown()
    first, second, third, right = (node for node in tree.positions if not tree.steps.get(node))
    for node, prior in ((first, 0.9), (second, 0.1), (third, 0.5)):
        node.notes["prior"] = prior
    turns = Astro(Config(branches=1)).write_trace(tree, 8)
    assert turns == ["<move>-1</move>"] * 3 + ["<back>0</back>", "<move>*2</move>", "<move>+3</move>"]
    assert WORLD.rewards["correct"].function(WORLD.write_episode(tree.root.episode.example, turns), tree.root.episode.example) == 1
    second.notes["prior"] = 0.8
    turns = Astro(Config(branches=2)).write_trace(tree, 99)
    assert turns[3:6] == ["<back>2</back>", "<move>+3</move>", "<back>0</back>"]
    assert right.state["reached"]


@pytest.mark.parametrize("branches", [0, 1, 2, 3])
def test_a_trace_fits_into_the_turns_and_is_right(branches):
    tree = grown()
    turns = Astro(Config(branches=branches)).write_trace(tree, WORLD.max_turns)
    example = tree.root.episode.example
    replay = replay_episode(WORLD, example, WORLD.write_episode(example, turns))
    assert (replay.done, replay.rest, len(replay.turns)) == (True, "", len(turns))
    assert replay.state["reached"]
    assert len(turns) <= WORLD.max_turns
    assert any("back" in turn for turn in turns) == (branches > 0)


def test_without_a_right_end_there_is_no_trace():
    assert Astro().write_trace(make_tree(WORLD, QUESTION, [["-1", "-1", "-1"]]), 8) == []


@pytest.mark.parametrize(("tries", "kept"), [(4, [1, 2]), (0, [0, 1, 2, 3])])
def test_prompts_of_medium_pass_rate_are_kept(tries, kept):
    rates = [0.0, 0.25, 0.5, 1.0]
    session = SimpleNamespace(begin=lambda: [SimpleNamespace(root=rate) for rate in rates], success=lambda roots, count: roots)
    run = SimpleNamespace(attempt=SimpleNamespace(sampling_batch=9), session=lambda *_: session)
    assert Astro(Config(tries=tries)).choose_prompts([0, 1, 2, 3], run) == kept


def test_the_outcome_alone_pays_and_episodes_that_go_back_are_told_apart():
    method = Astro()
    batch = rollout_batch([1, 0, 1, 0], 4, texts=["<back>0</back>", "<back>0</back><back>1</back>", "", ""])
    assert method.rewards(batch, torch.zeros(4)).tolist() == [1, 0, 1, 0]
    method.observe(batch)
    assert method.collect() == {"backs": 0.75, "right_with_back": 0.5, "right_without": 0.5}


@pytest.mark.training
def test_two_supervised_steps_on_traces(two_steps, every_move):  # noqa: F811
    options = {**every_move, "task__options": {"undo": True}}
    config = {"iterations": 8, "continuations": 1, "branches": 1}
    trained = two_steps("astro", config, trainer="sft", training__demonstrations=8, **options)
    assert trained.steps[0]["astro/data_solved"] == 1.0
    assert 0 < trained.steps[0]["astro/data_backs"] <= 1


@pytest.mark.training
def test_two_real_steps_of_the_second_stage(two_steps, written_episodes):
    options = {**written_episodes, "task__options": {"undo": True}}
    trained = two_steps("astro", {"tries": 0}, base="grpo", task__name="rewrites", **options)
    assert {rollout.shaped["astro"] for rollout in trained.rollouts} == {0.0, 1.0}
