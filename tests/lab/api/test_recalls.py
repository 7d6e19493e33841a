"""Recalls over the API: what they would touch, what they did, undoing, and freezing a version again without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.data.datasets.models import Recall, Version
from lab.labelling.labels.models import Judgement, JudgementState
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.launch import launch_run
from tests.conftest import make_member
from tests.lab.api.conftest import ApiClient
from tests.lab.loop.making import SPEC, finished_run, frozen, labelled_queue, place, sampled

REASON = {"reason": "Read them upside down."}


@pytest.fixture
def ann(team: Team) -> User:
    return make_member("ann@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def version(team: Team, owner: User, ann: User, settings: Any, tmp_path: Any) -> Version:
    """Of a queue whose first three items Ann labelled."""
    settings.DATASETS_ROOT = tmp_path / "datasets"
    queue = labelled_queue(team, owner, finished_run(team, owner, *sampled(50, 51)))
    mine = list(queue.items.order_by("place").values_list("pk", flat=True)[:3])
    Judgement.across_teams.filter(item__in=mine).update(user=ann)
    return frozen(team, owner, queue)


def fields_of(answer: Any) -> set[str]:
    assert answer.status_code == 422, answer.content
    return {one["field"] for one in answer.json()["errors"]}


def withdrawn() -> int:
    return Judgement.across_teams.filter(state=JudgementState.WITHDRAWN).count()


def test_a_recall_is_previewed_done_once_and_undone(api: ApiClient, team: Team, owner: User, ann: User, version: Version) -> None:
    dpo = {**SPEC, "recipe": "dpo", "training": {"trainer": "dpo", "max_steps": 20}, "dataset": {"file": version.train_file}}
    child = launch_run(team, owner, dpo, "child")
    place(child, 20, "final", final=True)
    grandchild = launch_run(team, owner, {**SPEC, "policy": {"kind": "run", "run": str(child.pk)}}, "grandchild")
    target = {"kind": "labeller", "labeller": ann.pk}
    preview = api.send("recalls/preview", target).json()
    assert (preview["labels"], [one["version"] for one in preview["versions"]]) == (3, [version.pk])
    assert ([one["number"] for one in preview["trained"]], [one["name"] for one in preview["descended"]]) == ([child.number], [grandchild.name])
    assert (Recall.across_teams.count(), withdrawn()) == (0, 0)
    made = api.send("recalls", {**target, **REASON}, **{"Idempotency-Key": "once"})
    again = api.send("recalls", {**target, **REASON}, **{"Idempotency-Key": "once"})
    assert (made.status_code, again.status_code, made.json()["id"]) == (201, 200, again.json()["id"])
    assert (made.json()["reach"]["labels"], made.json()["going_on"], withdrawn()) == (3, False, 3)
    assert api.ask(f"versions/{version.pk}").json()["flagged"] is True
    pk = made.json()["id"]
    rebuilt = api.send(f"recalls/{pk}/rebuild/{version.pk}")
    assert (rebuilt.status_code, rebuilt.json()["number"], rebuilt.json()["rule"]) == (201, 2, version.rule)
    assert api.ask(f"recalls/{pk}").json()["reach"]["versions"][0]["since"] == rebuilt.json()["id"]
    assert api.send(f"recalls/{pk}/undo").json()["undone_at"]
    assert (withdrawn(), api.ask(f"versions/{version.pk}").json()["flagged"]) == (0, False)
    assert api.send(f"recalls/{pk}/undo").status_code == 200


def test_a_setting_of_a_rule_is_recalled_and_only_one_that_was_used(api: ApiClient, version: Version) -> None:
    setting = {"aggregation": version.rule["aggregation"]}
    made = api.send("recalls", {"kind": "rule", "rule": setting, **REASON}).json()
    assert (made["rule"], made["reach"]["labels"], made["reach"]["versions"][0]["rebuilds"]) == (setting, 0, False)
    assert fields_of(api.send("recalls", {"kind": "rule", "rule": {"aggregation": "never used"}, **REASON})) == {"rule"}


def test_what_cannot_be_recalled_names_its_fields(api: ApiClient, ann: User, stranger: User, as_role: Callable[[str], ApiClient]) -> None:
    assert fields_of(api.send("recalls", {"kind": "labeller", "reason": " "})) == {"labeller", "reason"}
    assert fields_of(api.send("recalls", {"kind": "labeller", "labeller": stranger.pk, **REASON})) == {"labeller"}
    assert fields_of(api.send("recalls/preview", {"kind": "queue", "queue": 10**18, "labeller": ann.pk})) == {"queue", "labeller"}
    assert as_role("viewer").send("recalls/preview", {"kind": "labeller", "labeller": ann.pk}).status_code == 403
    assert not Recall.across_teams.exists()
