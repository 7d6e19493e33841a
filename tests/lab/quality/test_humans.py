"""Humans against the reward: which votes count, windows of steps, and the pages over them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from lab.labelling.labels.models import Item, ItemState, JudgementState, Kind, Purpose
from lab.labelling.quality.proportions import estimate_share
from lab.labelling.quality.reward_agreement import FEWEST, MOST_WINDOWS, build_agreement_columns, split_step_windows
from lab.labelling.quality.votes import PreferenceVote, ScoredRollout, votes_of
from lab.teams.accounts.models import Team, User
from lab.training.runs.metrics import Series
from lab.training.runs.models import Run
from tests.hostile import MARK, PAYLOADS
from tests.lab.quality.labelling import judge, queue_of, scored_run
from tests.lab.supervisor.spools import rollout, started, store


@pytest.fixture
def run(team: Team) -> Run:
    return scored_run(team, [[1.0, 0.0] for _ in range(4)])


def settle_by_hand(item: Item, final: dict[str, Any]) -> None:
    Item.across_teams.filter(pk=item.pk).update(state=ItemState.SETTLED, final=final)


def test_each_preference_of_a_counting_judgement_is_a_vote(run: Run, owner: User, teammate: User) -> None:
    queue = queue_of(run, overlap=2)
    first, second, third, fourth = queue.items.order_by("place")
    judge(first, owner, "a")
    judge(first, teammate, "a")
    judge(second, owner, "b")
    judge(third, owner, "tie")
    judge(fourth, owner, "a", state=JudgementState.RETURNED)
    found = build_agreement_columns(votes_of(run), None)
    assert [column.name for column in found] == ["", "correct", "length"]
    assert (found[0].share.n, found[0].share.value) == (3, pytest.approx(2 / 3))
    assert found[2].share.value == pytest.approx(1 / 3)  # the function that prefers the other answer


def test_in_a_reviewed_queue_only_accepted_judgements_count(run: Run, owner: User, teammate: User) -> None:
    queue = queue_of(run, reviewed=True, overlap=2)
    first = queue.items.order_by("place").first()
    assert first is not None
    judge(first, owner, "a")
    assert votes_of(run) == []
    judge(first, teammate, "a", state=JudgementState.ACCEPTED)
    assert len(votes_of(run)) == 1


def test_an_adjudicated_item_counts_once_by_its_final_answer(run: Run, owner: User, teammate: User) -> None:
    queue = queue_of(run, overlap=2)
    first = queue.items.order_by("place").first()
    assert first is not None
    judge(first, owner, "a")
    judge(first, teammate, "b")
    assert [vote.chosen.reward for vote in votes_of(run)] == [1.0, 0.0]
    settle_by_hand(first, {"verdict": "b", "tiers": None})
    [vote] = votes_of(run)
    assert vote.chosen.reward == 0.0
    settle_by_hand(first, {"verdict": "tie", "tiers": None})
    assert votes_of(run) == []


def test_dropped_items_and_votes_that_were_a_reward_do_not_count(run: Run, owner: User) -> None:
    for settings in ({"purpose": Purpose.REWARD}, {}):
        judge(queue_of(run, [1], **settings).items.get(), owner, "a")
    [vote] = votes_of(run)
    Item.across_teams.filter(pk=vote.item).update(state=ItemState.DROPPED)
    assert votes_of(run) == []


def test_a_ranking_gives_its_implied_pairs_and_other_runs_give_none(team: Team, owner: User) -> None:
    run, other = (scored_run(team, [[3.0, 2.0, 2.0, 1.0, 0.0]]) for _ in range(2))
    item = queue_of(run, kind=Kind.RANKING).items.get()
    judge(item, owner, "ranked", tiers=[[0, 1], [2], [3, 4]])
    found = build_agreement_columns(votes_of(run), None)
    assert (len(votes_of(run)), found[0].ties, found[0].share.n) == (8, 1, 7)
    assert votes_of(other) == []


def test_a_pair_of_two_runs_is_a_vote_on_neither(team: Team, owner: User) -> None:
    from lab.labelling.labels.new_queues import NewItem, make_queue
    from tests.lab.quality.labelling import members

    run, other = (scored_run(team, [[1.0, 0.0]]) for _ in range(2))
    mine, theirs = members(run, 1)[0], members(other, 1)[0]
    queue = make_queue(team, None, name="ab", kind=Kind.PAIR, items=[NewItem(mine.prompt_id, (mine.pk, theirs.pk))])
    judge(queue.items.get(), owner, "a")
    assert votes_of(run) == votes_of(other) == []


def test_ties_and_missing_rewards_are_left_out_and_counted(team: Team, owner: User) -> None:
    run = scored_run(team, [[1.0, 0.0], [1.0, 1.0], [None, 1.0]])
    for item in queue_of(run).items.all():
        judge(item, owner, "a")
    total = build_agreement_columns(votes_of(run), None)[0]
    assert (total.share.n, total.ties, total.missing) == (1, 1, 1)


def vote(step: int, agrees: bool, item: int) -> PreferenceVote:
    better, worse = ScoredRollout(step, 1.0, {}), ScoredRollout(step, 0.0, {})
    return PreferenceVote(item, better, worse) if agrees else PreferenceVote(item, worse, better)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=300))
def test_windows_hold_every_vote_once_and_never_part_a_step(steps: list[int]) -> None:
    steps = sorted(steps)
    ends = split_step_windows(steps)
    assert len(ends) <= MOST_WINDOWS
    held = [sum(first <= step <= last for step in steps) for first, last in ends]
    assert sum(held) == len(steps)
    assert all(before[1] < after[0] for before, after in pairwise(ends))
    assert len(ends) == 1 or min(held) >= FEWEST


def course(early: int, late: int, rising: bool = True) -> list[Any]:
    """Two hundred votes at steps 1 to 20, ten a step, of which ``early`` and ``late`` in ten agree; the reward rises with the steps."""
    votes = [vote(step, place < (early if step <= 10 else late), step * 10 + place) for step in range(1, 21) for place in range(10)]
    steps = np.arange(1, 21)
    rewards = Series("reward", steps, steps / 20 if rising else 1 - steps / 20)
    return build_agreement_columns(votes, rewards)[0].windows


@pytest.mark.feature(92)
def test_a_gap_needs_a_reward_that_rises_and_agreement_that_falls_by_more_than_chance() -> None:
    falling = course(9, 3)
    assert not any(window.gap for window in falling if window.last <= 10)
    assert all(window.gap for window in falling if window.first > 10)
    assert not any(window.gap for window in course(9, 3, rising=False))
    assert not any(window.gap for window in course(3, 9))
    assert not any(window.gap for window in course(6, 5))


def test_the_windows_share_is_wilsons() -> None:
    [window] = build_agreement_columns([vote(1, place < 7, place) for place in range(10)], None)[0].windows
    assert window.share == estimate_share(7, 10)
    assert window.disagreeing == 3


def page(client: Client, run: Run, query: str = "") -> Any:
    response = client.get(f"/runs/{run.pk}/humans/{query}")
    assert response.status_code == 200
    return response


def test_without_votes_the_panel_and_the_page_say_so_and_offer_a_queue(run: Run, as_owner: Client) -> None:
    for query in ("", "?part=panel"):
        body = page(as_owner, run, query).content.decode()
        assert "No human votes on this run yet" in body
        assert f"/label/new/?run={run.number}" in body
    assert json.loads(page(as_owner, run, "?part=data").content) == {"columns": [], "curve": {"steps": [], "values": []}}


def test_the_pages_numbers_are_those_of_the_votes(run: Run, owner: User, as_owner: Client) -> None:
    for item, verdict in zip(queue_of(run).items.order_by("place"), "aaab", strict=True):
        judge(item, owner, verdict)
    data = json.loads(page(as_owner, run, "?part=data").content)
    total, correct, length = data["columns"]
    assert (total["share"]["value"], total["share"]["n"], length["share"]["value"]) == (0.75, 4, 0.25)
    [window] = total["windows"]
    assert (window["first"], window["last"], window["n"], window["disagreeing"]) == (1, 4, 4, 1)
    assert data["curve"] == {"steps": [1, 2, 3, 4], "values": [0.5] * 4}
    body = page(as_owner, run).content.decode()
    assert "75 %" in body
    assert correct["name"] == "correct"
    assert "25 %" in page(as_owner, run, "?reward=length").content.decode()
    assert page(as_owner, run, "?reward=nothing-like-it&x=1").status_code == 200


def test_hostile_reward_names_stay_text(team: Team, owner: User, as_owner: Client) -> None:
    run = scored_run(team, [[0.0]])
    names = dict.fromkeys((payload for payload in PAYLOADS if "\ud800" not in payload and "\x00" not in payload), 1.0)
    store(
        run, started(2, 1), *(rollout(2, 0, sample, 2, rewards={name: float(sample) for name in names}, reward=float(sample)) for sample in range(2))
    )
    judge(queue_of(run, [2]).items.get(), owner, "b")
    body = page(as_owner, run).content.decode()
    assert f"<script>window.{MARK}" not in body
    assert "<img src=x" not in body
    assert "&lt;script&gt;" in body


def test_another_teams_run_is_not_found(run: Run, as_stranger: Client) -> None:
    for query in ("", "?part=panel", "?part=data"):
        assert as_stranger.get(f"/runs/{run.pk}/humans/{query}").status_code == 404
