"""OMAR: the card's two levels, roles compared with their own kind, and both seats in training."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import script_nodes
from trainers.contract.arrays import unpack_array
from trainers.maths.credit import estimate_token_advantages
from trainers.methods.worlds.omar import OMAR, SCORES, compare_scores, estimate_turns, list_roles, standardise_tokens
from trainers.worlds.bargain import PARTNER, Bargain, find_wanted, write_offer
from trainers.worlds.base import POLICY

BARGAIN = {"policy": {"kind": "tiny", "cold_start": False}, "task__name": "bargain", "training__max_completion_length": 48, "training__prompts": 8}
SCORE_LISTS = st.lists(st.floats(0, 1).map(lambda value: round(value, 2)), min_size=4, max_size=4)


def write_move(node):
    """Half of a group asks for its favourite, the others leave everything to the other side."""
    data = node.episode.example.data
    return write_offer(find_wanted(data, node.seat) if node.episode.member % 2 else [0, 0])


def test_the_worked_example_of_the_card():
    assert estimate_turns([1.0], [[0.5, 0.6]], 1.0, 0.95)[0] == pytest.approx([0.48, 0.4])
    values, turns = torch.tensor([[0.6, 0.65, 0.7]]), torch.zeros(1, 3, dtype=torch.long)
    made = estimate_token_advantages(torch.tensor([[0.4]]), values, turns, 1.0, 0.95)
    assert made[0].tolist() == pytest.approx([0.4585, 0.43, 0.4])


@given(SCORE_LISTS, SCORE_LISTS, st.sampled_from([1, 10, 100]))
def test_the_scale_of_a_role_changes_nothing_where_roles_are_compared_apart(mine, theirs, scale):
    scores = {(member, POLICY): value for member, value in enumerate(mine)} | {(member, PARTNER): value for member, value in enumerate(theirs)}
    scaled = {role: value * (scale if role[1] == PARTNER else 1) for role, value in scores.items()}
    apart, changed = compare_scores(scores, 4, True), compare_scores(scaled, 4, True)
    assert [changed[role] for role in scores] == pytest.approx([apart[role] for role in scores], abs=0.05)
    assert [apart[role] for role in scores if role[1] == POLICY] == [changed[role] for role in scores if role[1] == POLICY]


def test_compared_with_all_a_role_of_large_scores_always_looks_better():
    scores = {(member, seat): value for member in range(4) for seat, value in ((POLICY, 0.5 + member / 10), (PARTNER, 10.0 + member))}
    made = compare_scores(scores, 4, False)
    assert all(made[member, POLICY] < 0 < made[member, PARTNER] for member in range(4))


@given(st.lists(st.tuples(st.floats(-3, 3), st.sampled_from("ab")), min_size=2, max_size=6))
def test_tokens_are_standardised_within_their_key(rows):
    values = torch.tensor([[value, -value, 2.0] for value, _ in rows])
    mask = torch.tensor([[1.0, 1.0, 0.0]] * len(rows))
    keys = [key for _, key in rows]
    made = standardise_tokens(values, mask, keys)
    assert not made[:, 2].any()
    for key in set(keys):
        own = made[[place for place, one in enumerate(keys) if one == key]]
        assert abs(float(own.sum())) < 1e-2


def test_rows_of_a_role_are_its_turns_in_their_order():
    assert list_roles([0, 1, 0, 0], [POLICY, POLICY, PARTNER, POLICY]) == {(0, POLICY): [0, 3], (1, POLICY): [1], (0, PARTNER): [2]}


def test_both_seats_are_played_and_each_is_trained_on_its_own_turns(make_session, monkeypatch):
    script_nodes(monkeypatch, write_move)
    session = make_session(Bargain({"opened": 0.0}), max_tokens=200)
    method = OMAR()
    method.prepare(session.run)
    episodes = method.rollout(session)
    for episode in episodes:
        (leaf,) = episode.leaves()
        rows = [session.compile(episode)[0].row, *session.compile(episode)[1]]
        assert [row.seat for row in rows] == [turn[-1].seat for turn in episode.turns(leaf)]
        assert [row.seat for row in rows][:2] == [POLICY, PARTNER]
        assert all(sum(row.mask) == len(row.ids) for row in rows)
        assert episode.notes[SCORES][POLICY] == session.total(leaf)
    assert method.collect()["deals"] == 1 or any(episode.notes[SCORES][POLICY] == 0 for episode in episodes)


@pytest.mark.training
@pytest.mark.parametrize("credit", ["group", "two-level"])
def test_two_real_steps(two_steps, monkeypatch, credit):
    script_nodes(monkeypatch, write_move)
    trained = two_steps("omar", {"credit": credit, "value_passes": 2}, base="dapo", **BARGAIN)
    for step in trained.steps:
        assert step["rollouts/rows"] > 1
        assert 0 < step["omar/joint"] <= 1
        assert ("omar/explained/policy" in step) == (credit == "two-level")
    for rollout in trained.rollouts:
        assert len(set(unpack_array(rollout.token_advantages).tolist())) == 1 or credit == "two-level"
    assert any(unpack_array(rollout.token_advantages).any() for rollout in trained.rollouts)
