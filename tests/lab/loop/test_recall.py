"""Recall: labels go with their history, what was made of them is flagged down to the last run, the next version is without them, undoing restores."""

import threading
import time
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from lab.data.datasets.downstream import flags_of
from lab.data.datasets.freezing import build_version
from lab.data.datasets.models import Recall, RecallKind, Row, Version, VersionState
from lab.data.loop import chores, recall_work
from lab.data.loop.models import Match, Withdrawal
from lab.data.loop.recall_effects import find_recall_downstream, flags_of_run
from lab.labelling.labels.models import Change, Item, ItemState, Judgement, JudgementState, Preference
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Run
from tests.conftest import make_member
from tests.hostile import PAYLOADS
from tests.lab.loop.making import SPEC, finished_run, frozen, judge, labelled_queue, place, sampled


@pytest.fixture
def ann(team: Team) -> User:
    return make_member("ann@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def version(team: Team, owner: User, ann: User, settings: Any, tmp_path: Any) -> Version:
    """A version of a queue that the owner has labelled, but for the first three items, which are Ann's."""
    settings.DATASETS_ROOT = tmp_path / "datasets"
    run = finished_run(team, owner, *sampled(50, 53))
    queue = labelled_queue(team, owner, run)
    mine = list(queue.items.order_by("place").values_list("pk", flat=True)[:3])
    Judgement.across_teams.filter(item__in=mine).update(user=ann)
    return frozen(team, owner, queue)


def trained(version: Version, owner: User) -> tuple[Run, Run]:
    """A run on the version, and one from that run's policy."""
    dpo = {**SPEC, "recipe": "dpo", "training": {"trainer": "dpo", "max_steps": 20}, "dataset": {"file": version.train_file}}
    child = launch_run(version.dataset.team, owner, dpo, "child")
    place(child, 20, "final", final=True)
    grandchild = launch_run(version.dataset.team, owner, {**SPEC, "policy": {"kind": "run", "run": str(child.pk)}}, "grandchild")
    return child, grandchild


def send(client: Client, **values: Any) -> Any:
    return client.post("/recalls/new/", {"reason": "read them upside down", "token": "t", **values})


def states() -> dict[str, int]:
    found: dict[str, int] = {}
    for state in Judgement.across_teams.values_list("state", flat=True):
        found[state] = found.get(state, 0) + 1
    return found


@pytest.mark.feature(102)
def test_the_preview_shows_everything_downstream_and_changes_nothing(as_owner: Client, version: Version, owner: User, ann: User) -> None:
    child, grandchild = trained(version, owner)
    Match.objects.create(team=version.dataset.team, child=child)
    text = as_owner.get(f"/recalls/new/?kind=labeller&labeller={ann.pk}").content.decode()
    for part in ("<strong>3 labels</strong>", "Preferences v1", f"/runs/{child.pk}/", f"/runs/{grandchild.pk}/", "not queued yet"):
        assert part in text
    assert not Recall.across_teams.exists()
    assert states() == {"submitted": 16}


def test_a_labellers_labels_go_with_their_history(as_owner: Client, version: Version, owner: User, ann: User) -> None:
    child, grandchild = trained(version, owner)
    response = send(as_owner, kind="labeller", labeller=ann.pk)
    recall = Recall.across_teams.get()
    assert response.url == f"/recalls/#recall-{recall.pk}"
    assert states() == {"withdrawn": 3, "submitted": 13}
    assert Preference.across_teams.count() == 13
    assert Change.across_teams.filter(what="recalled", comment__contains="upside down").count() == 3
    assert Item.across_teams.filter(state=ItemState.OPEN, labels=0, room=1).count() == 3  # to be labelled again
    assert flags_of([version]) == {version.pk: [recall]}
    reach = find_recall_downstream(recall)
    assert ([one.pk for one in reach.trained], [one.pk for one in reach.descended]) == ([child.pk], [grandchild.pk])
    for run in (child, grandchild):
        assert "Labels used by this run were recalled" in as_owner.get(f"/runs/{run.pk}/").content.decode()
    source = Run.across_teams.get(name="source")
    assert flags_of_run(source) == []
    assert "were recalled" not in as_owner.get(f"/runs/{source.pk}/").content.decode()


@pytest.mark.feature(102)
def test_rebuilding_leaves_them_out_and_shows_what_differs(as_owner: Client, version: Version, ann: User) -> None:
    before = version.path().read_bytes()
    send(as_owner, kind="labeller", labeller=ann.pk)
    recall = Recall.across_teams.get()
    assert f"/recalls/{recall.pk}/rebuild/{version.pk}/" in as_owner.get("/recalls/").content.decode()
    response = as_owner.post(f"/recalls/{recall.pk}/rebuild/{version.pk}/", {"token": "r"})
    second = Version.across_teams.get(number=2)
    assert response.url == f"/datasets/versions/{second.pk}/"
    build_version(second.pk)
    second.refresh_from_db()
    assert second.state == VersionState.READY
    assert second.rule == version.rule
    assert second.rows.count() == 13
    assert not second.rows.filter(labellers__contains=[ann.pk]).exists()
    assert flags_of([version, second]) == {version.pk: [recall]}
    assert version.path().read_bytes() == before
    page = as_owner.get("/recalls/").content.decode()
    assert f"/datasets/versions/{version.pk}/diff/?against={second.pk}" in page
    assert f"/rebuild/{version.pk}/" not in page


def test_undoing_restores_every_label(as_owner: Client, version: Version, ann: User) -> None:
    before = sorted(Preference.across_teams.values_list("judgement", "chosen", "rejected"))
    items = sorted(Item.across_teams.values_list("pk", "state", "labels", "room"))
    send(as_owner, kind="labeller", labeller=ann.pk)
    recall = Recall.across_teams.get()
    as_owner.post(f"/recalls/{recall.pk}/undo/")
    recall.refresh_from_db()
    assert recall.undone_at is not None
    assert states() == {"submitted": 16}
    assert sorted(Preference.across_teams.values_list("judgement", "chosen", "rejected")) == before
    assert sorted(Item.across_teams.values_list("pk", "state", "labels", "room")) == items
    assert flags_of([version]) == {}
    assert not Withdrawal.across_teams.exists()
    undone = recall.undone_at
    as_owner.post(f"/recalls/{recall.pk}/undo/")
    recall.refresh_from_db()
    assert recall.undone_at == undone


@pytest.mark.parametrize("kind", ["prompt", "queue"])
def test_a_prompts_and_a_queues_items_leave_with_their_labels(as_owner: Client, version: Version, kind: str) -> None:
    item = Item.across_teams.order_by("place")[0]
    chosen = Item.across_teams.filter(prompt=item.prompt_id) if kind == "prompt" else Item.across_teams.all()
    Item.across_teams.filter(pk=item.pk).update(state=ItemState.SETTLED, final={"verdict": "a"})
    count = chosen.count()
    send(as_owner, kind=kind, **{kind: item.prompt_id if kind == "prompt" else item.queue_id})
    assert chosen.filter(state=ItemState.DROPPED).count() == count
    assert states().get("withdrawn", 0) == count
    assert [one.pk for one in find_recall_downstream(Recall.across_teams.get()).versions] == [version.pk]
    as_owner.post(f"/recalls/{Recall.across_teams.get().pk}/undo/")
    item.refresh_from_db()
    assert item.state == ItemState.SETTLED
    assert chosen.filter(state=ItemState.DONE).count() == count - 1
    assert states() == {"submitted": 16}


def test_what_a_labeller_decided_is_open_again(as_owner: Client, version: Version, owner: User, ann: User) -> None:
    item = Item.across_teams.order_by("place").last()
    assert item is not None
    final = {"verdict": "b", "strength": 2}
    Item.across_teams.filter(pk=item.pk).update(state=ItemState.SETTLED, final=final, final_by=ann, final_at=item.queue.created_at)
    send(as_owner, kind="labeller", labeller=ann.pk)
    item.refresh_from_db()
    assert (item.state, item.final, item.final_by) == (ItemState.DONE, None, None)  # the owner's own label stands
    as_owner.post(f"/recalls/{Recall.across_teams.get().pk}/undo/")
    item.refresh_from_db()
    assert (item.state, item.final, item.final_by) == (ItemState.SETTLED, final, ann)


def test_a_rules_setting_flags_versions_and_takes_no_label(as_owner: Client, version: Version) -> None:
    send(as_owner, kind="rule", rule='{"aggregation": "majority"}')
    assert states() == {"submitted": 16}
    assert list(flags_of([version])) == [version.pk]
    page = as_owner.get("/recalls/").content.decode()
    assert "aggregation = majority" in page
    assert "Freeze under another rule" in page


def test_a_label_that_two_recalls_took_comes_back_with_the_second(as_owner: Client, version: Version, ann: User) -> None:
    item = Judgement.across_teams.filter(user=ann).order_by("pk")[0].item
    send(as_owner, kind="labeller", labeller=ann.pk, token="1")
    send(as_owner, kind="prompt", prompt=item.prompt_id, token="2")
    first, second = Recall.across_teams.order_by("pk")
    as_owner.post(f"/recalls/{first.pk}/undo/")
    assert Judgement.objects.get(item=item).state == JudgementState.WITHDRAWN
    assert states() == {"withdrawn": 1, "submitted": 15}
    as_owner.post(f"/recalls/{second.pk}/undo/")
    assert states() == {"submitted": 16}


def test_labels_given_after_the_recall_stay(as_owner: Client, version: Version, ann: User) -> None:
    send(as_owner, kind="labeller", labeller=ann.pk)
    item = Item.across_teams.filter(state=ItemState.OPEN)[0]
    Judgement.objects.filter(item=item).delete()
    judge(item, ann)
    chores.run_loop_chores()
    assert Judgement.objects.get(item=item).state == JudgementState.SUBMITTED


def test_workers_finish_what_a_person_did_not_wait_for(as_owner: Client, version: Version, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall_work, "BATCH", 3)
    recall = Recall.objects.create(team=version.dataset.team, kind=RecallKind.QUEUE, queue=Item.across_teams.all()[0].queue, reason="r", by=owner)
    assert not recall_work.carry_out(recall, seconds=0)
    assert "workers are continuing" in as_owner.get("/recalls/").content.decode()
    for _ in range(20):
        chores.run_loop_chores()
    assert states() == {"withdrawn": 16}
    assert not recall_work.has_recall_work_left(recall)
    Recall.across_teams.filter(pk=recall.pk).update(undone_at=recall.at)
    for _ in range(20):
        chores.run_loop_chores()
    assert states() == {"submitted": 16}


@pytest.mark.django_db(transaction=True)
def test_several_workers_take_every_label_back_once(version: Version, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall_work, "BATCH", 2)
    recall = Recall.objects.create(team=version.dataset.team, kind=RecallKind.QUEUE, queue=Item.across_teams.all()[0].queue, reason="r", by=owner)
    errors: list[BaseException] = []
    deadline = time.monotonic() + 240

    def work() -> None:
        try:
            while (
                recall_work.has_recall_work_left(recall) and time.monotonic() < deadline
            ):  # while another worker has the recall, a step does nothing
                recall_work.process_recall_batch(recall.pk)
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert states() == {"withdrawn": 16}
    assert Change.across_teams.filter(what="recalled", judgement__isnull=False).count() == 16
    assert Withdrawal.across_teams.count() == 32


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "labeller", "labeller": ""}, "Choose what to recall"),
        ({"kind": "labeller", "labeller": "99999999999999999999"}, "no such labeller"),
        ({"kind": "prompt", "prompt": "-1"}, "no such prompt"),
        ({"kind": "queue", "queue": "x"}, "no such queue"),
        ({"kind": "rule", "rule": "{}"}, "no such rule"),
        ({"kind": "labeller", "labeller": "{ann}", "reason": "  "}, "Enter a reason"),
        ({"kind": "labeller", "labeller": "{ann}", "reason": "x" * 2001}, "At most 2,000"),
    ],
)
def test_bad_input_is_refused_at_its_field(as_owner: Client, version: Version, ann: User, values: dict[str, str], words: str) -> None:
    response = send(as_owner, **{name: text.format(ann=ann.pk) if text == "{ann}" else text for name, text in values.items()})
    assert response.status_code == 422
    assert words in response.content.decode()
    assert not Recall.across_teams.exists()


