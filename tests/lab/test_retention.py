"""A team's rule on rollouts: the preview is what is dropped, what somebody points to stays, and nothing of another team is touched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from lab.data.datasets.models import Dataset, Row, Version
from lab.edges.api.tokens import create_access_token
from lab.labelling.labels.models import Kind
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.lib.refusals import Refusal
from lab.models.branches.models import Branch
from lab.models.embeddings.models import ClusterMember, Embedder, Embedding, EmbeddingJob, JobKind
from lab.rollouts.annotations.models import Comment, Rating, RolloutTag, StepMark, Tag
from lab.rollouts.browse.indexing import index_all
from lab.rollouts.browse.models import SavedView
from lab.rollouts.reading.episode_nodes import list_nodes
from lab.rollouts.trajectories.cards import lengths_of
from lab.rollouts.trajectories.keepers import HOLD, KEEPERS, hold_rollouts
from lab.rollouts.trajectories.models import DroppedRollouts, Rollout, RolloutTokens, RolloutWords
from lab.rollouts.trajectories.turn_tree import read_turn_tree
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.models import Run, Status
from lab.watching.reports.verbs import create_report
from lab.watching.retention import chores, rules
from lab.watching.retention.models import RolloutRule
from lab.watching.retention.plan import plan_retention
from tests.conftest import make_member
from tests.lab.supervisor.spools import make_run, started, steps, write

LONG_AGO = timezone.now() - timedelta(days=40)
MakeRun = Callable[..., Run]


@pytest.fixture
def stored_run() -> MakeRun:
    """A run of ``last`` steps, two groups of four rollouts each, that ended long ago."""

    def make(team: Team, last: int = 4, **fields: Any) -> Run:
        run = make_run(team, **{"status": Status.FINISHED, **fields})
        write(run.folder, [started(), *steps(1, last)])
        while ingest_spool(run):
            pass
        Run.objects.filter(team=team, pk=run.pk).update(finished_at=LONG_AGO, created_at=LONG_AGO)
        run.refresh_from_db()
        return run

    return make


def save(team: Team, **fields: Any) -> RolloutRule:
    """The team's rule, due tonight."""
    rules.save_rule(team, None, RolloutRule(team=team, **fields))
    RolloutRule.objects.filter(team=team).update(looked_at=None)
    return rules.rule_of(team)


