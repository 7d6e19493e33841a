"""x1: step advantages from values, which ends are members, what is resumed, and two real steps."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.move_trees import every_move, make_tree  # noqa: F401
from trainers.methods.worlds.rlm_blueprint_x1 import Config, RLMBlueprintX1, compute_step_advantages
from trainers.policies.value_head import ValueHead
from trainers.worlds.rewrites import Rewrites

WORLD = Rewrites()
QUESTION = "From 4 to 11 in 3 moves."


def test_the_worked_example():
    assert [compute_step_advantages([0.4], child)[0] for child in (0.7, 0.2)] == pytest.approx([0.3, -0.2])
    assert compute_step_advantages([0.4, 0.7], 1.0) == pytest.approx([0.3, 0.3])


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8), st.sampled_from([-1.0, 1.0]))
def test_the_advantages_of_a_path_sum_to_what_it_brought(values, outcome):
    found = compute_step_advantages(values, outcome)
    assert len(found) == len(values)
    assert sum(found) == pytest.approx(outcome - values[0])


def prepared(values):
    method = RLMBlueprintX1(Config())
    method.values = SimpleNamespace(head=None, estimate=lambda session, nodes: [values.get(node.state["moves"], 0.0) for node in nodes])
    return method


def session_of(played=()):
    return SimpleNamespace(is_right=lambda node: node.state["reached"], play=lambda nodes: [*played, *nodes][: len(nodes)])


def test_each_step_is_paid_by_the_values_around_it():
    tree = make_tree(WORLD, QUESTION, [["*2", "+3"], ["*2", "-1", "-1"]])
    leaves = [node for node in tree.positions if node.finish]
    method = prepared({0: 0.2, 1: 0.5, 2: -0.4})
    notes = method.pay_steps(session_of(), leaves)
    assert notes[0]["step_advantages"] == pytest.approx([0.3, 0.5])
    assert notes[1]["step_advantages"] == pytest.approx([0.3, -0.9, -0.6])
    errors = [(0.2 - 1) ** 2, (0.5 - 1) ** 2, 1.2**2, 1.5**2, 0.6**2]
    assert method.collect()["value_error"] == pytest.approx(sum(errors) / 5)


def test_members_are_the_ends_as_they_were_found_and_the_rest_is_given_up():
    tree = make_tree(WORLD, QUESTION, [["-1"], ["*2", "+3"], ["*2", "-1", "-1"], ["+3", "*2", "*2"]])
    ends = [node for node in tree.positions if node.finish]
    assert len(ends) == 3
    assert prepared({}).choose_members(session_of(), [tree], 2) == ends[:2]
    assert tree.root.episode.leaves() == ends[:2]
    assert ends[2].fate == "abandoned"


def test_where_ends_are_missing_the_most_visited_positions_go_on():
    tree = make_tree(WORLD, QUESTION, [["*2", "+3"], ["-1"], ["+3"]])
    end, once, often = (node for node in tree.positions if not tree.steps.get(node))
    once.notes["visits"], often.notes["visits"] = 1.0, 4.0
    asked = []
    session = SimpleNamespace(play=lambda nodes: asked.append(nodes) or nodes)
    members = prepared({}).choose_members(session, [tree], 4)
    assert asked == [[often, once, tree.root]]
    assert members[0] is end


@pytest.mark.parametrize("fitted", [False, True])
def test_the_head_is_resumed(fitted):
    made, resumed = RLMBlueprintX1(), RLMBlueprintX1()
    for method in (made, resumed):
        method.values, method.is_fitted = SimpleNamespace(head=ValueHead(6)), False
    torch.nn.init.normal_(made.values.head.out.weight, generator=torch.Generator().manual_seed(0))
    made.is_fitted = fitted
    resumed.restore(made.state())
    states = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    assert resumed.values.head.estimate(states) == made.values.head.estimate(states)
    assert resumed.is_fitted is fitted


@pytest.mark.training
def test_two_real_steps(two_steps, every_move):  # noqa: F811
    config = {"iterations": 4, "episodes": 1, "prompts": 4, "first_steps": 4, "head_steps": 4}
    trained = two_steps("rlm-blueprint-x1", config, base="dapo", training__max_completion_length=64, **every_move)
    assert len(trained.rollouts) == 16
    assert all(0 < step["rlm-blueprint-x1/value_error"] <= 4 for step in trained.steps)
    assert "rlm-blueprint-x1/first_error" in trained.steps[0]
    assert "rlm-blueprint-x1/first_error" not in trained.steps[1]
    assert {rollout.rewards["correct"] for rollout in trained.rollouts} == {0.0, 1.0}
