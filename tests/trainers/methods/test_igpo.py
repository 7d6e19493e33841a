"""IGPO: gains of turns, their returns, and the belief that they are read from."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import WORLD, script_turns
from trainers.contract.arrays import unpack_array
from trainers.methods.worlds.igpo import GAINS, IGPO, Config, compute_gain_returns, discount_outcomes, measure_gains

GAIN_LISTS = st.lists(st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), max_size=4), min_size=1, max_size=6)


def make_method(session, **config):
    method = IGPO(Config(**config))
    method.prepare(session.run)
    return method


def test_the_worked_example():
    returns = compute_gain_returns([[0.2, 0.1], [-0.1, 0.4]], ["a", "a"], 1.0)
    # z of the gains, population: [.277, -.277], [-1.387, 1.387]; with the outcomes' 1 and -1 the returns of the card
    assert (returns[0] + 1).tolist() == pytest.approx([1.0, 0.723], abs=1e-3)
    assert (returns[1] - 1).tolist() == pytest.approx([-1.0, 0.387], abs=1e-3)
    assert measure_gains([math.log(0.1), math.log(0.4), math.log(0.3)], "probability") == pytest.approx([0.3, -0.1])
    assert measure_gains([-2.0, -1.5], "log") == [0.5]


@given(GAIN_LISTS, st.floats(0.1, 1))
def test_what_a_turn_adds_is_standardised_in_its_group(gains, gamma):
    returns = compute_gain_returns(gains, ["a"] * len(gains), gamma)
    later = torch.nn.functional.pad(returns[:, 1:], (0, 1))
    own = torch.cat([(returns - gamma * later)[row, : len(one)] for row, one in enumerate(gains)])
    assert torch.isfinite(returns).all()
    assert own.sum().abs() < 1e-3
    flat = [value for one in gains for value in one]
    if len(set(flat)) < 2:
        assert not returns.any()
    for row, one in enumerate(gains):
        assert not returns[row, len(one) :].any()


def test_outcomes_far_away_count_less():
    turns = torch.tensor([[0, 0, -1, 1], [0, -1, -1, -1]])
    made = discount_outcomes(torch.ones(2, 4), turns, 0.5)
    assert made[0, [0, 1, 3]].tolist() == [0.5, 0.5, 1]
    assert made[1, 0] == 1
    assert torch.equal(discount_outcomes(torch.ones(2, 4), turns, 1.0), torch.ones(2, 4))


def test_the_belief_is_the_probability_of_the_gold_answer_there(make_session):
    session = make_session()
    torch.manual_seed(2)
    made = make_method(session).rollout(session)
    one = next(one for one in made if len(one.turns) > 2)
    tokenizer = session.run.tokenizer
    head, gold = tokenizer.encode("<answer>"), tokenizer.encode(one.row.episode.example.reference)
    beliefs = []
    for place in (0, *[turn.end for turn in one.turns if turn.role == "tool"]):
        logprobs, _ = session.run.logprobs([[*one.prompt_ids, *one.ids[:place]]], [[*head, *gold]], model=session.model)
        beliefs.append(float(logprobs[0, len(head) :].detach().mean()))
    assert one.notes[GAINS] == pytest.approx(measure_gains(beliefs, "probability"), abs=1e-5)
    assert [node.notes["gain"] for node in one.row.episode.path(one.row.leaf) if "gain" in node.notes] == one.notes[GAINS]


def test_episodes_are_those_of_the_base(make_session):
    session = make_session()
    torch.manual_seed(0)
    whole = session.complete()
    torch.manual_seed(0)
    made = make_method(session).rollout(session)
    assert [(one.ids, one.mask, one.logprobs, one.finish_reason) for one in made] == [
        (one.ids, one.mask, one.logprobs, one.finish_reason) for one in whole
    ]
    assert all(len(one.notes[GAINS]) == sum(turn.role == "tool" for turn in one.turns) for one in made)


@pytest.mark.training
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_two_real_steps(two_steps, monkeypatch, weight):
    """All answers are wrong: the outcome tells nothing, the searches do."""
    script_turns(monkeypatch, lambda number, text: "<answer>none</answer>" if text else f"<search>{('Eva', 'Leo')[number % 2]}'s boss</search>")
    trained = two_steps("igpo", {"weight": weight}, base="grpo", **WORLD)
    for step in trained.steps:
        assert step["igpo/silent_by_outcome"] == 1
        assert step["igpo/silent"] == (weight == 0)
    for rollout in trained.rollouts:
        first, world, last = rollout.turns
        values = unpack_array(rollout.token_advantages)
        assert len({*values[first.start : first.end].tolist()}) == 1
        assert not values[world.start : world.end].any()
        assert not values[last.start : last.end].any()  # it has the outcome alone
        assert any("gain" in node.notes for node in rollout.nodes)
    moved = [unpack_array(rollout.token_advantages).any() for rollout in trained.rollouts]
    assert all(moved) == any(moved) == (weight > 0)
