"""ReWatch-R1: what true and sufficient notes are paid, how notes are checked, and that nothing of it is paid for a wrong answer."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.reading_scripts import OPTIONS, READING, script_reading
from trainers.methods.worlds.rewatch_r1 import SECOND, Config, ReWatchR1, check_observations, is_supported, list_claims, reward_observations
from trainers.worlds.base import replay_episode
from trainers.worlds.facts import ATTRIBUTES
from trainers.worlds.reader import END, Reader

WEIGHTS = (1.0, 1.0, 0.1)
SHARES = st.floats(0, 1, width=32)
LINES = [["city", "Rome"], ["pet", "owl"]]


def pay(right, true, enough, form=1.0, gate=True, weights=WEIGHTS):
    return reward_observations(*(torch.tensor(float(one)) for one in (right, true, enough, form)), weights, gate).item()


def test_the_worked_example():
    assert pay(1, 2 / 3, 1) == pytest.approx(2.7667, abs=1e-4)
    assert pay(0, 2 / 3, 1) == pytest.approx(0.1)
    assert pay(0, 2 / 3, 1, gate=False) == pytest.approx(1.7667, abs=1e-4)


@given(st.booleans(), SHARES, st.booleans(), st.booleans())
def test_only_right_answers_are_paid_for_their_notes(right, true, enough, form):
    paid = pay(right, true, enough, form)
    assert paid == pytest.approx(pay(right, true, enough, form, gate=False) if right else 0.1 * form, abs=1e-6)
    assert pay(right, 0, 0, form) <= paid + 1e-6 <= 3.1 + 2e-6
    assert pay(right, true, enough, form, weights=(0.0, 0.0, 0.0)) == right


@pytest.mark.parametrize(
    ("note", "claims", "supported"),
    [
        ("city Rome", [("city", "rome")], True),
        ("The city is Rome.", [("city", "rome")], True),
        ("Rome", [("city", "rome")], True),
        ("city Rome pet owl", [("city", "rome"), ("pet", "owl")], True),
        ("city Rome pet dog", [("city", "rome"), ("pet", "dog")], False),
        ("pet Rome", [("pet", "rome")], False),
        ("city", [], True),
        ("", [], True),
    ],
)
def test_what_a_note_claims_and_whether_it_was_said(note, claims, supported):
    assert list_claims(note) == claims
    assert is_supported(note, LINES) == supported


@given(st.lists(st.sampled_from([*ATTRIBUTES, "Rome", "owl", "dog", "x"]), max_size=6).map(" ".join), st.integers(0, 2))
def test_more_text_supports_no_fewer_notes(note, count):
    assert is_supported(note, LINES) or not is_supported(note, LINES[:count])


def write_false_value(topic, said):
    return next(value for value in ATTRIBUTES[topic] if value not in said)


def test_a_note_is_checked_against_what_was_read_until_then():
    world = Reader({"chunks": 3})
    for example in world.examples("train", 20, 0, "medium"):
        target, lines = example.data["target"], example.data["lines"]
        replay = replay_episode(world, example, world.gold(example))
        assert all(check_observations(replay, example))
        assert check_observations(replay, example)  # the last note names the answer
        said = [value for chunk in lines for topic, value in chunk if topic == target]
        early = [value for topic, value in lines[1] if topic == target and value not in [one for _, one in lines[0]]]
        notes = [f"{target} {early[0] if early else write_false_value(target, said)}", target, f"{target} {said[-1]}"]
        text = world.write_episode(example, [*(f"<memory>{note}</memory>" for note in notes), f"<answer>{said[-1]}</answer>"])
        assert check_observations(replay_episode(world, example, text), example) == [False, True]


def read_target(asked):
    """What is asked for, and what the text has said of it so far."""
    topic = re.search(r"'s (\w+) in the end", asked)[1]
    return topic, re.findall(rf"The {topic} is (\w+)\.", asked)


def write_turn(place, asked):
    """Of every two members the first notes what it reads and the second something else; both answer from the text, or from the memory alone."""
    topic, said = read_target(asked)
    if asked.endswith("<answer>"):
        noted = re.search(rf"<memory>{topic} (\w+)</memory>", asked)
        return f"{noted[1] if noted else 'none'}</answer>"
    if END in asked:
        return f"<answer>{said[-1]}</answer>"
    return f"<memory>{topic} {write_false_value(topic, said) if place % 2 else ' '.join(said[-1:])}</memory>"


def test_the_second_answer_sees_the_memory_and_not_the_text(make_session, monkeypatch):
    script_reading(monkeypatch, write_turn)
    session, method = make_session(Reader(OPTIONS), max_tokens=600), ReWatchR1()
    method.prepare(session.run)
    made = method.rollout(session)
    assert [one.notes[SECOND] for one in made] == [1.0, 0.0] * 4
    for one in made:
        tree = one.row.episode
        (answer,) = tree.side_leaves()
        prompt = tree.path(answer)[0]
        assert f"<memory>{one.row.leaf.state['memory']}</memory>" in prompt.text
        assert "Part" not in prompt.text
        assert "The " not in prompt.text
        assert tree.leaves() == [one.row.leaf]
    batch = rollout_batch([1.0] * 8, 4, texts=[one.text for one in made], examples=session.examples, notes=[one.notes for one in made])
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx([3.1, 1.1] * 4)
    logged = method.collect()
    assert (logged["right"], logged["enough"], logged["right_and_enough"]) == (1, 0.5, 0.5)
    assert 0.5 <= logged["unsupported"] < 1
    stored = rollout_batch([1.0] * 8, 4, texts=[one.text for one in made], examples=session.examples)
    assert torch.equal(method.rewards(stored, stored.reward), stored.reward)
    method.config = Config(observations=0.0, reasoning=0.0, form=0.0)
    assert torch.equal(method.rewards(batch, batch.reward), batch.reward)


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    script_reading(monkeypatch, write_turn)
    trained = two_steps("rewatch-r1", **{**READING, "base": "grpo"})
    for rollout in trained.rollouts:
        assert rollout.shaped["rewatch-r1"] == pytest.approx(1.1 if rollout.sample % 2 else 3.1)
        (aside,) = [node for node in rollout.nodes if node.seat == "verifier" and node.by == "policy"]
        assert aside.notes["right"] == 1 - rollout.sample % 2
    assert all(step["rewatch-r1/right"] == 1 for step in trained.steps)
