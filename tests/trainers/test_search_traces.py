"""Search traces of any problem: so many dead ends, ways back to where they left the solution, and what is right of it."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.search_traces import Back, Move, NoTraceError, add_states, draw_trace, linearise_paths

PATHS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=4)


class Letters:
    """Three moves, each a letter; the goal is one word."""

    start = ""

    def __init__(self, goal="aba"):
        self.goal = goal

    def list_moves(self, state):
        return [Move(letter, state + letter) for letter in "abc"] if len(state) < len(self.goal) else []

    def is_goal(self, state):
        return state == self.goal

    def can_reach_goal(self, state):
        return self.goal.startswith(state)


def test_the_worked_example_of_astro():
    assert linearise_paths(["ab", "ac"]) == ["a", "b", 1, "c"]


@given(PATHS)
def test_a_trace_leads_along_each_path_and_ends_with_the_last(paths):
    at, seen = [], []
    for step in linearise_paths(paths):
        at = at[:step] if isinstance(step, int) else [*at, step]
        seen.append(list(at))
    assert at == paths[-1]
    assert all(path in seen for path in paths)


def test_a_way_back_has_the_state_it_leads_to():
    assert add_states(Letters(), [Move("a", "a"), Move("c", "ac"), 1, Move("b", "ab")])[2] == Back(1, "a")


def shared_start(one, other):
    return one[: next((place for place, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs), min(len(one), len(other)))]


@given(st.integers(0, 6), st.integers(1, 3), st.integers(0, 50), st.text("abc", min_size=2, max_size=4))
def test_a_right_trace_has_exactly_so_many_ways_back_and_ends_in_the_goal(dead_ends, longest, seed, goal):
    try:
        trace = draw_trace(Letters(goal), dead_ends, "right", longest, random.Random(seed))
    except NoTraceError:
        assert dead_ends > 2 * len(goal), "each step has two wrong moves"
        return
    assert trace.backs == dead_ends
    assert trace.visits[-1].state == goal
    assert "".join(move.text for move in trace.answer) == goal
    state, strayed = "", 0
    for visit in trace.visits:
        if isinstance(visit, Back):
            assert visit.state == state[: visit.step]
            assert not goal.startswith(state), "only dead ends are left"
            strayed = len(visit.state) - len(shared_start(visit.state, goal))
        else:
            assert visit.state == state + visit.text
            strayed += not goal.startswith(visit.state)
            assert strayed <= longest
        state = visit.state
    made = [visit.state for visit in trace.visits if isinstance(visit, Move)]
    assert len(made) == len(set(made)), "a depth-first search comes to each state once"


@given(st.integers(0, 3), st.integers(0, 50))
def test_a_wrong_trace_ends_and_answers_in_one_more_dead_end(dead_ends, seed):
    trace = draw_trace(Letters(), dead_ends, "wrong", 2, random.Random(seed))
    assert trace.backs == dead_ends
    assert trace.visits[-1] == trace.answer[-1]
    assert trace.answer[-1].state != "aba"
    assert len(trace.answer) == 3, "no move is left"


@given(st.integers(1, 4), st.integers(0, 20))
def test_a_shuffled_trace_says_the_same_in_another_order(dead_ends, seed):
    right, shuffled = (draw_trace(Letters(), dead_ends, contents, 2, random.Random(seed)) for contents in ("right", "shuffled"))
    assert Counter(right.visits) == Counter(shuffled.visits)
    assert right.answer == shuffled.answer


def test_shuffling_changes_the_order():
    drawn = [draw_trace(Letters(), 2, "shuffled", 2, random.Random(seed)) for seed in range(10)]
    assert any(trace.visits[-1].state != "aba" for trace in drawn)


@pytest.mark.parametrize(("goal", "reason"), [("x", "without a solution"), ("", "too few dead ends")])
def test_problems_without_such_a_trace_say_why(goal, reason):
    class Odd(Letters):
        def can_reach_goal(self, state):
            return super().can_reach_goal(state) and set(self.goal) <= set("abc")

    with pytest.raises(NoTraceError, match=reason):
        draw_trace(Odd(goal), 1, "right", 1, random.Random(0))
