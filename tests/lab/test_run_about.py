"""What people change about runs that are there: name, notes, tags, the archive, and one act on the ticked runs of the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.runs import drafts, live, tags, verbs
from lab.training.runs.models import NAME_LENGTH, Run, Status
from tests.conftest import make_member

MakeRuns = Callable[..., list[Run]]
JSON = {"Accept": "application/json"}


@pytest.fixture
def make_runs(team: Team) -> MakeRuns:
    def make(*statuses: Status, **fields: Any) -> list[Run]:
        given = {"spec": {}, "recipe": "r", "trainer": "sft", "task": "t", "policy": "p", **fields}
        first = Run.objects.next_number(team)
        return [
            Run.objects.create(team=team, number=first + place, status=status, **{"name": f"run {first + place}", **given})
            for place, status in enumerate(statuses or (Status.FINISHED,))
        ]

    return make


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What open pages were told."""
    messages: list[dict[str, Any]] = []
    monkeypatch.setattr(live, "publish_message", lambda group, message: messages.append({"group": group, **message}))
    return messages


def act(client: Client, name: str, runs: list[Run], **more: str) -> dict[str, Any]:
    response = client.post("/runs/act/", {"act": name, "run": [run.number for run in runs], **more}, headers=JSON)
    assert response.headers["Content-Type"] == "application/json", response.content
    return dict(response.json(), status=response.status_code)


def shown(client: Client, query: str = "") -> list[int]:
    return [row.run.number for row in client.get(f"/runs/?{query}").context["rows"]]


def reread(run: Run) -> Run:
    run.refresh_from_db()
    return run


def test_a_new_name_is_everywhere_and_the_spec_stays(
    as_owner: Client, make_runs: MakeRuns, told: list[dict[str, Any]], django_capture_on_commit_callbacks: Any
) -> None:
    [run] = make_runs(spec={"seed": 7})
    with django_capture_on_commit_callbacks(execute=True):
        response = as_owner.post(f"/runs/{run.pk}/about/", {"name": "  what I   meant "}, headers={"HX-Request": "true"})
    assert "<bdi>what I meant</bdi>" in response.content.decode()
    assert (reread(run).name, run.spec) == ("what I meant", {"seed": 7})
    for page in ("/runs/", f"/runs/{run.pk}/config/"):
        assert "what I meant" in as_owner.get(page).content.decode()
    assert [(one["group"], one["run"]["name"]) for one in told if one["type"] == "labels"] == [
        (f"run-{run.pk}", "what I meant"),
        (f"team-{run.team_id}", "what I meant"),
    ]
    [entry] = Entry.across_teams.filter(action="run.rename")
    assert entry.details == {"changed": {"name": ["run 1", "what I meant"]}}
    as_owner.post(f"/runs/{run.pk}/about/", {"name": "what I meant"})
    assert Entry.across_teams.filter(action="run.rename").count() == 1  # nothing was changed


@pytest.mark.parametrize(("name", "words"), [("   ", "Enter a name."), ("x" * (NAME_LENGTH + 1), "The name has 101 characters. Use at most 100.")])
def test_a_name_that_cannot_be_says_why_and_is_kept_in_its_input(name: str, words: str, as_owner: Client, make_runs: MakeRuns) -> None:
    [run] = make_runs()
    header = as_owner.post(f"/runs/{run.pk}/about/", {"name": name}, headers={"HX-Request": "true"}).content.decode()
    assert words in header
    assert "data-renaming" in header
    page = as_owner.post(f"/runs/{run.pk}/about/", {"name": name, "notes": "kept in the form", "tags": "a, b"})
    assert page.status_code == 422
    for text in (words, "kept in the form", "a, b"):
        assert text in page.content.decode()
    assert (reread(run).name, run.notes, run.tags) == ("run 1", "", [])  # one of them wrong: none is changed


