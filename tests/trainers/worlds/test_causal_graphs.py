"""The world ``causal_graphs``: what fits, what a cycle costs, and that every graph of the best class is right."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.tasks.base import Example
from trainers.worlds.causal_graphs import CausalGraphs, fill_matrix, parse_graph, write_graph
from trainers.worlds.causal_scores import compute_correlations, find_best_graph, list_acyclic_graphs, measure_cycles, score_graph

CHAIN = Example([], "A>B B>C", {"count": 3, "told": [[0, 1, 80], [0, 2, 64], [1, 2, 80]]})
COLLIDER = Example([], "A>B C>B", {"count": 3, "told": [[0, 1, 60], [0, 2, 0], [1, 2, 60]]})


def scores(text, example=CHAIN):
    return [reward.function(text, example) for reward in CausalGraphs().rewards.values()]


def test_the_worked_example_of_cycles():
    assert measure_cycles([(0, 1), (1, 0)], 2) == pytest.approx(1.0862, abs=1e-4)  # 2 cosh(1) - 2
    assert measure_cycles([(0, 1)], 2) == 0


def test_correlations_are_those_of_weighted_sums():
    found = compute_correlations(3, ((0, 1, 1.0), (1, 2, 1.0)))
    assert found == pytest.approx({(0, 1): (1 / 2) ** 0.5, (0, 2): (1 / 3) ** 0.5, (1, 2): (2 / 3) ** 0.5})


def test_there_are_25_and_543_graphs_without_a_cycle():
    assert [len(list_acyclic_graphs(count)) for count in (0, 1, 2, 3, 4)] == [1, 1, 3, 25, 543]


@pytest.mark.parametrize("graph", ["A>B B>C", "B>C A>B", "B>A B>C", "C>B B>A"])
def test_every_graph_that_no_correlations_can_tell_apart_is_right(graph):
    assert scores(f"<answer>{graph}</answer>") == [1, 1, 1, 1]


def test_what_other_answers_earn():
    assert scores("<answer>none</answer>") == [0, 0, 1, 1]
    correct, fit, acyclic, form = scores("<answer>A>B A>C B>C</answer>")
    assert (correct, acyclic, form) == (0, 1, 1)
    assert 0.9 < fit < 1  # it fits no better and has an arrow more
    correct, fit, acyclic, form = scores("<answer>A>B B>A B>C C>B</answer>")
    assert (correct, fit, form) == (0, 1, 1)  # fitted variable by variable, a cycle fits best
    assert acyclic == pytest.approx(1 / (1 + measure_cycles([(0, 1), (1, 0), (1, 2), (2, 1)], 3)))
    assert scores("<answer>A>B A>B</answer>") == scores("<answer>A>D</answer>") == scores("A>B B>C") == [0, 0, 0, 0]
    assert CausalGraphs().step(CHAIN, {"answer": None, "errors": 0}, "policy", "<answer>C>B B>A</answer>", None).reward == 1


def test_two_causes_of_one_effect_are_told_from_a_chain():
    assert scores("<answer>C>B A>B</answer>", COLLIDER)[0] == 1
    assert scores("<answer>A>B B>C</answer>", COLLIDER)[0] == 0


@given(st.lists(st.sampled_from(list(itertools.permutations(range(4), 2))), unique=True))
def test_graphs_are_read_as_they_are_written(arrows):
    assert sorted(parse_graph(write_graph(arrows), 4)) == sorted(arrows)


@given(st.tuples(*[st.integers(-60, 60)] * 3))
def test_no_graph_without_a_cycle_is_better_than_the_best(told):
    matrix = fill_matrix(3, [[0, 1, told[0]], [0, 2, told[1]], [1, 2, told[2]]])
    best = score_graph(matrix, find_best_graph(matrix))
    assert all(score_graph(matrix, graph) >= best - 1e-8 for graph in list_acyclic_graphs(3))


def test_the_same_prompt_has_the_same_answer_wherever_it_is_drawn():
    world = CausalGraphs()
    drawn = {one.prompt[0].content: one.data for one in world.examples("train", 200, 0, "easy")}
    assert not set(drawn) & {one.prompt[0].content for one in world.examples("heldout", 50, 0, "easy")}
