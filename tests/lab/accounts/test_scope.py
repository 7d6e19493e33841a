"""A query over what teams own raises until it names a team; with one it gives that team's rows alone."""

import io
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import models, transaction
from django.db.models import Count, Exists, F, OuterRef, Prefetch, Q, Subquery
from django.test import RequestFactory

from lab.data.datasets.models import Dataset, Version
from lab.edges.operations.site import site
from lab.labelling.labels.models import Item, Judgement, KeyMap, Queue
from lab.rollouts.annotations.models import Comment
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.teams.accounts.models import Membership, Project, SetupLink, Team, User
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamRequired
from lab.teams.audit.models import ChainLink, Unchained
from lab.training.catalog.models import PublishedCatalog
from lab.training.runs.checkpoint_rows import StoreDeletion
from lab.training.runs.models import Run, Status
from lab.training.workers.models import Worker, WorkerStart, WorkerUse
from lab.watching.alerts.models import Watch
from tests.lab.cast import Cast, make_cast

NOBODYS = {  # models that belong to no team, and why
    User: "may be in several teams",
    Team: "is the team",
    Membership: "says who is in which team: people are looked up in all of theirs",
    SetupLink: "exists before the first team",
    KeyMap: "a person's keys, the same in every team",
    ChainLink: "one chain over the entries of the whole installation",
    Unchained: "entries of the whole installation that wait for the chain",
    Watch: "how far a watcher of the installation has looked",
    Worker: "a process of the installation",
    WorkerUse: "what the machine of such a process did",
    StoreDeletion: "a name in the store whose run, and perhaps its team, is gone",
    WorkerStart: "a command of the installation that asked for such a process",
    PublishedCatalog: "tasks and methods of the installation's workers",
}
OURS = [model for model in apps.get_models() if model.__module__.startswith("lab.")]
OWNED = [model for model in OURS if issubclass(model, TeamOwned)]
VERBS: dict[str, Callable[[Any], object]] = {
    "iterate": list,
    "count": lambda rows: rows.count(),
    "length": len,
    "exists": lambda rows: rows.exists(),
    "get": lambda rows: rows.get(pk=None),
    "first": lambda rows: rows.first(),
    "last": lambda rows: rows.last(),
    "latest": lambda rows: rows.latest("pk"),
    "in_bulk": lambda rows: rows.in_bulk(),
    "iterator": lambda rows: list(rows.iterator()),
    "values": lambda rows: list(rows.values("pk")),
    "values_list": lambda rows: list(rows.values_list("pk", flat=True)),
    "slice": lambda rows: list(rows.order_by("pk")[:1]),
    "index": lambda rows: rows.order_by("pk")[0],
    "aggregate": lambda rows: rows.aggregate(how_many=Count("pk")),
    "annotate": lambda rows: list(rows.annotate(how_many=Count("pk"))),
    "distinct": lambda rows: rows.distinct().count(),
    "update": lambda rows: rows.update(pk=F("pk")),
    "delete": lambda rows: rows.delete(),
    "lock": lambda rows: list(rows.select_for_update()),
    "explain": lambda rows: rows.explain(),
    "union": lambda rows: list(rows.union(rows)),
    "contains": lambda rows: rows.contains(rows.model(pk=uuid.UUID(int=1) if rows.model._meta.pk.get_internal_type() == "UUIDField" else 1)),
    "subquery": lambda rows: list(Team.objects.filter(pk__in=rows.values("pk"))),
    "exists subquery": lambda rows: list(Team.objects.filter(Exists(rows))),
    "scalar subquery": lambda rows: list(Team.objects.annotate(one=Subquery(rows.values("pk")[:1]))),
    "exclude": lambda rows: list(rows.exclude(pk=None)),
    "get_or_create": lambda rows: rows.get_or_create(pk=None),
    "update_or_create": lambda rows: rows.update_or_create(pk=None),
    "raw": lambda rows: list(rows.raw("SELECT 1")),
    "bare delete": lambda rows: rows._raw_delete("default"),
}


@pytest.fixture
def ours(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "ours")


@pytest.fixture
def theirs(stranger: User) -> Cast:
    return make_cast(stranger.memberships.get().team, stranger, "theirs")


def test_every_model_belongs_to_a_team_or_says_why_not() -> None:
    assert {model for model in OURS if model not in OWNED} == set(NOBODYS)