def test_the_name_turns_into_an_input_and_back(as_owner: Client, make_runs: MakeRuns) -> None:
    [run] = make_runs()
    header = as_owner.get(f"/runs/{run.pk}/about/?tab=config", headers={"HX-Request": "true"}).content.decode()
    assert f'name="name" value="{run.name}" maxlength="100"' in header
    assert '<input type="hidden" name="tab" value="config">' in header
    assert as_owner.get(f"/runs/{run.pk}/about/").headers["Location"] == f"/runs/{run.pk}/config/#about"


def test_notes_are_text(as_owner: Client, make_runs: MakeRuns) -> None:
    [run] = make_runs()
    hostile = "</textarea><script>alert(1)</script>\r\nsecond\0line"
    as_owner.post(f"/runs/{run.pk}/about/", {"notes": hostile})
    assert reread(run).notes == "</textarea><script>alert(1)</script>\nsecond\u2400line"
    page = as_owner.get(f"/runs/{run.pk}/config/").content.decode()
    assert "<script>alert" not in page
    assert "&lt;/textarea&gt;&lt;script&gt;alert(1)" in page
    [entry] = Entry.across_teams.filter(action="run.notes")
    assert entry.details == {"characters": [0, len(run.notes)]}  # how long, not what
    response = as_owner.post(f"/runs/{run.pk}/about/", {"notes": "n" * (verbs.NOTES_LENGTH + 1)})
    assert (response.status_code, "Use at most 10,000." in response.content.decode()) == (422, True)


def test_viewers_read_notes_and_change_nothing(client: Client, team: Team, make_runs: MakeRuns) -> None:
    [run] = make_runs(notes="for everybody", tags=["seen"])
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    page = client.get(f"/runs/{run.pk}/config/").content.decode()
    assert "for everybody" in page
    assert "about-form" not in page
    assert "data-rename" not in page
    assert client.post(f"/runs/{run.pk}/about/", {"name": "mine"}).status_code == 403
    assert 'id="act-form"' not in client.get("/runs/").content.decode()


def test_tags_are_cleaned_and_spelled_as_the_team_does(as_owner: Client, team: Team, make_runs: MakeRuns) -> None:
    first, second = make_runs(Status.FINISHED, Status.RUNNING)
    as_owner.post(f"/runs/{first.pk}/about/", {"tags": "Baseline,  lr  sweep ,, baseline"})
    as_owner.post(f"/runs/{second.pk}/about/", {"tags": "BASELINE"})
    assert (reread(first).tags, reread(second).tags) == (["Baseline", "lr sweep"], ["Baseline"])
    assert tags.list_team_tags(team) == ["Baseline", "lr sweep"]
    for typed, words in ((f"ok,{'x' * 31}", "has 31 characters"), (",".join(map(str, range(21))), "21 tags are too many")):
        response = as_owner.post(f"/runs/{first.pk}/about/", {"tags": typed})
        assert (response.status_code, words in response.content.decode()) == (422, True)
    details = Entry.across_teams.filter(action="run.tag").order_by("pk").values_list("details", flat=True)
    assert list(details) == [{"added": ["Baseline", "lr sweep"], "removed": []}, {"added": ["Baseline"], "removed": []}]


def test_the_list_shows_tags_and_filters_by_one(as_owner: Client, make_runs: MakeRuns) -> None:
    make_runs(tags=["a&b", "<i>"])
    make_runs(Status.RUNNING)
    page = as_owner.get("/runs/").content.decode()
    assert 'href="/runs/?tag=a%26b"' in page
    assert "<bdi>&lt;i&gt;</bdi>" in page
    assert shown(as_owner, "tag=a%26b") == [1]
    assert shown(as_owner, "tag=a%26b&status=running") == []
    assert shown(as_owner, "tag=a") == []  # the whole tag, not a part of it
    assert "Tag: a&amp;b" in as_owner.get("/runs/?tag=a%26b").content.decode()


