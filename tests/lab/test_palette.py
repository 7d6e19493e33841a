"""What Ctrl+K finds of a team: by number, by words, by kind, and only what the person may read."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from lab.data.datasets.models import Dataset
from lab.labelling.labels.models import Queue
from lab.teams.accounts.models import Role, Team, User
from lab.training.catalog.models import SavedRecipe
from lab.training.runs.models import Run
from tests.conftest import make_member


@pytest.fixture
def things(team: Team, owner: User) -> None:
    given: dict[str, Any] = {"team": team, "spec": {}, "recipe": "r", "trainer": "sft", "task": "t", "policy": "p"}
    for number, name in enumerate(("zebra baseline", "other", "zebra 3"), start=1):
        Run.objects.create(number=number, name=name, **given)
    Run.objects.create(number=4, name="zebra, put away", archived_at=timezone.now(), **given)
    Dataset.objects.create(team=team, name="Zebra pairs", created_by=owner)
    Queue.objects.create(team=team, name="zebra queue", created_by=owner)
    for name in ("Zebra recipe", "zebra, deleted"):
        version, _ = SavedRecipe.objects.save_version(team, owner, name, "", "grpo", [{"title": "GRPO", "spec": {}}])
    version.recipe.delete_softly()


def found(client: Client, text: str) -> list[tuple[str, str]]:
    return [(one["kind"], one["words"]) for one in client.get("/palette/", {"q": text}).json()["found"]]


@pytest.mark.usefixtures("things")
def test_things_are_found_by_every_word_of_their_name(as_owner: Client) -> None:
    assert found(as_owner, "ZEBRA") == [
        ("run", "#3 zebra 3"),
        ("run", "#1 zebra baseline"),
        ("archived run", "#4 zebra, put away"),
        ("recipe", "Zebra recipe"),
        ("queue", "zebra queue"),
        ("dataset", "Zebra pairs"),
    ]
    assert found(as_owner, "base zeb") == [("run", "#1 zebra baseline")]
    assert found(as_owner, "3")[0] == ("run", "#3 zebra 3")
    assert found(as_owner, "#2") == [("run", "#2 other")]
    assert found(as_owner, "dapo")[0] == ("method", "DAPO (dapo)")
    assert ("recipe", "GRPO") in [(kind, words[:4]) for kind, words in found(as_owner, "grpo")]
    assert found(as_owner, "  ") == found(as_owner, "\0" * 3) == []


@pytest.mark.usefixtures("things")
def test_every_address_that_is_found_opens(as_owner: Client) -> None:
    for text in ("zebra", "grpo", "dapo"):
        for entry in as_owner.get("/palette/", {"q": text}).json()["found"]:
            assert as_owner.get(entry["url"]).status_code == 200, entry


@pytest.mark.usefixtures("things")
def test_nobody_finds_what_they_may_not_read(client: Client, as_stranger: Client, team: Team) -> None:
    assert found(as_stranger, "zebra") == []
    client.force_login(make_member("annotator@example.org", team, Role.ANNOTATOR))
    assert {kind for kind, _ in found(client, "zebra")} <= {"queue"}
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    assert "recipe" not in {kind for kind, _ in found(client, "grpo")}  # its form is for those who launch
