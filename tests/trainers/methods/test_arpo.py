"""ARPO: where rollouts fork, what branches share, and the credit of what they share."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import WORLD, script_turns
from trainers.maths.credit import average_nodes
from trainers.methods.worlds.arpo import ARPO, Config, compute_fork_probability, measure_entropy, split_groups


def make_method(session, **config):
    method = ARPO(Config(**config))
    method.prepare(session.run)
    return method


def test_the_worked_example():
    assert [compute_fork_probability(rise, 0.5, 0.2) for rise in (0.3, -0.5, 3, -9)] == pytest.approx([0.56, 0.4, 1, 0])
    assert measure_entropy([math.log(8), math.log(2), 5.0], 2, 16) == pytest.approx(1)
    leaves = torch.tensor([1.0, -1.0])
    assert average_nodes(leaves, torch.tensor([[0, 0, 1], [0, 0, 2]])).tolist() == [[0, 0, 1], [0, 0, -1]]


@given(st.floats(-5, 5), st.floats(0, 1), st.floats(0, 5))
def test_a_fork_is_a_probability_that_rises_with_the_entropy(rise, base, weight):
    chance = compute_fork_probability(rise, base, weight)
    assert 0 <= chance <= 1
    assert compute_fork_probability(rise + 0.1, base, weight) >= chance
    assert compute_fork_probability(0.0, base, weight) == base


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 8))
def test_groups_hold_every_row_once_wherever_a_process_begins(rows, first, size):
    groups = split_groups(rows, first, size)
    assert [group.start for group in groups] == [sum(other.size for other in groups[:place]) for place in range(len(groups))]
    assert sum(group.size for group in groups) == rows
    assert all(group.size <= size for group in groups)


def test_without_branches_it_is_what_is_sampled_today(make_session):
    session = make_session()
    torch.manual_seed(0)
    whole = session.complete()
    torch.manual_seed(0)
    assert make_method(session, initial=4).rollout(session) == whole


def test_branches_share_what_came_before_and_are_written_anew(make_session):
    session = make_session()
    torch.manual_seed(1)
    method = make_method(session, initial=1, base=1.0)
    made = method.rollout(session)
    assert len(made) == len(session.examples)
    assert [one.row.episode.group for one in made] == [0] * 4 + [1] * 4
    assert [one.row.episode.example for one in made] == session.examples
    trees = dict.fromkeys(one.row.episode for one in made)
    forks = [node for tree in trees for node in tree.nodes if node.why.startswith("entropy")]
    assert forks
    for node in forks:
        assert node.episode.parent(node).by == "world"
    shared = [(one, other) for one in made for other in made if one is not other and one.row.episode is other.row.episode]
    assert shared
    for one, other in shared:
        common = set(one.row.nodes) & set(other.row.nodes)
        assert common  # at least the first turn and its answer
        places = [place for place, number in enumerate(one.row.nodes) if number in common]
        assert [one.ids[place] for place in places] == other.ids[: len(places)]
        assert [one.logprobs[place] for place in places] == other.logprobs[: len(places)]
    for one in made:
        trained = [turn.role == "assistant" for turn in one.turns for _ in range(turn.start, turn.end)]
        assert one.mask == [int(was) for was in trained]  # with each leaf all that the policy wrote on the way to it
    logged = method.collect()
    assert 0 < logged["branches"] == len(forks) / len(made)
    assert logged["calls"] < logged["calls_alone"]


def test_it_forks_where_the_entropy_has_risen(make_session, monkeypatch):
    """After the answer of a tool that does not help, the policy is uncertain; after one that does, it is not."""
    script_turns(
        monkeypatch,
        lambda number, text: "<answer>Paris</answer>" if text else f"<search>{('Eva', 'Leo')[number % 2]}'s boss</search>",
        lambda text: 1.0 if not text else 3.0 if "Eva's boss" in text else 0.2,
    )
    session = make_session()
    made = make_method(session, initial=2, base=0.0, weight=10.0).rollout(session)
    forked = [one.text for one in made if one.row.episode.path(one.row.leaf)[-1].why or len(one.row.episode.leaves()) > 1]
    assert forked
    assert all("Eva's boss" in text for text in forked)


def test_hard_credit_keeps_the_gradient_of_each_shared_turn():
    torch.manual_seed(0)
    nodes = torch.tensor([[0, 0, 1, 1], [0, 0, 2, -1], [0, 0, 2, 3], [4, 4, 4, -1]])
    advantages = torch.randn(4)
    soft = advantages[:, None] * (nodes >= 0)
    hard = average_nodes(advantages, nodes)
    for key in range(5):
        assert torch.allclose(hard[nodes == key].sum(), soft[nodes == key].sum(), atol=1e-6)
        assert len(hard[nodes == key].unique()) == 1


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    script_turns(monkeypatch, lambda number, text: "<answer>Rome</answer>" if text else f"<search>{('Eva', 'Leo')[number % 2]}'s boss</search>")
    trained = two_steps("arpo", {"initial": 2, "base": 1.0, "credit": "hard"}, base="grpo", **WORLD)
    assert all(step["arpo/branches"] == pytest.approx(0.5) for step in trained.steps)
    assert all(step["arpo/calls"] == pytest.approx(0.5) for step in trained.steps)
    for rollout in trained.rollouts:
        assert [node.by for node in rollout.nodes[:4]] == ["prompt", "policy", "world", "policy"]
