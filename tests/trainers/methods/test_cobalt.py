"""Cobalt: what a program is paid after a history, which histories are kept, and that nothing but the new program is trained."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.turn_scripts import script_turns
from trainers.contract.events import Message
from trainers.methods.worlds.cobalt import (
    BEST,
    HISTORY,
    Cobalt,
    Config,
    add_history,
    choose_trajectories,
    compute_variance,
    cut_histories,
    grade_program,
    is_misleading,
)
from trainers.tasks.base import Example
from trainers.worlds.programs import Programs

RATES = st.lists(st.sampled_from([0.0, 0.2, 0.4, 0.6, 0.8, 1.0]), min_size=1, max_size=3)
CASES = [[[3, 1, 2], [2, 1, 3]], [[5, 0, 4], [4, 0, 5]], [[1, 2, 3], [3, 2, 1]], [[9, 8, 7], [7, 8, 9]]]
DATA = {"program": [["reverse", 0]], "cases": CASES, "shown": CASES[:2], "level": "easy"}
EXAMPLE = Example([Message("user", "Code for turn round.")], "reverse", DATA)
WRONG, RIGHT, PARTLY = "<code>head</code>", "<code>reverse</code>", "<code>sort</code>"


def test_the_worked_example():
    assert grade_program(0.75, 0.5) == pytest.approx(0.25)
    assert grade_program(0.25, 0.5) == pytest.approx(-0.15)
    assert grade_program(1.0, 0.5) == grade_program(1.0, 0.0) == 1
    assert grade_program(0.0, 0.0) == pytest.approx(-0.1)
    assert grade_program(0.5, 0.0) == pytest.approx(0.2)
    assert grade_program(0.5, 0.5) == pytest.approx(-0.1)  # as good as before is no progress
    assert grade_program(None, 1.0) == -1


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_rewards_stay_in_bounds_and_a_better_program_is_never_paid_less(rate, other, best):
    low, high = sorted((rate, other))
    assert -0.2 - 1e-9 <= grade_program(low, best) <= grade_program(high, best) + 1e-9 <= 1 + 1e-9
    assert grade_program(None, best) < grade_program(rate, best)


@given(st.lists(RATES, max_size=8), st.integers(1, 4))
def test_kept_trajectories_reach_the_goal_and_vary_as_much_as_any_choice_of_ends(rates, kept):
    chosen = choose_trajectories(rates, kept)
    able = [place for place, own in enumerate(rates) if max(own) == 1 > min(own)]
    assert set(chosen) <= set(able)
    assert len(chosen) == min(kept, len(able))
    if len(able) > kept:
        ranges = sorted(max(rates[place]) - min(rates[place]) for place in able)
        found = compute_variance([max(rates[place]) - min(rates[place]) for place in chosen])
        assert found == pytest.approx(max(compute_variance(ranges[: kept - k] + ranges[len(ranges) - k :]) for k in range(kept + 1)))


def test_histories_end_where_two_turns_in_a_row_were_right():
    assert cut_histories(["a", "b", "c"], [0.0, 0.4, 1.0]) == [(["a"], 0.0), (["a", "b"], 0.4)]
    assert cut_histories(["a", "b", "c"], [1.0, 1.0, 0.4]) == [(["a"], 1.0)]
    assert cut_histories(["a"], [1.0]) == []


def make_method(session, **config):
    method = Cobalt(Config(**config))
    method.prepare(session.run)
    return method


def test_contexts_are_cut_from_episodes_played_once(make_session, monkeypatch):
    session = make_session(Programs({"documented": 1.0}))
    turns = {0: WRONG, 1: PARTLY, 2: RIGHT}
    script_turns(monkeypatch, lambda number, text: turns[text.count("</code>")])
    session.run.training.__dict__["max_completion_length"] = 200  # in the tokens of another world
    method = make_method(session, trajectories=2, perturbed=0.0)
    made = method.data([EXAMPLE], session.run)
    assert sorted((len(one.data[HISTORY]), one.data[BEST]) for one in made) == [(0, 0), (1, 0), (1, 0), (2, 0.25), (2, 0.25)]
    assert {tuple(one.data[HISTORY]) for one in made} == {(), (WRONG,), (WRONG, PARTLY)}
    assert all(one.prompt == EXAMPLE.prompt for one in made)
    logged = method.collect()
    assert (logged["contexts"], logged["with_history"]) == (5, 0.8)
    script_turns(monkeypatch, lambda number, text: RIGHT)
    assert [one.data[HISTORY] for one in method.data([EXAMPLE], session.run)] == [[]]  # nothing is left but the prompts themselves


def test_swapped_tests_mislead_only_where_words_say_what_is_wanted(make_session):
    method = make_method(make_session(Programs()))
    swapped = method.perturb(EXAMPLE)
    assert swapped.data["shown"] == [[[3, 1, 2], [4, 0, 5]], [[5, 0, 4], [2, 1, 3]]]
    assert swapped.data["cases"] == CASES
    assert is_misleading(swapped)
    assert method.perturb(swapped) == swapped
    by_tests = Example([Message("user", "Code for 3 1 2 to 2 1 3, 5 0 4 to 4 0 5.")], "reverse", DATA)
    assert method.perturb(by_tests) == by_tests
    assert EXAMPLE.data["shown"] == CASES[:2]


def test_one_program_is_written_after_a_given_history_and_only_it_is_trained(make_session, monkeypatch):
    session = make_session(Programs())
    example = add_history(EXAMPLE, [WRONG, PARTLY], 0.25)
    session.examples, session.prompts = [example] * 4, [list(example.prompt)] * 4
    written = [RIGHT, WRONG, "none", PARTLY]
    script_turns(monkeypatch, lambda number, text: written[number])
    method = make_method(session)
    made = method.rollout(session)
    for one, text in zip(made, written, strict=True):
        own = [id_ for id_, mine in zip(one.ids, one.mask, strict=True) if mine]
        assert session.engine.decode(own) == text
        assert one.text.startswith(f"{WRONG}<information>")
        assert one.text.endswith(text)
    assert [one.scores["correct"] for one in made] == [1, 0, 0, 0]
    batch = rollout_batch([1.0, 0, 0, 0], 4, texts=[one.text for one in made], examples=session.examples)
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx([1, grade_program(0, 0.25), -1, grade_program(0.25, 0.25)])
    assert method.collect()["right/later"] == 0.25


def test_a_program_before_the_last_turn_ends_the_row_too(make_session, monkeypatch):
    session = make_session(Programs())
    example = add_history(EXAMPLE, [], 0.0)
    session.examples, session.prompts = [example], [list(example.prompt)]
    script_turns(monkeypatch, lambda number, text: WRONG)
    (made,) = make_method(session).rollout(session)
    assert (made.text, set(made.mask)) == (WRONG, {1})
    assert made.scores["correct"] == 0


def test_following_swapped_tests_is_counted(make_session):
    method = make_method(make_session(Programs()))
    example = add_history(method.perturb(EXAMPLE), [], 0.0)
    batch = rollout_batch([1.0, 0.0], 2, texts=[RIGHT, "<code>reverse"], examples=[example] * 2)
    assert method.rewards(batch, torch.zeros(2)).tolist() == [1, -1]
    assert method.collect()["follows_swapped"] == 0


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    def write(number, text):
        return RIGHT if number % 3 == 0 else WRONG if number % 3 == 1 else PARTLY

    script_turns(monkeypatch, write)
    options = {"policy": {"kind": "tiny", "cold_start": False}, "training__max_completion_length": 72, "training__prompts": 8}
    trained = two_steps("cobalt", {"trajectories": 4}, base="grpo", task__name="programs", **options)
    assert all(step["cobalt/policy_tokens"] > 0 for step in trained.steps)
    assert trained.steps[0]["cobalt/contexts"] >= 2
