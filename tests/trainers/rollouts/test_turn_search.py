"""Search over turns: the order of expansion, hand-worked visits and means, and that what is returned is of the tree, whatever the values."""

import math
import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.rollouts.test_rollout_moves import assert_each_token_is_trained_once, roots
from trainers.rollouts.compile import compile_rows
from trainers.rollouts.search import search_trees
from trainers.rollouts.search_strategies import Beam, BestFirst, Mcts, compute_puct
from trainers.rollouts.search_tree import list_step_nodes
from trainers.rollouts.tree import Episode
from trainers.tasks.base import Example


class Written:
    """A world of given words: which steps a path allows, which of them end the episode, and what each path is worth. Counts what is asked of it."""

    def __init__(self, steps, values, ends=(), priors=None):
        self.steps, self.values, self.ends, self.priors = steps, values, ends, priors or {}
        self.expanded, self.batches = [], []

    def root(self):
        return Episode(Example([], "")).add(None, "prompt", state="")

    def expand(self, nodes):
        self.batches.append(len(nodes))
        self.expanded += nodes
        return [[self.write(node, step) for step in self.steps(node.state)] for node in nodes]

    def write(self, node, step):
        path = node.state + step
        made = node.episode.add(node, "policy", state=path, ids=[len(node.episode.nodes)], trained=True, closed=True)
        if path in self.ends:
            made.finish = "stop"
        else:
            made = node.episode.add(made, "world", state=path, ids=[0])
        if path in self.priors:
            made.notes["prior"] = self.priors[path]
        return made

    def value(self, nodes):
        return [self.values[node.state] if isinstance(self.values, dict) else self.values(node.state) for node in nodes]

    def search(self, how, **more):
        root = self.root()
        (tree,) = search_trees([root], how, self.expand, self.value, **more)
        return tree


def states(nodes):
    return [node.state for node in nodes]


def test_best_first_expands_in_order_of_value():
    values = {"a": 0.3, "b": 0.9, "aa": 0.1, "ab": 0.2, "ba": 0.25, "bb": 0.5, "bba": 0.0, "bbb": 0.0}
    world = Written(lambda path: "ab" if len(path) < 3 else "", values, ends={"bba", "bbb", "aa", "ab"})
    tree = world.search(BestFirst(nodes=4, depth=5))
    assert states(world.expanded) == ["", "b", "bb", "a"]
    assert tree.expanded == 4
    assert tree.best.state == "ab"  # of the ended ones the most valuable, the first of equals


def test_best_first_stops_at_the_goal_and_gives_up_the_rest():
    world = Written(lambda path: "ab", {"a": 0.2, "b": 0.9, "ba": 0.0, "bb": 0.0}, ends={"ba", "bb"})
    tree = world.search(BestFirst(nodes=50, depth=5), until=lambda node: node.state == "bb")
    assert (tree.goal, tree.best.state, tree.expanded) == (tree.best, "bb", 2)
    episode = tree.root.episode
    assert episode.leaves() == [tree.best]
    assert [node.state for node in episode.nodes if node.why] == ["a", "ba"]  # on the first node of what was given up
    assert {node.fate for node in episode.nodes if node.why} == {"abandoned"}


def test_a_beam_keeps_the_best_of_each_round():
    worth = {"a": 0.4, "b": 0.9, "c": 0.6}
    world = Written(lambda path: "abc", lambda path: sum(worth[step] for step in path))
    tree = world.search(Beam(width=2, nodes=50, depth=3))
    assert world.batches == [1, 2, 2]
    assert states(world.expanded) == ["", "b", "c", "bb", "bc"]
    assert tree.best.state == "bbb"
    assert len(tree.path(tree.best)) == 4


def test_a_beam_that_may_not_expand_all_expands_the_best():
    world = Written(lambda path: "abc", lambda path: -ord(path[-1]))
    assert states(world.search(Beam(width=3, nodes=3, depth=9)).steps) == ["", "a", "b"]


PRIORS = {"a": 0.6, "b": 0.4, "aa": 1.0, "ba": 1.0}
WORTH = {"": 0.5, "a": 0.2, "b": 0.8, "aa": 1.0, "ba": 0.0}


def grown(how):
    steps = {"": "ab", "a": "a", "b": "a"}
    world = Written(lambda path: steps.get(path, ""), WORTH, ends={"aa", "ba"}, priors=PRIORS)
    tree = world.search(how)
    return {node.state: (node.notes["visits"], node.notes["mean"]) for node in [tree.root, *tree.positions] if "visits" in node.notes}, tree


def test_visits_and_means_of_monte_carlo_tree_search_by_hand():
    """c = 1. Round 2: a has .6 against .4. Round 3: .2 + .6 sqrt(2) / 2 = .624 against .4 sqrt(2) = .566. Round 4: .6 + .6 sqrt(3) / 3 = .946 against
    .693. Round 5: .733 + .6 x 2 / 4 = 1.033 against .8."""
    found, tree = grown(Mcts(iterations=4, nodes=10, depth=5, exploration=1.0))
    assert found == {"": (4, pytest.approx(2.7 / 4)), "a": (3, pytest.approx(2.2 / 3)), "aa": (2, pytest.approx(1.0))}
    found, tree = grown(Mcts(iterations=5, nodes=10, depth=5, exploration=1.0))
    assert found == {"": (5, pytest.approx(3.7 / 5)), "a": (4, pytest.approx(3.2 / 4)), "aa": (3, pytest.approx(1.0))}
    assert tree.best.state == "aa"


