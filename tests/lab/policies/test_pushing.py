"""Pushing to a hub: the real client against a hub on this machine; the token shows nowhere; permission is looked at again; cancelling."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from lab.lib.refusals import Refusal
from lab.models.policies import chores, hub_token, pushes
from lab.models.policies.models import HubToken, Push, PushState
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.teams.people.departures import deactivate_member
from lab.training.runs.models import Checkpoint
from lab.training.runs.stored_checkpoints import find_local_folder
from tests.conftest import make_member
from tests.lab.api.conftest import client_of
from tests.lab.policies.local_hub import Hub
from tests.lab.policies.making import at, final_of, place, trained

SECRET = "hf_DoNotShowThisAnywhere0123456789"


@pytest.fixture
def admin(team: Team) -> User:
    return make_member("admin@example.org", team, Role.ADMIN)


@pytest.fixture
def hub(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    found = Hub(SECRET)
    server = found.start()
    settings.HUB_URL = found.url
    yield found
    server.shutdown()


@pytest.fixture
def checkpoint(team: Team, admin: User) -> Checkpoint:
    hub_token.store_hub_token(team, admin, SECRET)
    return at(trained(team, admin, name="`run`\n# of hostile name"), 50)


def pushed(team: Team, user: User, checkpoint: Checkpoint, repository: str = "our-team/math-grpo", private: bool = True) -> Push:
    made = pushes.request_push(team, user, checkpoint, repository, private)
    pushes.execute_push(made.pk)
    made.refresh_from_db()
    return made


def test_a_policy_arrives_whole_private_and_without_the_trainers_files(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint) -> None:
    push = pushed(team, admin, checkpoint)
    assert (push.state, push.problem) == (PushState.FINISHED, "")
    assert push.url.startswith(f"{hub.url}/our-team/math-grpo/commit/")
    assert (push.done, push.total > 0) == (push.total, True)
    assert hub.repositories == {"our-team/math-grpo": True}
    files = hub.files["our-team/math-grpo"]
    assert set(files) == {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "README.md"}
    folder = find_local_folder(checkpoint)
    assert folder is not None
    assert all(files[name] == (folder / name).read_bytes() for name in files if name != "README.md")
    card = files["README.md"].decode()
    assert "\n# of hostile" not in card
    assert "reward: 0.5 at step 50" in card
    assert [entry.details.get("outcome") for entry in Entry.across_teams.filter(action="policy.push").order_by("pk")] == [None, "finished"]


def test_a_message_delivered_twice_pushes_once(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint) -> None:
    push = pushed(team, admin, checkpoint)
    before = len(hub.asked)
    pushes.execute_push(push.pk)
    assert len(hub.asked) == before


def test_the_token_shows_nowhere(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hub.refuse, hub.echo = 400, True
    refused = pushed(team, admin, checkpoint)
    assert refused.state == PushState.FAILED
    assert "400" in refused.problem
    hub.refuse = 0
    assert pushed(team, admin, checkpoint).state == PushState.FINISHED
    client.force_login(admin)
    pages = [client.get(path).content.decode() for path in ("/policies/hub/", f"/policies/{checkpoint.pk}/", f"/policies/pushes/{refused.pk}/")]
    rows = [str(value) for model in (Push, Entry) for row in model.across_teams.values() for value in row.values()]  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        cursor.execute("SELECT sealed FROM policies_hubtoken")
        rows.append(bytes(cursor.fetchone()[0]).decode("latin-1"))
    for text in [*pages, *rows, caplog.text]:
        assert SECRET not in text
    assert "…6789" in pages[0]  # its last four characters, and no more
    assert HubToken.across_teams.get().ending == "6789"


def test_what_goes_wrong_is_said_in_words(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint, settings: Any) -> None:
    hub.token = "another"
    assert "rejected the token" in pushed(team, admin, checkpoint).problem
    hub.token, hub.refuse = SECRET, 403
    assert "may not write to our-team/math-grpo" in pushed(team, admin, checkpoint).problem
    hub.refuse = 0
    settings.HUB_URL = "http://127.0.0.1:9"
    assert "cannot be reached" in pushed(team, admin, checkpoint).problem
    assert not hub.files


def test_a_public_repository_is_not_taken_for_a_private_one(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint) -> None:
    hub.repositories["our-team/math-grpo"] = False
    assert "is public" in pushed(team, admin, checkpoint).problem
    assert not hub.files
    assert pushed(team, admin, checkpoint, private=False).state == PushState.FINISHED


def test_cancelling_in_the_middle_commits_nothing(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint) -> None:
    made = pushes.request_push(team, admin, checkpoint, "our-team/math-grpo", True)

    class Cancelling(pushes.PushMonitor):
        def __call__(self, done: int, doing: str) -> None:
            if doing.startswith("sending model"):
                pushes.cancel_push(team, admin, made)
            super().__call__(done, doing)

    original, pushes.PushMonitor = pushes.PushMonitor, Cancelling  # type: ignore[misc]
    try:
        pushes.execute_push(made.pk)
    finally:
        pushes.PushMonitor = original  # type: ignore[misc]
    made.refresh_from_db()
    assert made.state == PushState.CANCELLED
    assert not hub.files


def test_the_task_looks_again_whether_it_may(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint) -> None:
    made = pushes.request_push(team, admin, checkpoint, "our-team/math-grpo", True)
    admin.memberships.update(role=Role.RESEARCHER)
    pushes.execute_push(made.pk)
    made.refresh_from_db()
    assert (made.state, "your role is researcher" in made.problem) == (PushState.FAILED, True)
    admin.memberships.update(role=Role.ADMIN, active=False)
    again = Push.objects.create(team=team, checkpoint=checkpoint, repository="a/b", by=admin)
    pushes.execute_push(again.pk)
    again.refresh_from_db()
    assert "not in team" in again.problem
    assert hub.asked == []


def test_a_removed_token_stops_what_waits(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint) -> None:
    made = pushes.request_push(team, admin, checkpoint, "our-team/math-grpo", True)
    hub_token.remove_hub_token(team, admin)
    pushes.execute_push(made.pk)
    made.refresh_from_db()
    assert "token was removed" in made.problem
    with pytest.raises(Refusal, match="no hub token"):
        pushes.request_push(team, admin, checkpoint, "our-team/other", True)


FOREIGN = ["", "name", "a/b/c", "../x", "a/..", "a/b.git", "a/ b", "https://evil/x", "a\nb/c", "a--b/c", "-a/b", "a/b?x=1", "a/" + "b" * 97]


@pytest.mark.parametrize("name", FOREIGN)
def test_names_of_repositories(name: str) -> None:
    with pytest.raises(Refusal, match="owner/name"):
        pushes.repository_of(name)


def test_a_policy_that_names_code_is_not_pushed(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint) -> None:
    run = final_of(checkpoint.run).run
    for step, config in ((61, {"auto_map": {"AutoModel": "evil.Model"}}), (62, {"text_config": {"attn_implementation": "evil/kernel"}})):
        with pytest.raises(Refusal, match=r"config\.json (has an|names a kernel)"):
            pushes.request_push(team, admin, place(run, step, **config), "our-team/x", True)
    coded = place(run, 63)
    folder = find_local_folder(coded)
    assert folder is not None
    (folder / "modeling.py").write_text("raise SystemExit")
    with pytest.raises(Refusal, match="is code"):
        pushes.request_push(team, admin, coded, "our-team/x", True)
    (folder / "modeling.py").unlink()
    (folder / "model.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(Refusal, match="not a safetensors file"):
        pushes.request_push(team, admin, coded, "our-team/x", True)


def test_pages_push_cancel_and_forget(client: Client, team: Team, admin: User, checkpoint: Checkpoint, teammate: User) -> None:
    client.force_login(teammate)
    assert client.post(f"/policies/{checkpoint.pk}/push/", {"repository": "a/b"}).status_code == 403
    assert client.post("/policies/hub/token/", {"secret": SECRET}).status_code == 403
    client.force_login(admin)
    page = client.post(f"/policies/{checkpoint.pk}/push/", {"repository": "no slash"}, follow=True).content.decode()
    assert "Enter the repository as owner/name" in page
    client.post(f"/policies/{checkpoint.pk}/push/", {"repository": "a/b"})
    push = Push.across_teams.get()
    assert (push.private, push.state) == (True, PushState.QUEUED)
    assert "Waiting for a worker" in client.get(f"/policies/pushes/{push.pk}/").content.decode()
    client.post(f"/policies/pushes/{push.pk}/cancel/")
    push.refresh_from_db()
    assert push.state == PushState.CANCELLED
    client.post("/policies/hub/token/", {"act": "remove"})
    assert not HubToken.across_teams.exists()
    assert [json.dumps(entry.details) for entry in Entry.across_teams.filter(action="secret.change").order_by("pk")] == [
        '{"stored": true, "replaced": false}',
        '{"stored": false}',
    ]


@pytest.mark.feature(80)
def test_a_program_pushes_follows_and_cancels(hub: Hub, team: Team, admin: User, checkpoint: Checkpoint, teammate: User, stranger: User) -> None:
    api, path = client_of(team, admin), f"policies/{checkpoint.pk}/push"
    assert client_of(team, teammate).send(path, {"repository": "a/b"}).status_code == 403
    assert client_of(stranger.memberships.get().team, stranger).send(path, {"repository": "a/b"}).status_code == 404
    assert [one["field"] for one in api.send(path, {"repository": "no slash"}).json()["errors"]] == ["repository"]
    made = api.send(path, {"repository": "our-team/math-grpo"})
    assert (made.status_code, made.json()["state"], made.json()["by"]["email"]) == (201, "queued", admin.email)
    assert api.send(path, {"repository": "our-team/math-grpo"}).status_code == 409
    pushes.execute_push(made.json()["id"])
    done = api.ask(f"pushes/{made.json()['id']}").json()
    assert (done["state"], done["done"], done["problem"]) == ("finished", done["total"], "")
    assert done["commit"].startswith(f"{hub.url}/our-team/math-grpo/commit/")
    second = api.send(path, {"repository": "our-team/other", "private": False}).json()
    assert api.send(f"pushes/{second['id']}/cancel").json()["state"] == "cancelled"
    assert [one["repository"] for one in api.ask(f"policies/{checkpoint.pk}/pushes").json()] == ["our-team/other", "our-team/math-grpo"]
    assert SECRET not in json.dumps([made.json(), done, second])


def test_a_push_whose_worker_is_gone_fails_with_words(team: Team, admin: User, checkpoint: Checkpoint) -> None:
    made = Push.objects.create(team=team, checkpoint=checkpoint, repository="a/b", by=admin, state=PushState.RUNNING)
    Push.across_teams.filter(pk=made.pk).update(beat_at="2020-01-01T00:00:00Z")
    chores.sweep_policies()
    made.refresh_from_db()
    assert (made.state, "worker was lost" in made.problem) == (PushState.FAILED, True)


def test_who_leaves_leaves_no_push_behind(team: Team, owner: User, admin: User, checkpoint: Checkpoint) -> None:
    waiting = pushes.request_push(team, admin, checkpoint, "our-team/a", True)
    running = Push.objects.create(team=team, checkpoint=checkpoint, repository="our-team/b", by=admin, state=PushState.RUNNING)
    deactivate_member(admin.memberships.get(team=team), owner)
    waiting.refresh_from_db()
    running.refresh_from_db()
    assert (waiting.state, running.cancel) == (PushState.CANCELLED, True)