def test_an_archived_run_leaves_the_list_keeps_its_address_and_comes_back(as_owner: Client, make_runs: MakeRuns) -> None:
    run, other = make_runs(Status.FINISHED, Status.FINISHED)
    as_owner.post(f"/runs/{run.pk}/archive/")
    assert (shown(as_owner), shown(as_owner, "archived=1"), shown(as_owner, "archived=any")) == ([2], [1], [2, 1])
    assert "Archived (1)" in as_owner.get("/runs/").content.decode()
    assert "Archived (" not in as_owner.get("/runs/?q=%232").content.decode()  # counted among what the filters leave
    assert "1 archived run would" in as_owner.get("/runs/?q=%231").content.decode()
    page = as_owner.get(f"/runs/{run.pk}/").content.decode()
    assert "This run is archived" in page
    assert f'action="/runs/{run.pk}/unarchive/"' in page
    as_owner.post(f"/runs/{run.pk}/unarchive/")
    assert shown(as_owner) == [2, 1]
    assert reread(other).archived_at is None
    assert list(Entry.across_teams.order_by("pk").values_list("action", flat=True)) == ["run.archive", "run.unarchive"]


@pytest.mark.parametrize("status", [Status.QUEUED, Status.STARTING, Status.RUNNING, Status.STOPPING, Status.LOST])
def test_a_run_that_goes_on_is_not_archived(status: Status, as_owner: Client, make_runs: MakeRuns) -> None:
    [run] = make_runs(status)
    response = as_owner.post(f"/runs/{run.pk}/archive/", headers={"HX-Request": "true"})
    assert f"Not archived: the run is {status.value}, stop it first." in response.headers["HX-Trigger"]
    assert f"It is {status.value}. Stop it first." in response.content.decode()
    assert reread(run).archived_at is None


def test_an_archived_run_is_neither_resumed_nor_offered(as_owner: Client, team: Team, make_runs: MakeRuns) -> None:
    [run] = make_runs(archived_at=timezone.now())
    stopped = make_runs(Status.STOPPED, archived_at=timezone.now())[0]
    assert not stopped.resume()
    stopped.archived_at = None  # as read before somebody else archived it
    assert not stopped.resume()
    assert "This run is archived. Unarchive it first." in as_owner.get(f"/runs/{stopped.pk}/").content.decode()
    assert drafts.runs_with_policies(team) == []
    assert [key for key, _ in drafts.runs_with_policies(team, also=run)] == [f"{run.pk}:final"]  # a clone of what started from it


def test_a_script_outside_that_goes_on_takes_its_run_out_of_the_archive(make_runs: MakeRuns) -> None:
    [run] = make_runs(Status.STOPPED, outside=True, archived_at=timezone.now())
    assert run.reopen("script/1", 60)
    assert run.archived_at is None


@pytest.mark.feature(6)
def test_ticked_runs_are_archived_the_others_are_left_and_said_why(as_owner: Client, make_runs: MakeRuns) -> None:
    runs = make_runs(Status.FINISHED, Status.RUNNING, Status.FAILED, Status.QUEUED)
    runs += make_runs(archived_at=timezone.now())
    answer = act(as_owner, "archive", [*runs, Run(number=99)])
    assert answer["text"] == (
        "Archived 2 runs. Left unchanged: #2 (running, stop it first); #4 (queued, stop it first); #5 (already archived); #99 (not found)."
    )
    assert answer["undo"] == {"act": "unarchive", "runs": [1, 3], "tag": ""}
    assert shown(as_owner) == [4, 2]
    back = as_owner.post("/runs/act/", {"act": "unarchive", "run": answer["undo"]["runs"]}, headers=JSON).json()
    assert (back["text"], shown(as_owner)) == ("Unarchived 2 runs.", [4, 3, 2, 1])
    assert Entry.across_teams.filter(action="run.archive").count() == 2


@pytest.mark.feature(6)
def test_ticked_runs_are_stopped(as_owner: Client, make_runs: MakeRuns) -> None:
    running, queued, done = make_runs(Status.RUNNING, Status.QUEUED, Status.FINISHED)
    answer = act(as_owner, "stop", [running, queued, done])
    assert (answer["text"], answer["undo"]) == ("Stop requested for 2 runs. Left unchanged: #3 (already finished).", None)
    assert (reread(running).status, reread(queued).status, reread(done).status) == (Status.STOPPING, Status.STOPPED, Status.FINISHED)


