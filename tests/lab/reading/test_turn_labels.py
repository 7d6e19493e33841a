"""Verdicts on turns and preferences between branches: who may give them, what is refused, what others see, and that nothing is lost."""

import json
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from lab.rollouts.annotations.models import TurnPreference, TurnVerdict
from lab.rollouts.annotations.turn_labels import export_turn_labels
from lab.rollouts.trajectories.keepers import KEEPERS
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import Run, Status
from tests.conftest import make_member
from tests.lab.reading.episodes import ANSWER, BETTER, CUT, CUT_BRANCH, FOUND, KEPT_BRANCH, SEARCH, STATE, WORSE, tell_episode
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import RolloutNode

JSON = {"HTTP_ACCEPT": "application/json"}


@pytest.fixture
def one(team: Team) -> Rollout:
    run = make_run(team, status=Status.FINISHED, task="search")
    store(run, started(), rollout(**tell_episode()))
    return Rollout.across_teams.get()


def judge(client: Client, one: Rollout, node: Any, verdict: str, status: int = 200) -> Any:
    response = client.post(f"/rollouts/{one.pk}/turns/verdict/", {"node": node, "verdict": verdict}, **JSON)  # type: ignore[arg-type]
    assert response.status_code == status, response.content
    return response.json() if status != 404 else None


def prefer(client: Client, one: Rollout, chosen: Any, rejected: Any, status: int = 200, **more: str) -> Any:
    sent = {"chosen": chosen, "rejected": rejected, **more}
    response = client.post(f"/rollouts/{one.pk}/turns/preference/", sent, **JSON)  # type: ignore[arg-type]
    assert response.status_code == status, response.content
    return response.json() if status != 404 else None


def live() -> list[tuple[int, str]]:
    return list(TurnVerdict.across_teams.filter(withdrawn_at=None).values_list("node", "verdict"))


def preferred() -> list[tuple[int, int]]:
    return list(TurnPreference.across_teams.filter(withdrawn_at=None).values_list("chosen", "rejected"))


def test_a_verdict_is_given_changed_and_taken_back_and_its_history_stays(one: Rollout, as_owner: Client) -> None:
    assert judge(as_owner, one, CUT_BRANCH, "bad")["fresh"]
    assert not judge(as_owner, one, CUT_BRANCH, "bad")["fresh"]  # sent twice, counted once
    assert TurnVerdict.across_teams.get().snapshot == WORSE
    assert 'aria-pressed="true" aria-label="Turn 3: bad"' in judge(as_owner, one, CUT_BRANCH, "good")["episode"].replace("good", "bad")
    assert live() == [(CUT_BRANCH, "good")]
    judge(as_owner, one, CUT_BRANCH, "")
    assert live() == []
    assert [row.verdict for row in TurnVerdict.across_teams.order_by("pk")] == ["bad", "good"]  # who said what stays
    assert all(row.withdrawn_at for row in TurnVerdict.across_teams.all())


def test_one_of_two_branches_is_preferred_then_the_other(one: Rollout, as_owner: Client) -> None:
    prefer(as_owner, one, KEPT_BRANCH, CUT_BRANCH)
    assert preferred() == [(KEPT_BRANCH, CUT_BRANCH)]
    assert "Preferred ✓" in prefer(as_owner, one, CUT_BRANCH, KEPT_BRANCH)["episode"]
    assert preferred() == [(CUT_BRANCH, KEPT_BRANCH)]
    prefer(as_owner, one, CUT_BRANCH, KEPT_BRANCH, withdraw="1")
    assert preferred() == []
    assert TurnPreference.across_teams.count() == 2


@pytest.mark.parametrize(
    ("node", "verdict"), [(STATE, "good"), (0, "bad"), (99, "bad"), ("x", "bad"), ("", "bad"), (CUT_BRANCH, "neutral"), (1, "fine")]
)
def test_what_is_no_turn_or_no_verdict_is_refused(node: Any, verdict: str, one: Rollout, as_owner: Client) -> None:
    assert judge(as_owner, one, node, verdict, 400)["error"]
    assert live() == []


@pytest.mark.parametrize(
    ("chosen", "rejected"), [(1, CUT_BRANCH), (KEPT_BRANCH, KEPT_BRANCH), (KEPT_BRANCH, 4), (KEPT_BRANCH, ""), (KEPT_BRANCH, "3,8")]
)
def test_only_branches_of_one_state_are_compared(chosen: Any, rejected: Any, one: Rollout, as_owner: Client) -> None:
    prefer(as_owner, one, chosen, rejected, 400)
    assert preferred() == []


def test_the_page_shows_the_branches_side_by_side_and_who_said_what(one: Rollout, as_owner: Client, teammate: User) -> None:
    other = Client()
    other.force_login(teammate)
    judge(other, one, CUT_BRANCH, "bad")
    prefer(other, one, KEPT_BRANCH, CUT_BRANCH)
    html = as_owner.get(f"/rollouts/{one.pk}/").content.decode()
    assert f"Cut after node {STATE}: <bdi>{CUT}</bdi>" in html
    assert "Discarded suffix" in html
    assert "New suffix" in html
    assert f"<bdi>{teammate}</bdi>: bad" in html
    assert f"better than {CUT_BRANCH}" in html
    assert "Dataset of step pairs" not in html  # of the team's labels none is this person's


def test_a_form_without_scripts_comes_back_to_the_page(one: Rollout, as_owner: Client) -> None:
    response = as_owner.post(f"/rollouts/{one.pk}/turns/verdict/", {"node": CUT_BRANCH, "verdict": "bad"})
    assert (response.status_code, response["Location"]) == (302, f"/rollouts/{one.pk}/#episode")
    refused = as_owner.post(f"/rollouts/{one.pk}/turns/verdict/", {"node": 99, "verdict": "bad"}, follow=True)
    assert "no such turn" in refused.content.decode()


