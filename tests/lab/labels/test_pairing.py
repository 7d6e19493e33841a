"""Items from rollouts: which candidates there are, which come first, what is left out and why."""

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from lab.labelling.labels import queue_items
from lab.labelling.labels.models import Kind, Strategy
from lab.labelling.labels.pairs import make_items_from_pool
from lab.labelling.labels.pool import RolloutPool, read_pool
from lab.labelling.labels.recipe import PairSource, PolicySide, Recipe, StepWindow
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import Message


def recipe(query: str = "", **fields: Any) -> Recipe:
    return Recipe(Selection.read(QueryDict(query)), **{"per": 0, "most": 1000, **fields})


def why(made: Any) -> dict[str, int]:
    return {one.why: one.count for one in made.left_out}


def answers(*texts: str, step: int = 1, group: int = 0, attempt: int = 1, **fields: Any) -> list[Any]:
    return [rollout(step, group, at, attempt, completion=text, reward=float(at), **fields) for at, text in enumerate(texts)]


def texts_of(items: Any) -> list[list[str]]:
    return [[Rollout.across_teams.get(pk=pk).completion for pk in item] for item in items]


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team)


def test_pairs_are_of_one_group_and_never_of_the_same_text(team: Team, run: Run) -> None:
    store(run, started(), *answers("a", "b", "a"), *answers("c", "d", group=1))
    made = make_items_from_pool(read_pool(team, recipe()), recipe())
    assert Counter(map(tuple, texts_of(made.items))) == {("a", "b"): 1, ("c", "d"): 1}
    assert why(made) == {"both texts are the same": 1, "the same two texts to the same prompt again": 1}


def test_empty_and_replayed_rollouts_are_in_no_item_and_are_counted(team: Team, run: Run) -> None:
    store(run, started(), *answers("a", " \n", "b", step=1), *answers("x", "y", step=2))
    store(run, started(2, from_step=1), *answers("p", "q", step=2, attempt=2))
    made = queue_items.plan_items(team, recipe())
    assert Counter(map(tuple, texts_of(item.rollouts for item in made.items))) == {("a", "b"): 1, ("p", "q"): 1}
    assert why(made)["the completion is empty"] == 1
    assert why(made)["a resumed attempt sampled these steps again"] == 2


def test_a_selection_narrows_what_is_paired(team: Team, run: Run) -> None:
    store(run, started(), *answers("a", "b", "c"))
    assert len(make_items_from_pool(read_pool(team, recipe("f=reward:ge:1")), recipe()).items) == 1
    assert len(make_items_from_pool(read_pool(team, recipe("re=[ab]")), recipe()).items) == 1
    assert make_items_from_pool(read_pool(team, recipe("run=99")), recipe()).items == []


def test_across_steps_the_early_answer_is_the_first(team: Team, run: Run) -> None:
    asked: dict[str, Any] = {"prompt": [Message("user", "same?")], "reference": "7"}
    store(
        run, started(), *answers("one", step=1, **asked), *answers("two", step=5, **asked), *answers("nine", step=9, **asked), *answers("z", step=9)
    )
    wanted = recipe(how=PairSource.TIME, early=StepWindow(0, 5), late=StepWindow(6, 9))
    made = make_items_from_pool(read_pool(team, wanted), wanted)
    assert sorted(texts_of(made.items)) == [["one", "nine"], ["two", "nine"]]


def test_across_runs_the_answer_of_run_a_is_the_first_and_the_newest_unless_a_step_is_asked_for(team: Team, run: Run) -> None:
    other = make_run(team)
    asked: dict[str, Any] = {"prompt": [Message("user", "same?")], "reference": "7", "phase": "heldout"}
    store(run, started(), *answers("old", step=0, **asked), *answers("new", step=10, **asked))
    store(other, started(), *answers("theirs", step=4, **asked))
    ours, theirs = PolicySide(run.number), PolicySide(other.number)
    for a, b, expected in (
        (ours, theirs, ["new", "theirs"]),
        (theirs, ours, ["theirs", "new"]),
        (PolicySide(run.number, 0), theirs, ["old", "theirs"]),
    ):
        wanted = recipe(how=PairSource.RUNS, a=a, b=b, phase="heldout")
        assert texts_of(make_items_from_pool(read_pool(team, wanted), wanted).items) == [expected]
    wanted = recipe(how=PairSource.RUNS, a=PolicySide(run.number, 0), b=PolicySide(run.number, 10))
    assert texts_of(make_items_from_pool(read_pool(team, wanted), wanted).items) == [["old", "new"]]


def test_another_teams_rollouts_are_in_no_pool(team: Team, stranger: Any, run: Run) -> None:
    theirs = make_run(stranger.memberships.get().team)
    store(theirs, started(), *answers("a", "b"))
    assert len(read_pool(team, recipe())) == 0
    assert len(read_pool(team, recipe(f"run={theirs.number}"))) == 0


