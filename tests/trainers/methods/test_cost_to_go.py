"""Cost to go: what the head is fitted to, how positions are ranked, that a good estimate saves expansions, and two real rounds."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.move_trees import every_move, make_tree, try_every_move  # noqa: F401
from trainers.methods.worlds.cost_to_go import Config, CostToGo, count_turns, measure_cost, read_cost, scale_cost
from trainers.policies.value_head import ValueHead
from trainers.rollouts.search import search_trees
from trainers.worlds.rewrites import Rewrites, find_way

WORLD = Rewrites()
QUESTION = "From 4 to 11 in 3 moves."


def test_the_worked_example():
    assert [scale_cost(cost, 8) for cost in (0, 2, 8, 9)] == [1, 0.5, -1, -1]
    assert read_cost(0.5, 8) == 2


@given(st.integers(1, 50), st.floats(0, 50))
def test_costs_come_back_and_fewer_turns_are_worth_more(most, cost):
    assert read_cost(scale_cost(cost, most), most) == pytest.approx(min(cost, most))
    assert scale_cost(cost, most) >= scale_cost(cost + 1, most)
    assert -1 <= scale_cost(cost, most) <= 1


def test_positions_are_fitted_to_the_turns_that_their_episode_still_took():
    tree = make_tree(WORLD, QUESTION, [["*2", "+3"], ["*2", "-1", "-1"]])
    session = SimpleNamespace(is_right=lambda node: node.state["reached"], run=SimpleNamespace(task=WORLD))
    right, wrong = (node for node in tree.positions if node.finish)
    assert [count_turns(node) for node in (tree.root, right, wrong)] == [0, 2, 3]
    assert [measure_cost(session, node, right) for node in tree.path(right)[:-1]] == [scale_cost(2, 8), scale_cost(1, 8)]
    assert {measure_cost(session, node, wrong) for node in tree.path(wrong)[:-1]} == {-1}


def estimate_exactly(nodes):
    """What a perfect head would say."""
    made = []
    for node in nodes:
        goal, left = node.episode.example.data["goal"], node.episode.example.data["moves"] - node.state["moves"]
        way = find_way(node.state["number"], goal, left)
        made.append(-1.0 if way is None else scale_cost(len(way), WORLD.max_turns))
    return made


def solve(weight, nodes=200):
    """Hard problems with every rule tried at every position."""
    from tests.trainers.methods.test_dsp_plus import session_of
    from trainers.policies import tiny
    from trainers.rollouts.engine import Engine

    family = tiny.find_family(WORLD)
    tokenizer = tiny.build_tokenizer(family.texts, family.tags)
    run = SimpleNamespace(task=WORLD, tokenizer=tokenizer, prompt_ids=lambda prompts: [tokenizer.encode(prompts[0][-1].content)])
    engine = Engine(run, None, 1.0, 200, 8)
    session = session_of(engine, WORLD.examples("train", 8, 0, "hard"))
    session.play = lambda nodes: nodes
    session.search = lambda roots, how, count, value, until: search_trees(roots, how, lambda at: try_every_move(engine, at), value, until)
    method = CostToGo(Config(weight=weight, nodes=nodes))
    method.run, method.is_fitted = run, True
    method.values = SimpleNamespace(estimate_open=estimate_exactly)
    leaves = method.rollout(session)
    return leaves, method.collect()


def test_a_perfect_estimate_expands_the_shortest_way_alone():
    leaves, logged = solve(1.0)
    ways = [find_way(leaf.episode.example.data["start"], leaf.episode.example.data["goal"], 8) for leaf in leaves]
    assert logged["right"] == 1
    assert [count_turns(leaf) for leaf in leaves] == [len(way) for way in ways]
    assert logged["expanded"] == pytest.approx(sum(map(len, ways)) / len(ways), abs=3)
    assert logged["expanded"] < 0.4 * solve(0.0)[1]["expanded"]


def test_without_weight_it_is_breadth_first_and_asks_no_head():
    method = CostToGo(Config(weight=0.0))
    method.run = SimpleNamespace(task=WORLD)
    tree = make_tree(WORLD, QUESTION, [["*2", "+3"], ["*2", "-1", "-1"]])
    assert method.rank_positions([tree.root, *tree.positions]) == [0, -1, -2, -2, -3]


def test_the_head_is_resumed():
    made, resumed = CostToGo(), CostToGo()
    for method in (made, resumed):
        method.values, method.is_fitted = SimpleNamespace(head=ValueHead(6)), False
    torch.nn.init.normal_(made.values.head.out.weight, generator=torch.Generator().manual_seed(0))
    made.is_fitted = True
    resumed.restore(made.state())
    states = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    assert resumed.values.head.estimate(states) == made.values.head.estimate(states)
    assert resumed.is_fitted


@pytest.mark.training
def test_two_real_rounds(two_steps, every_move):  # noqa: F811
    settings = {"training__max_completion_length": 64, "training__prompts": 8, "task": {"name": "rewrites", "difficulty": "easy"}}
    config = {"prompts": 4, "episodes": 1, "steps": 4, "nodes": 30}
    trained = two_steps("cost-to-go", config, trainer="procedure", policy=every_move["policy"], **settings)
    assert "cost-to-go/error" in trained.steps[0]
    assert "cost-to-go/error" not in trained.steps[1]
    assert all(step["cost-to-go/right"] == step["procedure/accuracy"] > 0 for step in trained.steps)