def test_strangers_do_not_find_it_and_viewers_only_read(one: Rollout, team: Team, as_stranger: Client) -> None:
    judge(as_stranger, one, CUT_BRANCH, "bad", 404)
    prefer(as_stranger, one, KEPT_BRANCH, CUT_BRANCH, 404)
    viewer = Client()
    viewer.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    assert viewer.post(f"/rollouts/{one.pk}/turns/verdict/", {"node": CUT_BRANCH, "verdict": "bad"}, **JSON).status_code == 403  # type: ignore[arg-type]
    html = viewer.get(f"/rollouts/{one.pk}/").content.decode()
    assert "Branches side by side" in html
    assert "data-turn-label" not in html
    assert live() == preferred() == []


def test_exports_and_the_api_have_the_labels(one: Rollout, as_owner: Client, owner: User) -> None:
    judge(as_owner, one, CUT_BRANCH, "bad")
    prefer(as_owner, one, KEPT_BRANCH, CUT_BRANCH)
    expected = [
        {"node": CUT_BRANCH, "verdict": "bad", "labeller": owner.pk},
        {"node": KEPT_BRANCH, "preferred_to": CUT_BRANCH, "labeller": owner.pk},
    ]
    assert export_turn_labels([one])[one.pk] == expected
    response: Any = as_owner.get("/rollouts/export/jsonl/", {"run": one.run.number})
    body = b"".join(response.streaming_content)
    assert json.loads(body)["turn_labels"] == expected


@pytest.mark.django_db(transaction=True)
def test_the_migration_goes_back_and_forth(one: Rollout) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([("annotations", "0002_place_and_key")])
    assert "annotations_turnverdict" not in connection.introspection.table_names()
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    assert "annotations_turnverdict" in connection.introspection.table_names()
    assert Run.across_teams.count() == 1


@pytest.fixture
def two(one: Rollout) -> Rollout:
    """Another member, which answers after the same search."""
    nodes = [
        RolloutNode(0, "prompt"),
        RolloutNode(1, "policy", 0, start=0, end=1),
        RolloutNode(2, "world", 1, start=1, end=2),
        RolloutNode(3, "policy", 2, start=2, end=3, finish="stop"),
    ]
    store(one.run, rollout(sample=1, **tell_episode((SEARCH, FOUND, ANSWER), nodes)))
    return Rollout.across_teams.get(sample=1)


def compare(client: Client, one: Rollout, other: str, verdict: str, status: int = 200, node: int = KEPT_BRANCH) -> Any:
    sent = {"node": node, "other": other, "verdict": verdict}
    response = client.post(f"/rollouts/{one.pk}/turns/members/", sent, **JSON)  # type: ignore[arg-type]
    assert response.status_code == status, response.content
    return response.json() if status != 404 else None


def test_turns_of_two_members_in_one_state_are_compared(one: Rollout, two: Rollout, as_owner: Client) -> None:
    html = as_owner.get(f"/rollouts/{one.pk}/").content.decode()
    assert "After node 2: 1 other turn<" in html
    assert "Better ✓" in compare(as_owner, one, f"{two.pk}:3", "better")["episode"]
    row = TurnPreference.across_teams.get()
    assert (row.rollout_id, row.chosen, row.against_id, row.rejected) == (two.pk, 3, one.pk, KEPT_BRANCH)
    assert (row.chosen_text, row.rejected_text) == (ANSWER, BETTER)
    assert "Worse ✓" in as_owner.get(f"/rollouts/{two.pk}/").content.decode()  # seen from the other side
    compare(as_owner, one, f"{two.pk}:3", "worse")
    live_rows = TurnPreference.across_teams.filter(withdrawn_at=None)
    assert live_rows.values_list("rollout", "against").get() == (one.pk, two.pk)
    compare(as_owner, one, f"{two.pk}:3", "")
    assert not live_rows.exists()


@pytest.mark.parametrize(
    ("other", "node"), [("{two}:1", KEPT_BRANCH), ("{two}:3", 1), ("{one}:6", KEPT_BRANCH), ("x", KEPT_BRANCH), ("{two}:", 6), ("{two}:3", 3)]
)
def test_turns_of_different_states_are_not_compared(other: str, node: int, one: Rollout, two: Rollout, as_owner: Client) -> None:
    compare(as_owner, one, other.format(one=one.pk, two=two.pk), "better", 400, node)
    assert not TurnPreference.across_teams.exists()


def test_a_member_of_another_team_is_not_found(one: Rollout, as_owner: Client, stranger: User) -> None:
    theirs = make_run(stranger.memberships.get().team, status=Status.FINISHED, task="search")
    store(theirs, started(), rollout(**tell_episode()))
    other = Rollout.across_teams.get(run=theirs)
    compare(as_owner, one, f"{other.pk}:{KEPT_BRANCH}", "better", 404)
    assert not TurnPreference.across_teams.exists()


def test_a_rollout_with_labels_that_count_is_kept(one: Rollout, team: Team, as_owner: Client) -> None:
    def list_kept() -> set[int]:
        with connection.cursor() as cursor:
            cursor.execute(KEEPERS["annotations"].query, {"team": team.pk})
            return {pk for (pk,) in cursor.fetchall()}

    assert list_kept() == set()
    judge(as_owner, one, CUT_BRANCH, "bad")
    assert list_kept() == {one.pk}
    judge(as_owner, one, CUT_BRANCH, "")
    assert list_kept() == set()
    prefer(as_owner, one, KEPT_BRANCH, CUT_BRANCH)
    assert list_kept() == {one.pk}
