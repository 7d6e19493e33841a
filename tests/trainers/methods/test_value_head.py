"""The value head: where it reads, what it learns, and that it leaves the policy alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.methods.value_head import ValueHead, explain_variance


def test_states_are_those_that_a_token_is_predicted_from(make_session):
    session = make_session()
    session.run.trained = session.model
    head = ValueHead(session.run, 1e-2, 1)
    prompts, completions = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13, 14]]
    found = head.read_states(prompts, completions, [[0, 1], [3]])
    alone = session.model(input_ids=torch.tensor([[5, 6, 7, 9]]), output_hidden_states=True).hidden_states[-1][0]
    other = session.model(input_ids=torch.tensor([[8, 11, 12, 13]]), output_hidden_states=True).hidden_states[-1][0]
    expected = torch.stack([alone[2], alone[3], other[3]])
    assert torch.allclose(found, expected, atol=1e-4)
    assert not head.estimate(found).any()  # before it has learned anything


def test_it_learns_targets_without_touching_the_policy(make_session):
    session = make_session()
    session.run.trained = session.model
    before = {name: value.clone() for name, value in session.model.named_parameters()}
    head = ValueHead(session.run, 1e-2, 200)
    states = torch.randn(32, session.model.config.hidden_size, generator=torch.Generator().manual_seed(0))
    targets = states[:, 0] * 2 + 1
    first = head.fit(states, targets)
    assert head.fit(states, targets) < 0.2 * first
    assert explain_variance(head.estimate(states), targets) > 0.8
    assert all(torch.equal(value, before[name]) for name, value in session.model.named_parameters())
    again = ValueHead(session.run, 1e-2, 200)
    again.restore(head.state())
    assert torch.equal(again.estimate(states), head.estimate(states))
    assert head.fit(states[:0], targets[:0]) == 0.0


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6))
def test_a_perfect_critic_explains_all_and_a_constant_one_nothing(targets):
    targets = torch.tensor(targets)
    spread = float(targets.var(correction=0)) > 1e-6
    if spread:
        assert explain_variance(targets, targets) == pytest.approx(1.0)
        assert explain_variance(torch.zeros_like(targets), targets) == pytest.approx(0.0, abs=1e-4)
    assert torch.isfinite(torch.tensor(explain_variance(torch.ones_like(targets), targets)))