@pytest.mark.parametrize("model", OWNED, ids=lambda model: model.__name__)
def test_a_model_says_the_way_to_its_team_and_django_keeps_its_own_managers(model: Any) -> None:
    way = model
    for name in model.team_path.split("__"):
        way = way._meta.get_field(name).related_model
    assert way is Team
    assert (model._default_manager.name, type(model._base_manager)) == ("objects", models.Manager)
    assert {manager.name for manager in model._meta.managers if isinstance(manager, TeamManager)} == {"across_teams", "objects"}
    assert [manager.name for manager in model._meta.managers if manager.use_in_migrations] == []


@pytest.mark.django_db
@pytest.mark.parametrize("verb", VERBS)
def test_without_a_team_every_verb_raises_for_every_model(verb: str) -> None:
    for model in OWNED:
        for rows in (model.objects.all(), model.objects.order_by("pk"), model.objects.exclude(**{model.team_path: 1})):
            with pytest.raises(TeamRequired, match=f"{model.__name__}.across_teams"), transaction.atomic():
                VERBS[verb](rows)


def test_with_a_team_a_query_gives_its_rows_alone(ours: Cast, theirs: Cast) -> None:
    filled = []
    for model in OWNED:
        keys = [set(model.objects.of(cast.team).values_list("pk", flat=True)) for cast in (ours, theirs)]
        ways = [set(model.across_teams.filter(pk__in=rows).values_list(model.team_path, flat=True)) for rows in keys]
        assert ways == [{cast.team.pk} if rows else set() for cast, rows in zip((ours, theirs), keys, strict=True)], model
        assert keys[0].isdisjoint(keys[1]), model
        everything = model.across_teams.exclude(**{model.team_path: None})  # what the installation itself did has no team
        assert everything.count() == len(keys[0] | keys[1]), model
        filled += [model] if keys[0] and keys[1] else []
    assert len(filled) > len(OWNED) / 2, filled  # the cast has one of most things


def test_a_query_is_narrowed_by_a_team_or_by_what_belongs_to_one(ours: Cast, theirs: Cast) -> None:
    run, team = ours.run, ours.team
    narrowed = [
        Rollout.objects.filter(run__team=team),
        Rollout.objects.filter(run__team=team.pk),
        Rollout.objects.filter(run__team_id=team.pk),
        Rollout.objects.filter(run__team__in=[team]),
        Rollout.objects.filter(run=run),
        Rollout.objects.filter(Q(run=run), superseded=False),
        Rollout.objects.filter(Q(run=run) & ~Q(filtered="")),
        Rollout.objects.filter(Q(run=run) | Q(prompt=ours.prompt)),
        Rollout.objects.filter(run__in=[run]),
        Rollout.objects.filter(run__in=Run.objects.of(team)),
        Rollout.objects.filter(pk__in=Rollout.objects.of(team)),
        Rollout.objects.filter(prompt__team=team),
        Rollout.objects.exclude(filtered="").filter(run=run),
        Rollout.objects.same_row(ours.rollout),
        Rollout.objects.of(team) | Rollout.objects.filter(run=run),
        Rollout.objects.all() & Rollout.objects.of(team),
        run.samples.all(),
        run.samples.exclude(run=None).current(),
    ]
    for place, rows in enumerate(narrowed):
        assert {row.run_id for row in rows} <= {run.pk}, place
    assert not Rollout.objects.none()
    assert Rollout.objects.get(run=run, step=1, sample=0).run == run


def test_what_names_no_team_does_not_narrow(ours: Cast, theirs: Cast) -> None:
    run, team = ours.run, ours.team
    wide: list[models.QuerySet[Any]] = [
        Rollout.objects.filter(run=run.pk),  # a bare id may be anybody's
        Rollout.objects.filter(run_id=run.pk),
        Rollout.objects.filter(run__in=[run.pk]),
        Rollout.objects.filter(pk=ours.rollout.pk),
        Rollout.objects.filter(~Q(run=run)),
        Rollout.objects.exclude(run=run),
        Rollout.objects.filter(Q(run=run) | Q(step=1)),
        Rollout.objects.filter(Q(run=run) ^ Q(step=1)),
        Rollout.objects.filter(run__team=None),
        Rollout.objects.filter(run__team__gt=team.pk),
        Rollout.objects.filter(run__team__name=team.name),
        Rollout.objects.filter(run__created_by__memberships__team=team),  # a person may be in several teams
        Rollout.objects.filter(run__in=Run.objects.filter(status=Status.FINISHED)),
        Rollout.objects.of(team) | Rollout.objects.all(),
        Run.objects.filter(created_by=ours.user),
        Judgement.objects.filter(user__in=User.objects.all()),
    ]
    for rows in wide:
        with pytest.raises(TeamRequired):
            list(rows)
    with pytest.raises(TypeError, match="no row of Rollout"):
        Rollout.objects.same_row(run)  # type: ignore[arg-type]