def test_sending_twice_recalls_once(as_owner: Client, version: Version, ann: User) -> None:
    first, second = (send(as_owner, kind="labeller", labeller=ann.pk) for _ in range(2))
    assert first.url == second.url
    assert Recall.across_teams.count() == 1


def test_only_leads_of_the_team_recall(client: Client, as_stranger: Client, as_owner: Client, version: Version, ann: User) -> None:
    send(as_owner, kind="labeller", labeller=ann.pk)
    recall = Recall.across_teams.get()
    paths = [f"/recalls/{recall.pk}/undo/", f"/recalls/{recall.pk}/rebuild/{version.pk}/"]
    assert [as_stranger.post(path).status_code for path in paths] == [404, 404]
    assert "upside down" not in as_stranger.get("/recalls/").content.decode()
    assert "no such labeller" in send(as_stranger, kind="labeller", labeller=ann.pk).content.decode()
    queue = Item.across_teams.all()[0].queue
    assert "no such queue" in send(as_stranger, kind="queue", queue=queue.pk).content.decode()
    client.force_login(ann)
    assert [client.post(path).status_code for path in paths] == [403, 403]
    assert client.get("/recalls/").status_code == client.get("/recalls/new/").status_code == 403
    recall.refresh_from_db()
    assert recall.undone_at is None


def test_hostile_reasons_are_text(as_owner: Client, version: Version, owner: User, ann: User) -> None:
    markup = [text for text in PAYLOADS if "<" in text][:8]
    for text in markup:
        Recall.objects.create(team=version.dataset.team, kind=RecallKind.LABELLER, labeller=ann, reason=text, by=owner)
    child, _ = trained(version, owner)
    pages = as_owner.get("/recalls/").content.decode() + as_owner.get(f"/runs/{child.pk}/").content.decode()
    assert not any(text in pages for text in markup)
    assert Row.objects.filter(version=version).count() == 16
