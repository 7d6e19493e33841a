"""GUI-Shepherd: what turns are paid, their advantages, the judge's rows, and the best of several actions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import script_nodes
from trainers.contract.arrays import unpack_array
from trainers.maths.credit import estimate_advantages, z_score_unmasked
from trainers.methods.room_steps import find_state_before
from trainers.methods.worlds.gui_shepherd import PRM, Config, GUIShepherd, list_moves, pay_turns
from trainers.worlds.room_moves import MOVES, choose_move, parse_verdict, write_step_question, write_verdict
from trainers.worlds.rooms import Rooms

ROOMS = {"policy": {"kind": "tiny", "cold_start": False}, "task__name": "rooms", "training__max_completion_length": 136, "training__prompts": 8}


def write_best(node):
    return f"<do>{choose_move(node.episode.example.data, node.state)}</do>"


def test_the_worked_example_of_the_card():
    rewards = torch.tensor([pay_turns([True, False, True], False, 1.0, 0.0, 1.0)])
    zeros, mask = torch.zeros(1, 3), torch.ones(1, 3)
    assert estimate_advantages(rewards, zeros, mask, 1.0, 1.0).tolist() == [[2, 1, 1]]
    assert estimate_advantages(rewards, zeros, mask, 0.9, 1.0)[0].tolist() == pytest.approx([1.81, 0.9, 1])
    assert pay_turns([True, False], True, 1.0, 1.0, 2.0) == [1.0, 1.0]


@given(st.lists(st.booleans(), max_size=6), st.booleans(), st.floats(0, 5))
def test_without_step_rewards_only_the_end_is_paid(verdicts, success, outcome):
    paid = pay_turns(verdicts, success, 0.0, 0.0, outcome)
    assert not any(paid[:-1])
    assert sum(paid) == pytest.approx(outcome * success * bool(verdicts))


@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=2, max_size=8))
def test_advantages_are_standardised_over_turns_alone(turns):
    values, mask = torch.tensor([[value for value, _ in turns]]), torch.tensor([[float(there) for _, there in turns]])
    made = z_score_unmasked(values, mask)
    assert torch.isfinite(made).all()
    assert not made[mask == 0].any()
    assert abs(float(made.sum())) < 1e-2
    own = values[mask > 0]
    assert bool(made.any()) == (len(own) > 1 and bool(own.max() > own.min()))


def test_going_to_and_fro_pays_as_published_and_nothing_where_bad_moves_cost():
    there_and_back = [False, True] * 3
    assert sum(pay_turns(there_and_back, False, 1.0, 0.0, 1.0)) == 3
    assert sum(pay_turns(there_and_back, False, 1.0, 1.0, 1.0)) == 0


@pytest.mark.parametrize("move", MOVES)
def test_the_rule_calls_one_move_good_and_says_why(move):
    data = {"rooms": 4, "at": 2, "key": 1, "door": 4}
    state = {"at": 2, "has_key": False}
    assert write_step_question(data, state, move) == f"You are in room 2 of 4. The key is in room 1. The door is in room 4. {move}?"
    assert write_verdict(data, state, move) == f"<think>left</think>{'+' if move == 'left' else '-'}"
    assert parse_verdict(write_verdict(data, state, move)) == (move == "left")
    assert choose_move(data, {"at": 1, "has_key": False}) == "take"
    assert choose_move(data, {"at": 4, "has_key": True}) == "open"
    assert parse_verdict("<think>left</think>") is parse_verdict("good") is None


def test_the_best_of_all_moves_is_the_shortest_way(make_session, monkeypatch):
    world, count = Rooms(), [0]

    def write(node):
        count[0] += 1
        return f"<do>{MOVES[count[0] % 4]}</do>"

    script_nodes(monkeypatch, write)
    session = make_session(world, max_tokens=600)
    method = GUIShepherd(Config(candidates=4))
    judged = []

    def judge(session, turns):
        judged.append(len(turns))
        return {id(turn): float(turn.facts["query"] == choose_move(turn.episode.example.data, find_state_before(turn))) for turn in turns}

    monkeypatch.setattr(method, "judge_turns", judge)
    leaves = method.play_verified(session, [episode.root for episode in session.begin()])
    assert all(session.outcome(leaf)["direct"] == 1 for leaf in leaves)
    assert judged[0] == 4 * len(leaves)
    for leaf in leaves:
        assert [move for _, move in list_moves(leaf)] == [turn.removeprefix("<do>").removesuffix("</do>") for turn in world.way(
            leaf.episode.example, world.begin(leaf.episode.example)
        )]  # fmt: skip


def test_equal_questions_are_asked_once(make_session, monkeypatch):
    script_nodes(
        monkeypatch, lambda node: write_verdict({"door": 1, "key": 1}, {"at": 2, "has_key": False}, "left") if node.seat == PRM else write_best(node)
    )
    session = make_session(Rooms(), max_tokens=600)
    session.run.keep_other(PRM, session.model)
    method = GUIShepherd(Config())
    leaves = session.play([episode.root for episode in session.begin()])
    turns = [turn[-1] for leaf in leaves for turn in leaf.episode.turns(leaf)]
    scores = method.judge_turns(session, turns)
    asked = sum(node.by == "prompt" and node.about is not None for leaf in leaves for node in leaf.episode.nodes)
    questions = {write_step_question(turn.episode.example.data, find_state_before(turn), turn.facts["query"]) for turn in turns}
    assert asked == len(questions) < len(turns)
    assert {turn.notes["P(+)"] for turn in turns} == set(scores.values())
    assert all(0 <= score <= 1 for score in scores.values())


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    """Half of a group walks out, half opens the door at once."""

    def write(node):
        if node.seat == PRM:
            return "<think>left</think>+"
        return write_best(node) if node.episode.member % 2 else "<do>open</do>"

    script_nodes(monkeypatch, write)
    config = {"labelled": 16, "judge_steps": 2, "probe": 4, "probe_every": 1, "candidates": 2, "wrong": 1.0}
    trained = two_steps("gui-shepherd", config, base="grpo", **ROOMS)
    for step in trained.steps:
        assert 0 <= step["gui-shepherd/judge_accuracy"] <= 1
        assert 0 <= step["gui-shepherd/best_of_n"] <= 1
    for rollout in trained.rollouts:
        values = unpack_array(rollout.token_advantages)
        for turn in rollout.turns:
            own = set(values[turn.start : turn.end].tolist())
            assert len(own) == 1
            assert turn.role == "assistant" or own == {0.0}
        assert any("P(+)" in node.notes for node in rollout.nodes)
    assert any(unpack_array(rollout.token_advantages).any() for rollout in trained.rollouts)