def test_ends_that_are_valued_once_let_a_small_tree_be_searched_whole():
    found, tree = grown(Mcts(iterations=10, nodes=10, depth=5, exploration=1.0, once=True))
    assert found == {
        "": (5, pytest.approx(0.5)),  # .5, .2, 1, .8, 0
        "a": (2, pytest.approx(0.6)),
        "aa": (1, 1.0),
        "b": (2, pytest.approx(0.4)),
        "ba": (1, 0.0),
    }
    assert tree.rounds == 3
    assert tree.root in tree.closed


def test_the_formula_of_puct():
    assert compute_puct(0.2, 0.6, 2, 1, 1.0) == pytest.approx(0.2 + 0.6 * math.sqrt(2) / 2)
    assert compute_puct(0.0, 0.5, 16, 3, 1.5) == pytest.approx(0.75)


STRATEGIES = st.one_of(
    st.builds(BestFirst, st.integers(1, 12), st.integers(1, 5), st.integers(1, 3)),
    st.builds(Beam, st.integers(1, 3), st.integers(1, 12), st.integers(1, 5)),
    st.builds(Mcts, st.integers(1, 12), st.integers(1, 12), st.integers(1, 5), st.floats(0, 3), st.sampled_from([0.0, -1.0]), st.booleans()),
)


@given(STRATEGIES, st.integers(0, 10_000), st.integers(1, 3), st.sampled_from(["best", "all"]))
def test_whatever_the_values_the_path_is_of_the_tree_and_nothing_is_expanded_twice(how, seed, count, keep):
    def draw(path, salt):
        return random.Random(f"{seed}/{path}/{salt}").random()

    world = Written(lambda path: "abc"[: int(draw(path, "steps") * 4)], lambda path: draw(path, "worth") * 2 - 1, ends=Ends(draw))
    trees = search_trees([world.root() for _ in range(count)], how, world.expand, world.value, keep=keep)
    assert len(set(world.expanded)) == len(world.expanded) == sum(tree.expanded for tree in trees)
    for tree in trees:
        assert tree.expanded <= how.nodes
        path = tree.path(tree.best)
        assert path[0] is tree.root
        assert all(step in tree.steps[before] for before, step in pairwise(path))
        assert len(path) - 1 <= how.depth
        assert set(states(path)) <= {tree.best.state[:size] for size in range(len(tree.best.state) + 1)}
        episode = tree.root.episode
        assert tree.best.fate == "kept"
        if keep == "best":
            assert episode.leaves() == [tree.best]
        assert_each_token_is_trained_once(episode.nodes, compile_rows(episode))
        if isinstance(how, Mcts):
            for node, steps in tree.steps.items():
                assert node.notes["visits"] == 1 + sum(step.notes.get("visits", 0) for step in steps)


class Ends:
    """A third of the paths end the episode."""

    def __init__(self, draw):
        self.draw = draw

    def __contains__(self, path):
        return self.draw(path, "end") < 1 / 3


def test_two_searches_are_two_trees_of_one_batch():
    world = Written(lambda path: "ab", lambda path: -len(path))
    trees = search_trees([world.root(), world.root()], BestFirst(nodes=2, depth=3), world.expand, world.value)
    assert world.batches == [2, 2]
    assert [tree.expanded for tree in trees] == [2, 2]
    with pytest.raises(ValueError, match="once"):
        search_trees([trees[0].root] * 2, BestFirst(1, 1), world.expand, world.value)


def test_a_step_that_leads_nowhere_is_refused():
    world = Written(lambda path: "ab", lambda path: 0.0)
    with pytest.raises(ValueError, match="no new step"):
        search_trees([world.root()], BestFirst(1, 1), lambda nodes: [[node] for node in nodes], world.value)


@pytest.mark.parametrize("how", [BestFirst(6, 3), Beam(2, 6, 3), Mcts(6, 6, 3)])
def test_turns_of_a_policy_are_searched_the_same_way_under_a_seed(make_session, how):
    def run():
        session = make_session()
        calls = []
        play = session.engine.play
        session.engine.play = lambda at, **rest: calls.append(len(at)) or play(at, **rest)
        torch.manual_seed(3)
        trees = session.search(roots(session)[:4], how, 3, lambda nodes: [session.total(node) if node.finish else 0.5 for node in nodes])
        return session, trees, calls

    _, trees, calls = run()
    again = run()[1]
    for tree, other in zip(trees, again, strict=True):
        assert [(node.ids, node.notes) for node in tree.root.episode.nodes] == [(node.ids, node.notes) for node in other.root.episode.nodes]
        assert tree.root.episode.nodes.index(tree.best) == other.root.episode.nodes.index(other.best)
        assert tree.root.episode.leaves() == [tree.best]
        assert_each_token_is_trained_once(tree.root.episode.nodes, compile_rows(tree.root.episode))
        for node, steps in tree.steps.items():
            words = [list_step_nodes(node, step)[0].text for step in steps]
            assert len(set(words)) == len(words)
            assert sum(step.notes["prior"] for step in steps) == pytest.approx(1.0)
    assert len(calls) <= max(tree.rounds for tree in trees)
    assert calls[0] == 4 * 3


def test_a_full_context_has_no_steps(make_session):
    session = make_session(max_tokens=4)
    trees = session.search(roots(session)[:3], BestFirst(9, 9), 2, lambda nodes: [0.0] * len(nodes))
    assert all(tree.best.finish for tree in trees)


def test_the_whole_tree_can_stay_and_is_trained_once(make_session):
    session = make_session()
    torch.manual_seed(5)
    (tree,) = session.search(roots(session)[:1], Mcts(5, 5, 3), 4, lambda nodes: [0.0] * len(nodes), keep="all")
    episode = tree.root.episode
    assert set(episode.leaves()) == {node for node in tree.positions if not tree.steps.get(node)}
    assert_each_token_is_trained_once(episode.nodes, compile_rows(episode))
