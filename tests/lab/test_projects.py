"""Projects group runs, queues and datasets: made, renamed, put away, moved into, filtered by, and inherited by what comes out of them."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from lab.data.datasets.models import Dataset
from lab.labelling.labels.models import Kind, Queue
from lab.labelling.labels.new_queues import make_queue
from lab.teams.accounts.models import Project, Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Run
from lab.training.runs.placement import Place
from tests.conftest import make_member
from tests.lab.supervisor.spools import make_run

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def project(team: Team) -> Project:
    return Project.objects.create(team=team, name="Word problems")


def texts(response: Any) -> str:
    return str(response.content.decode())


def test_a_project_is_made_renamed_and_audited(as_owner: Client, team: Team) -> None:
    made = as_owner.post(reverse("project-new"), {"name": "  Word   problems ", "about": "small ones"}, follow=True)
    project = Project.across_teams.get()
    assert (project.team, project.name, project.about) == (team, "Word problems", "small ones")
    assert "Word problems" in texts(made)
    as_owner.post(reverse("project-change", args=[project.pk]), {"name": "Sums", "about": "small ones"})
    project.refresh_from_db()
    assert project.name == "Sums"
    assert list(Entry.across_teams.filter(kind="project").values_list("action", flat=True).order_by("pk")) == ["project.create", "project.change"]
    assert Entry.across_teams.get(action="project.change").details == {"changed": {"name": ["Word problems", "Sums"]}}


@pytest.mark.parametrize(("name", "words"), [("", "Enter a name"), ("x" * 81, "has 81 characters"), ("WORD problems", "with this name already")])
def test_a_name_that_cannot_be_is_refused_and_nothing_typed_is_lost(name: str, words: str, as_owner: Client, project: Project) -> None:
    for url in (reverse("project-new"), reverse("project-change", args=[Project.objects.create(team=project.team, name="Other").pk])):
        response = as_owner.post(url, {"name": name, "about": "typed words"})
        assert response.status_code == 422
        assert words in texts(response)
        assert "typed words" in texts(response)


def test_archiving_leaves_everything_and_is_undone(as_owner: Client, project: Project, team: Team) -> None:
    run = make_run(team, project=project)
    as_owner.post(reverse("project-archive", args=[project.pk]), follow=True)
    assert project.name not in texts(as_owner.get(reverse("projects")))
    assert project.name in texts(as_owner.get(reverse("projects") + "?archived=1"))
    assert f">{project.name}</option>" not in texts(as_owner.get(reverse("launch-recipe", args=["grpo"])))
    as_owner.post(reverse("project-move"), {"kind": "run", "id": str(make_run(team).number), "to": str(project.pk)})
    assert list(project.runs.all()) == [run]  # nothing moves into an archived one
    as_owner.post(reverse("project-restore", args=[project.pk]))
    as_owner.post(reverse("project-restore", args=[project.pk]))
    project.refresh_from_db()
    assert project.archived_at is None
    assert Entry.across_teams.filter(action="project.change").count() == 2


def test_runs_queues_and_datasets_are_moved_and_filtered(as_owner: Client, owner: User, project: Project, team: Team) -> None:
    runs = [make_run(team, name=f"run number {number}") for number in (1, 2, 3)]
    queue = make_queue(team, owner, name="pairs of answers", kind=Kind.PAIR)
    dataset = Dataset.objects.create(team=team, name="answers", created_by=owner)
    move = reverse("project-move")
    response = as_owner.post(move, {"kind": "run", "id": ["1", "3"], "to": str(project.pk), "back": "?status=open"})
    assert response.headers["Location"] == reverse("runs") + "?status=open"
    as_owner.post(move, {"kind": "queue", "id": str(queue.pk), "to": str(project.pk)})
    as_owner.post(move, {"kind": "dataset", "id": str(dataset.pk), "to": str(project.pk)})
    assert set(project.runs.all()) == {runs[0], runs[2]}
    page = texts(as_owner.get(reverse("project", args=[project.pk])))
    assert all(words in page for words in ("run number 1", "run number 3", "pairs of answers", "answers"))
    listed = texts(as_owner.get(reverse("runs") + f"?project={project.pk}"))
    assert "run number 1" in listed
    assert "run number 2" not in listed
    assert "run number 2" in texts(as_owner.get(reverse("runs") + "?project=none"))
    for name, thing in (("queues", queue), ("datasets", dataset)):
        assert reverse(name[:-1], args=[thing.pk]) in texts(as_owner.get(reverse(name) + f"?project={project.pk}"))
        assert f'data-href="{reverse(name[:-1], args=[thing.pk])}"' not in texts(as_owner.get(reverse(name) + "?project=none"))
    as_owner.post(move, {"kind": "run", "id": "1", "to": ""})
    assert set(project.runs.all()) == {runs[2]}
    assert Entry.across_teams.filter(action="project.move").count() == 4


def test_another_teams_project_is_not_found(as_owner: Client, team: Team, stranger: User) -> None:
    theirs = Project.objects.create(team=stranger.memberships.get().team, name="xqsecretq")
    run = make_run(team)
    for name in ("project", "project-change", "project-archive", "project-restore"):
        url = reverse(name, args=[theirs.pk])
        assert (as_owner.get(url) if name == "project" else as_owner.post(url, {"name": "mine"})).status_code == 404
    assert as_owner.post(reverse("project-move"), {"kind": "run", "id": str(run.number), "to": str(theirs.pk)}).status_code == 404
    assert "xqsecretq" not in texts(as_owner.get(reverse("runs") + f"?project={theirs.pk}"))
    made = as_owner.post(reverse("launch-recipe", args=["grpo"]), {"project": str(theirs.pk)})
    assert made.status_code == 422
    assert "Your team has no such project" in texts(made)
    elsewhere = make_run(theirs.team, project=theirs)
    mine = Project.objects.create(team=team, name="mine")
    assert as_owner.post(reverse("project-move"), {"kind": "run", "id": str(elsewhere.number + 5), "to": str(mine.pk)}).status_code == 404
    elsewhere.refresh_from_db()
    assert elsewhere.project == theirs


@pytest.mark.parametrize("key", ["9" * 19, str(2**63), "0"])
def test_ids_that_are_none_are_not_found(key: str, as_owner: Client, db: None) -> None:
    assert as_owner.get(f"/projects/{key}/", follow=True).status_code == 404
    assert as_owner.get(reverse("runs") + f"?project={key}").status_code == 200
    assert as_owner.get(reverse("queues") + f"?project={key}").status_code == 200
    assert as_owner.get(reverse("datasets") + f"?project={key}").status_code == 200


def test_what_comes_from_a_run_stays_in_its_project(team: Team, owner: User, project: Project) -> None:
    first, second = launch_recipe(team, owner, "demo", place=Place(project))[:2]
    assert (first.project, second.project) == (project, project)


def test_a_queue_and_a_dataset_are_made_in_a_project(as_owner: Client, owner: User, project: Project, team: Team) -> None:
    queue = make_queue(team, owner, name="pairs", kind=Kind.PAIR, project=project)
    form = texts(as_owner.get(reverse("dataset-new") + f"?queue={queue.pk}"))
    assert f'<option value="{project.pk}" selected>' in form
    as_owner.post(reverse("dataset-new"), {"name": "d", "form": "preference", "queue": str(queue.pk), "project": str(project.pk)})
    assert Dataset.across_teams.get().project == project
    refused = as_owner.post(reverse("dataset-new"), {"name": "e", "form": "preference", "queue": str(queue.pk), "project": "77777"})
    assert "Your team has no such project" in texts(refused)
    settings = as_owner.post(reverse("queue-settings", args=[queue.pk]), {"name": "pairs"})
    assert settings.status_code in (302, 422)
    assert Queue.across_teams.get().project == project  # the form of settings does not move it


def test_a_viewer_looks_and_does_not_change(team: Team, project: Project) -> None:
    client = Client()
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    page = texts(client.get(reverse("project", args=[project.pk])))
    assert project.name in page
    assert reverse("project-archive", args=[project.pk]) not in page
    assert client.post(reverse("project-new"), {"name": "x"}).status_code == 403


def test_names_are_text(as_owner: Client, team: Team) -> None:
    project = Project.objects.create(team=team, name=HOSTILE, about=HOSTILE)
    run = make_run(team, project=project)
    for url in (reverse("projects"), reverse("project", args=[project.pk]), reverse("runs"), reverse("run", args=[run.pk]), reverse("usage")):
        assert HOSTILE not in texts(as_owner.get(url))
    assert Run.across_teams.get().project == project
