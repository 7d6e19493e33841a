"""MRT: progress of turns, and the answers that are forced for it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import WORLD, script_turns
from trainers.contract.arrays import unpack_array
from trainers.methods.worlds.mrt import MRT, PROGRESS, Config, measure_progress, measure_regret

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def make_method(session, **config):
    method = MRT(Config(**config))
    method.prepare(session.run)
    return method


def test_the_worked_example():
    assert measure_progress([0.2, 0.5, 0.45], 0.8) == pytest.approx([0.3, -0.05, 0.35])
    assert measure_regret([0.2, 0.5, 0.45, 0.8]) == pytest.approx(2.05)
    assert [measure_progress([0.25], outcome)[0] for outcome in (1, 1, 0, 1)] == [0.75, 0.75, -0.25, 0.75]  # the termination baseline


@given(SHARES, st.floats(0, 1))
def test_the_progress_of_all_turns_is_what_the_episode_gained(values, outcome):
    progress = measure_progress(values, outcome)
    assert len(progress) == len(values)
    assert sum(progress) == pytest.approx(outcome - values[0])


def test_forced_answers_are_looked_at_and_given_up(make_session):
    session = make_session()
    torch.manual_seed(4)
    method = make_method(session, samples=3)
    made = method.rollout(session)
    for one in made:
        (leaf,) = one.row.episode.leaves()
        assert leaf is one.row.leaf
        turns = [turn for turn in one.turns if turn.role == "assistant"]
        assert len(one.notes[PROGRESS]) == len(turns)
        assert one.mask == [int(turn.role == "assistant") for turn in one.turns for _ in range(turn.start, turn.end)]
    forced = [node for one in made for node in one.row.episode.nodes if node.by == "forced"]
    assert forced
    assert {(node.text, node.fate, node.trained) for node in forced} == {("<answer>", "abandoned", False)}
    roots = {one.row.episode.root.notes["forced"] for one in made[:4]}
    assert len(roots) == 1  # asked once for a group


def test_a_useful_turn_makes_progress_and_a_useless_one_none(make_session, monkeypatch):
    """A policy that answers right once it has seen the evidence, and wrongly before."""
    session = make_session()
    world, example = session.run.task, session.examples[0]
    session.examples, session.prompts = [example] * 2, [list(example.prompt)] * 2
    way = world.way(example, world.begin(example))
    told = world.tell_turns(example, way)[-2].text  # what the last search finds

    def write(number, text):
        if text.endswith("<answer>"):
            return f"{example.reference if told in text else 'none'}</answer>"
        place = text.count("</search>")
        turns = [*way[:-1], "<search>zzz</search>", way[-1]]
        return turns[place]

    script_turns(monkeypatch, write)
    one, _ = make_method(session, samples=2).rollout(session)
    assert one.notes[PROGRESS] == [*[0.0] * (len(way) - 2), 1.0, 0.0, 0.0]


@pytest.mark.training
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_two_real_steps(two_steps, monkeypatch, alpha):
    def write(number, text):
        return "Rome</answer>" if text.endswith("<answer>") else "<answer>none</answer>" if text else "<search>Eva's boss</search>"

    script_turns(monkeypatch, write)
    trained = two_steps("mrt", {"alpha": alpha, "samples": 2}, base="grpo", **{**WORLD, "training__prompts": 2})
    for rollout in trained.rollouts:
        forced = [node.notes["forced"] for node in rollout.nodes if "forced" in node.notes]
        values = unpack_array(rollout.token_advantages)
        first, world, last = rollout.turns
        assert values[first.start] == pytest.approx(alpha * (forced[1] - forced[0]), abs=1e-3)
        assert not values[world.start : world.end].any()
        assert values[last.start] == pytest.approx(alpha * (0 - forced[1]), abs=1e-3)