def test_subqueries_are_asked_too(ours: Cast, theirs: Cast) -> None:
    of_run = Rollout.objects.filter(run=OuterRef("pk"))
    runs = Run.objects.of(ours.team).annotate(answers=Count("samples")).filter(Exists(of_run))
    assert [run.pk for run in runs] == [ours.run.pk]
    newest = Subquery(of_run.order_by("-pk").values("pk")[:1])
    assert Run.objects.of(ours.team).annotate(newest=newest).values_list("newest", flat=True).get() == ours.run.samples.latest("pk").pk
    with pytest.raises(TeamRequired, match="Rollout"):  # the outer query names a team, this one takes everybody's
        list(Run.objects.of(ours.team).filter(Exists(Rollout.objects.filter(step=1))))
    with pytest.raises(TeamRequired, match="Run"):  # and the other way round
        list(Run.objects.filter(Exists(of_run)))
    with pytest.raises(TeamRequired, match="Judgement"):  # the same person, in whatever team
        list(Comment.objects.of(ours.team).filter(Exists(Judgement.objects.filter(user=OuterRef("user")))))


def test_what_starts_from_an_object_is_narrowed_by_it(ours: Cast, theirs: Cast) -> None:
    assert [one.run for one in ours.run.checkpoints.all()] == [ours.run]
    assert set(ours.team.runs.all()) == {ours.run}
    assert set(ours.dataset.queues.all()) == {ours.queue}
    assert set(ours.queue.datasets.all()) == {ours.dataset}
    assert ours.run.samples.update(filtered="") == 2
    assert ours.rollout.run == ours.run
    for person in (ours.user, theirs.user):
        with pytest.raises(TeamRequired):
            list(person.runs.all())
    assert set(ours.user.runs.filter(team=ours.team)) == {ours.run}


def test_prefetches_are_narrowed_by_the_objects_they_are_for(ours: Cast, theirs: Cast) -> None:
    for lookup in ("versions", Prefetch("versions", Version.objects.order_by("-number"))):
        [dataset] = Dataset.objects.of(ours.team).prefetch_related(lookup, "queues")
        assert (list(dataset.versions.all()), list(dataset.queues.all())) == ([ours.version], [ours.queue])
    [rollout, _] = Rollout.objects.filter(run=ours.run).prefetch_related(Prefetch("prompt", Prompt.across_teams.all())).order_by("pk")
    assert rollout.prompt == ours.prompt
    with pytest.raises(TeamRequired):
        list(User.objects.prefetch_related(Prefetch("runs", Run.objects.all())))


def test_rows_in_hand_are_written_without_a_team(ours: Cast) -> None:
    rows = list(ours.run.samples.order_by("pk"))
    for row in rows:
        row.filtered = "by hand"
    assert Rollout.objects.bulk_update(rows, ["filtered"]) == 2
    assert ours.run.samples.filter(filtered="by hand").count() == 2
    made, fresh = Project.objects.get_or_create(team=ours.team, name="made", defaults={"created_by": ours.user})
    assert fresh
    assert Project.objects.update_or_create(team=ours.team, name="made", defaults={"about": "again"}) == (made, False)
    assert Project.objects.same_row(made).get().about == "again"
    made.refresh_from_db()
    made.full_clean(exclude=["archived_at"])
    with pytest.raises(ValidationError, match="already exists"):
        Run(team=ours.team, number=ours.run.number, name="twice", spec={}, recipe="grpo", trainer="grpo", task="t", policy="p").validate_constraints()
    made.delete()
    assert not Project.objects.of(ours.team).filter(name="made")


def test_django_itself_sees_every_row(ours: Cast, theirs: Cast, rf: RequestFactory) -> None:
    assert set(Project._default_manager.values_list("team", flat=True)) == {ours.team.pk, theirs.team.pk}
    written = io.StringIO()
    call_command("dumpdata", "accounts.project", stdout=written)
    assert {row["fields"]["team"] for row in json.loads(written.getvalue())} == {ours.team.pk, theirs.team.pk}
    ours.queue.delete()  # what hangs on it is collected by Django
    assert not Item.across_teams.filter(queue=ours.queue.pk).exists()
    assert set(Queue.across_teams.all()) == {theirs.queue}
    request = rf.get("/admin/")
    request.user = User.objects.create_superuser("operator@example.org", "correct horse battery")
    for model, admin in site._registry.items():
        if model in OWNED:
            assert admin.get_queryset(request).count() >= 0
