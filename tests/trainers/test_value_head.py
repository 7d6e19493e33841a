"""The value head: what it learns, that padding changes nothing, and that the policy stays as it is."""

import pytest
import torch

from tests.trainers.rollouts.conftest import make_session, scripted  # noqa: F401
from trainers.policies.value_head import ValueHead, build_value_head, fit_value_head, read_last_states


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_new_head_says_nothing_and_a_fitted_one_what_it_was_shown():
    head, states = ValueHead(8), torch.randn(400, 8, generator=seeded())
    assert head.estimate(states[:3]) == [0, 0, 0]
    targets = states[:, 0].sign()
    before = float((targets**2).mean())
    after = fit_value_head(head, states, targets, 200, 0.05, seeded())
    assert after < 0.5 * before
    assert all(-1 <= value <= 1 for value in head.estimate(states))
    assert (torch.tensor(head.estimate(states)).sign() == targets).float().mean() > 0.85


def test_it_learns_the_mean_of_what_one_state_led_to():
    head, states = ValueHead(4), torch.ones(4, 4)
    fit_value_head(head, states, torch.tensor([1.0, 1.0, 1.0, -1.0]), 400, 0.05, seeded())
    assert head.estimate(states[:1])[0] == pytest.approx(0.5, abs=0.02)


def test_the_same_draws_fit_the_same_head_and_none_changes_nothing():
    made = []
    for _ in range(2):
        head = ValueHead(4)
        fit_value_head(head, torch.randn(50, 4, generator=seeded()), torch.linspace(-1, 1, 50), 20, 0.01, seeded(3))
        made.append(head.state_dict())
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])
    assert fit_value_head(head, torch.zeros(0, 4), torch.zeros(0), 20, 0.01, seeded()) == 0
    assert all(torch.equal(made[0][name], value) for name, value in head.state_dict().items())


def test_states_are_those_of_the_last_token_whatever_stands_beside_them(make_session):  # noqa: F811
    session = make_session()
    torch.manual_seed(1)
    before = {name: value.clone() for name, value in session.model.state_dict().items()}
    leaves = session.play([episode.root for episode in session.begin()])
    together = read_last_states(session.run, leaves)
    alone = torch.cat([read_last_states(session.run, [leaf]) for leaf in leaves])
    assert len({len(leaf.episode.context_ids(leaf)[1]) for leaf in leaves}) > 1
    assert torch.allclose(together, alone, atol=1e-4)
    assert together.shape == (8, session.model.config.hidden_size)
    assert read_last_states(session.run, []).shape == (0, session.model.config.hidden_size)
    head = build_value_head(session.run)
    fit_value_head(head, together, torch.linspace(-1, 1, 8), 5, 0.01, seeded())
    assert all(torch.equal(before[name], value) for name, value in session.model.state_dict().items())
