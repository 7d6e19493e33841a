"""Accordion-Thinking: batches in turn, what ends a folded rollout, and advantages without a deviation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.reading_scripts import OPTIONS, READING, read_to_the_end, script_reading
from trainers.methods import folding
from trainers.methods.worlds.accordion_thinking import AccordionThinking, Config, choose_mode, decide_by_summary
from trainers.worlds.reader import Reader


def test_the_worked_example():
    method = AccordionThinking()
    batch = rollout_batch([1, 0, 1, 1], 4)
    batch.shaped = batch.reward
    assert method.advantages(batch, torch.zeros(4)).tolist() == [0.25, -0.75, 0.25, 0.25]
    decisions = [decide_by_summary(*turn, 16, segments, 6) for *turn, segments in ((True, 4, 1), (True, 17, 1), (True, 4, 6), (False, 40, 1))]
    assert decisions == ["fold", "end", "end", "stay"]


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), st.integers(1, 3))
def test_advantages_of_a_group_add_up_to_nothing(rewards, groups):
    batch = rollout_batch(rewards * groups, 4)
    batch.shaped = batch.reward
    made = AccordionThinking().advantages(batch, torch.zeros(4 * groups))
    assert made.view(groups, 4).sum(1).abs().max() < 1e-6
    assert made.abs().max() < 1


def test_the_reward_is_a_right_answer_and_nothing_else():
    batch = rollout_batch([1, 0], 2)
    batch.rewards = torch.tensor([[1.0, 0.5], [0.0, 1.0]])
    assert AccordionThinking().rewards(batch, torch.tensor([1.3, 0.3])).tolist() == [1, 0]


def test_batches_are_folded_in_turn_and_a_resumed_run_knows_which_is_next(make_session, monkeypatch):
    script_reading(monkeypatch, read_to_the_end)
    session, method = make_session(Reader(OPTIONS), max_tokens=600), AccordionThinking(Config(summary=200))
    kinds = []
    for _ in range(3):
        made = method.rollout(session)
        kinds.append({folding.count_contexts(episode.leaves()[0]) for episode in made})
        kept, method = method.state(), AccordionThinking(Config(summary=200))
        method.restore(kept)
    assert kinds == [{1}, {4}, {1}]
    assert [choose_mode(mode, count) for mode in ("folded", "unfolded") for count in range(3)] == [True] * 3 + [False] * 3


def test_unfolded_it_is_what_is_sampled_today(make_session, monkeypatch):
    script_reading(monkeypatch, read_to_the_end)
    session = make_session(Reader(OPTIONS), max_tokens=600)
    whole = session.complete()
    made = [session.compile(episode) for episode in AccordionThinking(Config(mode="unfolded")).rollout(session)]
    assert [(one.ids, one.mask, one.finish_reason) for one, _ in made] == [(one.ids, one.mask, one.finish_reason) for one in whole]


def test_a_long_summary_or_one_too_many_ends_the_rollout(make_session, monkeypatch):
    script_reading(monkeypatch, read_to_the_end)
    session = make_session(Reader(OPTIONS), max_tokens=600)
    for config, contexts in (({"summary": 1}, 1), ({"summary": 200, "segments": 2}, 2)):
        method = AccordionThinking(Config(mode="folded", **config))
        leaves = [episode.leaves()[0] for episode in method.rollout(session)]
        assert {(leaf.finish, folding.count_contexts(leaf)) for leaf in leaves} == {("length", contexts)}
        assert method.collect()["unfinished_folded"] == 1
    longest = AccordionThinking(Config(mode="folded", summary=200))
    longest.rollout(session)
    whole = AccordionThinking(Config(mode="unfolded"))
    whole.rollout(session)
    assert longest.collect()["longest_folded"] < whole.collect()["longest_unfolded"]


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    script_reading(monkeypatch, lambda place, asked: read_to_the_end(place, asked, ("<answer>Lima</answer>", "<answer>none</answer>")))
    trained = two_steps("accordion-thinking", {"summary": 200}, **READING)
    first, second = trained.steps
    assert "rollouts/rows" not in first
    assert second["rollouts/rows"] == 4
    assert second["accordion-thinking/longest_folded"] < first["accordion-thinking/longest_unfolded"]
    assert all(rollout.shaped["accordion-thinking"] == rollout.rewards["correct"] for rollout in trained.rollouts)
    for rollout in trained.rollouts:
        same = [other.rewards["correct"] for other in trained.rollouts if (other.step, other.group) == (rollout.step, rollout.group)]
        assert rollout.advantage == pytest.approx(rollout.rewards["correct"] - sum(same) / len(same), abs=1e-5)