@pytest.fixture(autouse=True)
def by_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are due from midnight on, so that these tests are of no hour."""
    monkeypatch.setattr(chores, "NIGHT", timedelta())


def steps_left(run: Run) -> list[int]:
    return sorted(set(Rollout.objects.filter(run=run).values_list("step", flat=True)))


def one_of(run: Run, step: int) -> Rollout:
    return Rollout.objects.filter(run=run, step=step, group=0, sample=1).get()


def test_the_preview_is_what_is_dropped_and_counts_stay_right(team: Team, stored_run: MakeRun) -> None:
    run, short = stored_run(team, 6), stored_run(team, 1)
    index_all()
    Rollout.objects.filter(run=run, step=1, sample=0).update(superseded=True)
    Run.objects.filter(team=team, pk=run.pk).update(rollouts=46)
    ingested = run.ingested
    rule = save(team, rollouts_days=30, keep_every=3)
    plan = plan_retention(rule)
    assert (plan.rollouts, plan.tokens, plan.kept) == (40, 0, {"of every 3 steps": 16})
    assert {drop.run.pk: drop.rollouts for drop in plan.runs} == {run.pk: 32, short.pk: 8}
    chores.drop_due_rollouts()
    run.refresh_from_db()
    assert (run.rollouts, run.ingested, steps_left(run), steps_left(short)) == (16, ingested, [3, 6], [])
    dropped = {one.run_id: one.rollouts for one in DroppedRollouts.objects.filter(run__team=team)}
    assert dropped == {run.pk: 32, short.pk: 8}
    left = set(Rollout.objects.filter(run__team=team).values_list("pk", flat=True))
    assert set(RolloutTokens.across_teams.values_list("pk", flat=True)) == left == set(RolloutWords.across_teams.values_list("pk", flat=True))
    assert ingest_spool(run) is None
    assert plan_retention(rule).rollouts == 0
    entries = Entry.objects.of(team).filter(action="rollouts.drop").order_by("pk")
    assert [entry.details["rollouts"] for entry in entries] == [32, 8]
    chores.drop_due_rollouts()  # tonight's round has been
    assert entries.count() == 2


def test_token_arrays_go_alone_and_turns_are_in_code_points_then(team: Team, stored_run: MakeRun, as_owner: Client) -> None:
    run = stored_run(team, 2)
    spoken = one_of(run, 1)
    Rollout.objects.filter(run=run, pk=spoken.pk).update(
        turns=[["assistant", 0, 2], ["tool", 2, 3], ["assistant", 3, 4]],
        nodes=[{"number": 0, "by": "policy", "start": 0, "end": 2}, {"number": 1, "by": "policy", "fate": "cut", "text": "gone"}],
    )
    rule = save(team, tokens_days=30, rollouts_days=60, keep_every=2)
    assert (plan_retention(rule).rollouts, plan_retention(rule).tokens) == (0, 8)
    chores.drop_due_rollouts()
    run.refresh_from_db()
    assert (run.rollouts, DroppedRollouts.objects.get(run=run).tokens, plan_retention(rule).tokens) == (16, 8, 0)
    assert not RolloutTokens.objects.filter(rollout__run=run, rollout__step=1).exclude(ids=b"").exists()
    assert RolloutTokens.objects.filter(rollout__run=run, rollout__step=2).count() == 8
    spoken.refresh_from_db()
    assert spoken.turns == [["assistant", 0, 3], ["tool", 3, 6], ["assistant", 6, 10]]  # tokens of 1, 2, 3 and 4 code points
    assert [(node["start"], node["end"]) for node in spoken.nodes] == [(0, 3), (-1, -1)]
    first, gone = list_nodes(read_turn_tree(spoken, lengths_of([spoken])[spoken.pk]))
    assert "".join(piece.text for piece in first.pieces) == spoken.completion[:3]
    assert "".join(piece.text for piece in gone.pieces) == "gone"
    head = as_owner.get(f"/rollouts/{spoken.pk}/packed/").content
    assert b"dropped by the team's retention rule" in head
    page = as_owner.get(f"/runs/{run.pk}/rollouts/?step=1").content.decode()
    assert "Token arrays of 8 rollouts were dropped by the team's" in page


def point_to(team: Team, owner: User, run: Run) -> dict[int, str]:
    """Step → who points to a rollout of it from now on."""
    tag = Tag.objects.create(team=team, name="hack")
    RolloutTag.objects.create(rollout=one_of(run, 1), tag=tag, user=owner)
    Rating.objects.create(rollout=one_of(run, 2), user=owner, value=5)
    StepMark.objects.create(rollout=one_of(run, 3), user=owner, start=0, end=1, mark="good")
    Comment.objects.create(team=team, rollout=one_of(run, 4), user=owner, text="why?")
    first, second = Rollout.objects.filter(run=run, step=5, group=0, sample__lt=2).order_by("sample").values_list("pk", flat=True)
    make_queue(team, owner, name="pairs", kind=Kind.PAIR, items=[NewItem(one_of(run, 5).prompt_id, (first, second))])
    dataset = Dataset.objects.create(team=team, name="d", form="preference")
    version = Version.objects.create(dataset=dataset, number=1)
    Row.objects.create(version=version, place=0, split="train", row={}, digest="x", rollouts=[one_of(run, 6).pk])
    create_report(team, owner, title="r", text=f"```rollout\n{one_of(run, 7).pk}\n```\n\n```group\nrun: {run.number}\nstep: 8\ngroup: 0\n```")
    Branch.objects.create(team=team, user=owner, rollout=one_of(run, 9), place=1, label="final", choice="policy")
    job = EmbeddingJob.objects.create(team=team, kind=JobKind.CLUSTERS, most=10)
    ClusterMember.objects.create(job=job, rollout=one_of(run, 10), cluster=1, distance=0, x=0, y=0)
    SavedView.objects.create(team=team, owner=owner, name="few", query=f"run={run.number}&f=step:ge:11&f=step:le:11")
    SavedView.objects.create(team=team, owner=owner, name="a whole run", query=f"run={run.number}")
    return dict(enumerate(("annotations",) * 4 + ("queues", "datasets", "reports", "reports", "branches", "clusterings", "views"), 1))


def test_whatever_is_pointed_to_stays_with_its_group(team: Team, owner: User, stored_run: MakeRun) -> None:
    run = stored_run(team, 14)
    pointed = point_to(team, owner, run)
    assert set(pointed.values()) == set(KEEPERS)
    gone = one_of(run, 12)
    Comment.objects.create(team=team, rollout=gone, user=owner, text="deleted", deleted_at=timezone.now())
    Embedding.objects.create(rollout=gone, embedder=Embedder.objects.create(team=team, kind="policy", name="e", key="k"), vector=b"")
    rule = save(team, rollouts_days=30)
    plan = plan_retention(rule)
    expected: dict[str, int] = {}
    for step, name in pointed.items():
        words = KEEPERS[name].words
        expected[words] = expected.get(words, 0) + (8 if step == 11 else 4)  # the view shows both groups of its step
    assert (plan.kept, plan.rollouts) == (expected, 14 * 8 - sum(expected.values()))
    chores.drop_due_rollouts()
    assert steps_left(run) == list(range(1, 12))
    assert Rollout.objects.filter(run=run).count() == sum(expected.values())
    assert RolloutTokens.objects.filter(rollout__run=run).exclude(ids=b"").count() == sum(expected.values())
    assert not Embedding.across_teams.exists()


def test_every_table_that_refers_to_rollouts_keeps_them_or_goes_with_them() -> None:
    """A new table has to say which: register a keeper, or stand here."""
    goes_with = {
        "trajectories_rollouttokens",
        "trajectories_rolloutwords",
        "embeddings_embedding",
        "embeddings_embeddingjob",
        "branches_tokenalternatives",
    }
    queries = " ".join(keeper.query for keeper in KEEPERS.values())
    refer = {
        model._meta.db_table
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if (getattr(field, "related_model", None) is Rollout and field.concrete) or (field.name in ("rollout", "rollouts") and field.concrete)
    } - {"runs_run", "trajectories_droppedrollouts"}  # counts
    written = {"playground_sample", "branches_continuation"}  # what went to a queue, whose item keeps it
    assert {table for table in refer if not re.search(rf"FROM {table}\b", queries)} == goes_with | written


def test_runs_that_train_or_are_tagged_or_too_young_or_of_another_team_lose_nothing(team: Team, stored_run: MakeRun) -> None:
    training = stored_run(team, 1, status=Status.RUNNING)
    tagged = stored_run(team, 1, tags=["keep"])
    young = stored_run(team, 1)
    read = stored_run(team, 1)  # from files: its end lies years back, it was read today
    Run.objects.filter(team=team, pk=young.pk).update(finished_at=timezone.now())
    Run.objects.filter(team=team, pk=read.pk).update(created_at=timezone.now())
    other_team = Team.objects.create(name="Others", slug="others")
    theirs, due = stored_run(other_team, 1), stored_run(team, 1)
    rule = save(team, rollouts_days=30)
    assert plan_retention(rule).spared == {
        "of runs that have not ended": 8,
        "of runs tagged “keep”": 8,
        "of runs that ended too recently": 16,
    }
    chores.drop_due_rollouts()
    assert [len(steps_left(run)) for run in (training, tagged, young, read, theirs, due)] == [1, 1, 1, 1, 1, 0]
    assert not RolloutRule.objects.filter(team=other_team).exists()


def test_a_worker_that_is_killed_leaves_whole_pieces_and_another_goes_on(
    team: Team, owner: User, stored_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored_run(team, 5)
    RolloutTag.objects.create(rollout=one_of(run, 2), tag=Tag.objects.create(team=team, name="t"), user=owner)
    rule = save(team, rollouts_days=30)
    expected = plan_retention(rule).rollouts
    monkeypatch.setattr(chores, "SECONDS", -1.0)
    chores.drop_due_rollouts()  # a round that has no time left does nothing
    assert steps_left(run) == [1, 2, 3, 4, 5]
    monkeypatch.setattr(chores, "SECONDS", 60.0)
    monkeypatch.setattr(chores, "PIECE", 10)  # not a multiple of a group's size
    acted = {"pieces": 0}
    record = chores.record_audit_entry

    def killed(*args: Any, **details: Any) -> None:
        record(*args, **details)
        acted["pieces"] += 1
        if acted["pieces"] == 2:
            raise KeyboardInterrupt  # at the end of a piece, before its commit

    monkeypatch.setattr(chores, "record_audit_entry", killed)
    with pytest.raises(KeyboardInterrupt):
        chores.drop_due_rollouts()
    run.refresh_from_db()
    stored = Rollout.objects.filter(run=run)
    assert (run.rollouts, stored.count(), DroppedRollouts.objects.get(run=run).rollouts) == (32, 32, 8)  # the first piece: two whole groups
    chores.drop_due_rollouts()
    run.refresh_from_db()
    assert (run.rollouts, stored.count(), DroppedRollouts.objects.get(run=run).rollouts) == (4, 4, expected)
    assert acted["pieces"] > 3


@pytest.mark.django_db(transaction=True)
def test_of_several_workers_one_acts_and_none_while_a_queue_is_made(team: Team, stored_run: MakeRun) -> None:
    run = stored_run(team, 1)
    save(team, rollouts_days=30)
    other = connection.copy()
    try:
        for held in ((chores.LOCK,), (HOLD, team.pk)):
            with other.cursor() as cursor:
                cursor.execute(f"SELECT pg_advisory_lock({', '.join(['%s'] * len(held))})", held)
            chores.drop_due_rollouts()
            assert steps_left(run) == [1]
            with other.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock_all()")
    finally:
        other.close()
    ids = set(Rollout.objects.filter(run=run).values_list("pk", flat=True))
    with transaction.atomic():
        hold_rollouts(team, ids)
    chores.drop_due_rollouts()
    assert steps_left(run) == []
    with transaction.atomic(), pytest.raises(Refusal, match="retention rule"):  # what was chosen before the drop
        hold_rollouts(team, ids)


def test_a_rule_is_previewed_and_saved_by_admins_and_its_change_is_in_the_audit_log(
    client: Client, team: Team, as_owner: Client, stored_run: MakeRun
) -> None:
    run = stored_run(team, 2)
    address = "/usage/retention/"
    assert "All rollouts are kept" in as_owner.get(address).content.decode()
    given = {"tokens_days": "", "rollouts_days": "30", "keep_every": "2", "keep_tag": "keep"}
    preview = as_owner.get(address, given).content.decode()
    assert ">8<" in preview
    assert run.name in preview
    assert not RolloutRule.objects.filter(team=team).exists()
    assert as_owner.post(address, {**given, "tokens_days": "30"}).status_code == 422
    assert as_owner.post(address, {**given, "rollouts_days": "soon"}).status_code == 422
    assert as_owner.post(address, {"keep_every": "1"}).status_code == 422
    assert not RolloutRule.objects.filter(team=team).exists()
    assert as_owner.post(address, given).status_code == 302
    entry = Entry.objects.of(team).get(action="rollouts.retention")
    assert entry.details["changed"] == {"rollouts_days": [None, 30], "keep_every": [0, 2]}
    chores.drop_due_rollouts()
    assert steps_left(run) == [1, 2]  # not before the next night
    RolloutRule.objects.filter(team=team).update(looked_at=None)
    chores.drop_due_rollouts()
    assert "8 rollouts were dropped by the team's" in as_owner.get(f"/runs/{run.pk}/").content.decode()
    assert "8 rollouts of this run were dropped by the team's" in as_owner.get(f"/rollouts/?run={run.number}").content.decode()
    client.force_login(make_member("reader@example.org", team, Role.RESEARCHER))
    assert client.get(address).status_code == 200
    assert client.post(address, given).status_code == 403


def test_the_api_previews_and_sets_the_rule(client: Client, team: Team, owner: User, stored_run: MakeRun) -> None:
    run = stored_run(team, 2)
    _, secret = create_access_token(team, owner, "t", ["usage.read", "usage.manage"], None)
    headers = {"Authorization": f"Bearer {secret}"}
    given = json.dumps({"rollouts_days": 30, "keep_every": 2})

    def ask(method: str, path: str, body: str = "") -> Any:
        answer = getattr(client, method)(
            f"/api/v1/retention/rollouts{path}", *([body] if body else []), content_type="application/json", headers=headers
        )
        return answer.status_code, answer.json()

    status, plan = ask("post", "/preview", given)
    assert (status, plan["rollouts"], plan["runs"]) == (200, 8, [{"run": str(run.pk), "number": run.number, "rollouts": 8, "tokens": 0}])
    assert plan["kept"] == [{"reason": "of every 2 steps", "rollouts": 8}]
    assert ask("put", "", json.dumps({"rollouts_days": 30, "tokens_days": 40}))[0] == 422
    assert ask("put", "", given)[1]["rule"] == {"tokens_days": None, "rollouts_days": 30, "keep_every": 2, "keep_tag": "keep"}
    RolloutRule.objects.filter(team=team).update(looked_at=None)
    chores.drop_due_rollouts()
    assert ask("get", "")[1]["dropped"][0]["rollouts"] == 8