@pytest.mark.feature(6)
def test_a_tag_on_ticked_runs_is_taken_back_where_it_was_put(as_owner: Client, make_runs: MakeRuns) -> None:
    before, fresh, full = [*make_runs(tags=["Loop"]), *make_runs(), *make_runs(tags=[str(n) for n in range(20)])]
    answer = act(as_owner, "tag", [before, fresh, full], tag=" loop ")
    assert answer["text"] == "Tagged 1 run “loop”. Left unchanged: #1 (already tagged); #3 (already has 20 tags)."
    assert reread(fresh).tags == ["Loop"]
    undone = as_owner.post("/runs/act/", {"act": "untag", "run": answer["undo"]["runs"], "tag": answer["undo"]["tag"]}, headers=JSON).json()
    assert undone["text"] == "Removed the tag “loop” from 1 run."
    assert (reread(before).tags, reread(fresh).tags) == (["Loop"], [])
    for word, words in (("", "Enter a tag."), ("a, b", "Enter one tag, without commas."), ("x" * 31, "has 31 characters")):
        refused = act(as_owner, "tag", [fresh], tag=word)
        assert (refused["status"], refused["tone"], words in refused["text"]) == (422, "error", True)


def test_a_plain_form_comes_back_to_the_list_with_the_words(as_owner: Client, make_runs: MakeRuns) -> None:
    [run] = make_runs()
    page = as_owner.post("/runs/act/", {"act": "archive", "run": [run.number]}, follow=True)
    assert page.redirect_chain[0][0] == "/runs/"
    assert "Archived 1 run." in page.content.decode()


def test_too_many_runs_and_unknown_acts_are_refused(as_owner: Client, make_runs: MakeRuns) -> None:
    make_runs()
    many = as_owner.post("/runs/act/", {"act": "archive", "run": list(range(1, verbs.MOST_AT_ONCE + 2))}, headers=JSON)
    assert (many.status_code, many.json()["text"]) == (422, "201 runs are too many at once. Select at most 200.")
    for data in ({"act": "delete", "run": 1}, {"act": "archive"}, {"act": "archive", "run": ["x", "9" * 30]}):
        assert as_owner.post("/runs/act/", data, headers=JSON).status_code == 404
    assert shown(as_owner) == [1]


def test_another_teams_runs_are_not_found(as_stranger: Client, stranger: User, make_runs: MakeRuns) -> None:
    [run] = make_runs(Status.RUNNING, tags=["secret tag"])
    for data in ({"act": "stop"}, {"act": "tag", "tag": "mine"}):
        assert as_stranger.post("/runs/act/", {**data, "run": run.number}, headers=JSON).status_code == 404
    assert (reread(run).status, run.tags) == (Status.RUNNING, ["secret tag"])
    assert tags.list_team_tags(stranger.memberships.get().team) == []


@pytest.mark.feature(6)
def test_ticked_runs_are_queued_again_and_the_others_are_left_and_said_why(as_owner: Client, make_runs: MakeRuns) -> None:
    runs = make_runs(Status.STOPPED, Status.FAILED, Status.FINISHED, Status.RUNNING)
    runs += make_runs(Status.STOPPED, archived_at=timezone.now()) + make_runs(Status.FAILED, outside=True)
    said = act(as_owner, "resume", runs)
    assert [reread(run).status for run in runs] == ["queued", "queued", "finished", "running", "stopped", "failed"]
    assert said["text"] == (
        "Queued 2 runs again, from the last checkpoint of each. Left unchanged: #3 (already finished, clone it instead); #4 (already running); "
        "#5 (This run is archived. Unarchive it first); #6 (trained by a script elsewhere, which resumes it)."
    )
    assert Entry.across_teams.filter(action="run.resume").count() == 2