def test_a_ranking_has_each_text_of_the_group_once(team: Team, run: Run) -> None:
    store(run, started(), *answers("a", "b", "a", "c"), *answers("x", "x", group=1))
    made = make_items_from_pool(read_pool(team, recipe()), recipe(kind=Kind.RANKING))
    assert texts_of(made.items) == [["a", "b", "c"]]
    assert why(made) == {"the same text as another answer of the group": 2, "fewer than two different texts": 1}


def test_single_answers_are_asked_once(team: Team, run: Run) -> None:
    store(run, started(), *answers("a", "b", "a"))
    made = make_items_from_pool(read_pool(team, recipe()), recipe(kind=Kind.SINGLE))
    assert sorted(texts_of(made.items)) == [["a"], ["b"]]


def test_pairs_of_pairs_share_no_answer(team: Team, run: Run) -> None:
    store(run, started(), *answers(*"abcdef"))
    made = make_items_from_pool(read_pool(team, recipe()), recipe(kind=Kind.CLEARER))
    assert made.items
    assert all(len(set(item)) == 4 for item in made.items)


def test_what_the_queue_has_is_not_made_again(team: Team, run: Run) -> None:
    store(run, started(), *answers("a", "b", "c"))
    pool = read_pool(team, recipe())
    first = make_items_from_pool(pool, recipe(most=2))
    rest = make_items_from_pool(pool, recipe(), taken=frozenset(tuple(sorted(item)) for item in first.items))
    assert len(rest.items) == 1
    assert not {*map(frozenset, rest.items)} & {*map(frozenset, first.items)}
    assert why(rest) == {"already in the queue": 2}


def test_the_most_from_one_group_is_its_best_by_the_strategy(team: Team, run: Run) -> None:
    store(run, started(), *answers("a", "b", "c"), *answers("x", "y", group=1))
    wanted = recipe(per=1, strategy=Strategy.LARGEST_GAP)
    assert texts_of(make_items_from_pool(read_pool(team, wanted), wanted).items) == [["a", "c"], ["x", "y"]]


@pytest.mark.parametrize("how", [PairSource.GROUP, PairSource.TIME, PairSource.RUNS])
def test_an_address_holds_the_whole_recipe(how: PairSource) -> None:
    sides = {"a": PolicySide(2, 0), "b": PolicySide(3)} if how == PairSource.RUNS else {}
    windows = {"early": StepWindow(0, 5), "late": StepWindow(6, 9)} if how == PairSource.TIME else {}
    wanted = recipe(
        "run=2&f=reward:ge:0.5&q=x%26y", how=how, strategy=Strategy.ENTROPY, seed=7, gold=5, gold_by="a & b", phase="train", **sides, **windows
    )
    assert Recipe.stored(wanted.address, wanted.kind, wanted.strategy, wanted.seed) == wanted


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3))), max_size=24)


def pool_of(rows: list[Any], sided: bool) -> RolloutPool:
    """(bucket, side, text, reward) as a pool, sorted as ``read_pool`` sorts."""
    rows = sorted(rows, key=lambda row: row[:2] if sided else row[:1])
    column = [np.array([row[at] for row in rows], dtype=np.int64) for at in range(3)]
    reward = np.array([np.nan if row[3] is None else row[3] for row in rows], dtype=float)
    ids, side = np.arange(len(rows)) + 100, column[1] if sided else np.zeros(len(rows), dtype=np.int64)
    return RolloutPool(ids, column[0] + 50, column[0], side, reward, reward / 2, np.ones(len(rows)), column[2], reward, reward)


@given(ROWS, st.booleans(), st.sampled_from(list(Strategy)))
def test_all_pairs_there_are_are_found_once(rows: list[Any], sided: bool, strategy: Strategy) -> None:
    """Against the plain way of writing it down."""
    pool = pool_of(rows, sided)
    made = make_items_from_pool(
        pool, recipe(how=PairSource.TIME if sided else PairSource.GROUP, strategy=strategy, early=StepWindow(0, 1), late=StepWindow(2, 3))
    )
    by_id = {int(pk): (int(pool.bucket[at]), int(pool.side[at]), int(pool.text[at])) for at, pk in enumerate(pool.id)}
    texts = [(by_id[one][0], frozenset((by_id[one][2], by_id[other][2]))) for one, other in made.items]
    expected = set()
    for (bucket, side, text), (other_bucket, other_side, other_text) in combinations(by_id.values(), 2):
        if bucket == other_bucket and text != other_text and (not sided or side != other_side):
            expected.add((bucket, frozenset((text, other_text))))
    assert Counter(texts) == Counter(expected)
    assert all(by_id[one][0] == by_id[other][0] for one, other in made.items)
    assert not sided or all((by_id[one][1], by_id[other][1]) == (0, 1) for one, other in made.items)
