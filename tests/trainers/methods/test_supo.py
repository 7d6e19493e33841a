"""SUPO: when a context is summed up, which rollouts are overlong, and one advantage for all segments."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.reading_scripts import OPTIONS, READING, read_to_the_end, script_reading
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.methods import folding
from trainers.methods.worlds.supo import OVERLONG, SUPO, Config, decide_by_length, is_overlong
from trainers.worlds.reader import Reader


def roll_out(session, **config):
    method = SUPO(Config(**config))
    return method, method.rollout(session)


def test_the_worked_example():
    decisions = [decide_by_length(tokens, 80, contexts, 2) for tokens, contexts in ((80, 1), (81, 1), (90, 2), (90, 3), (70, 3))]
    assert decisions == ["stay", "fold", "fold", "end", "stay"]


@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(16, 150), st.integers(1, 4))
def test_no_rollout_has_more_summaries_than_it_may(lengths, limit, summaries):
    contexts = 1
    for tokens in lengths:
        decision = decide_by_length(tokens, limit, contexts, summaries)
        assert (decision == "stay") == (tokens <= limit)
        if decision == "end":
            assert contexts == summaries + 1
            return
        contexts += decision == "fold"
    assert contexts <= summaries + 1


def test_overlong_rollouts_are_out_of_the_loss_and_in_the_mean():
    method = SUPO()
    batch = rollout_batch([1, 0, 1, 0], 4, notes=[{OVERLONG: False}, {OVERLONG: False}, {OVERLONG: False}, {OVERLONG: True}])
    assert method.advantages(batch, torch.ones(4)).tolist() == [1, 1, 1, 0]
    assert batch.left_out.tolist() == [False, False, False, True]
    plain = rollout_batch([1, 0], 2)
    assert method.advantages(plain, torch.ones(2)).tolist() == [1, 1]


def test_with_room_enough_it_is_the_base(make_session, monkeypatch):
    script_reading(monkeypatch, read_to_the_end)
    session = make_session(Reader(OPTIONS), max_tokens=600)
    whole = session.complete()
    _, made = roll_out(session, context=1000)
    compiled = [session.compile(episode) for episode in made]
    assert [(one.ids, one.mask, one.finish_reason) for one, _ in compiled] == [(one.ids, one.mask, one.finish_reason) for one in whole]
    assert not any(further for _, further in compiled)


def test_a_full_context_is_summed_up_until_no_summary_is_left(make_session, monkeypatch):
    script_reading(monkeypatch, read_to_the_end)
    session = make_session(Reader(OPTIONS), max_tokens=600)
    whole = folding.measure_context(session.play([episode.root for episode in session.begin([0])])[0])
    method, made = roll_out(session, context=whole // 2, summaries=4)
    leaves = [episode.leaves()[0] for episode in made]
    assert all(folding.count_contexts(leaf) > 1 and leaf.finish == "stop" for leaf in leaves)
    assert not any(episode.notes[OVERLONG] for episode in made)
    assert method.collect()["contexts"] > 1
    method, made = roll_out(session, context=16, summaries=1)
    assert all(episode.notes[OVERLONG] and episode.leaves()[0].finish == "length" for episode in made)
    assert all(folding.count_contexts(episode.leaves()[0]) == 2 for episode in made)
    assert method.collect() == {"contexts": 2, "overlong": 1, "right": 0, "longest_context": pytest.approx(whole, abs=whole)}


def test_a_turn_that_cannot_be_read_is_wrong_and_not_overlong(make_session, monkeypatch):
    script_reading(monkeypatch, lambda place, asked: "<memory>city")
    _, made = roll_out(make_session(Reader(OPTIONS), max_tokens=600))
    assert not any(episode.notes[OVERLONG] for episode in made)
    script_reading(monkeypatch, lambda place, asked: "<memory>city</memory>")
    session = make_session(Reader(OPTIONS), max_tokens=600)
    assert all(is_overlong(episode.leaves()[0]) for episode in roll_out(session, context=1000)[1])  # it never answers


def test_it_needs_demonstrations_in_windows_and_a_loss_over_tokens(tmp_path):
    spec = make_spec(tmp_path, task={"name": "reader"}, base={"name": "grpo"}, methods=[{"name": "supo"}])
    found = stacking.check_stack(spec, entries_for(spec)).problems
    assert {problem.field for problem in found} >= {"task.options.windows"}
    assert any("dapo or cispo" in problem.message for problem in found)


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    """Of each group one member answers before it has read all, and each has the advantage of its outcome in all segments."""
    script_reading(monkeypatch, lambda place, asked: read_to_the_end(place, asked, ("<answer>Lima</answer>", "<answer>none</answer>", "none")))
    trained = two_steps("supo", {"context": 60, "summaries": 4}, **READING)
    for step in trained.steps:
        assert step["supo/contexts"] == step["rollouts/rows"] > 1
        assert step["supo/overlong"] == 0
    assert all(rollout.finish_reason == "stop" for rollout in trained.rollouts)
