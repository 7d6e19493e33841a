"""A real run that stacks methods: what they did is in the database, and what their panels draw was logged."""

from typing import Any

import pytest

from lab.supervision.supervisor.supervise import run_supervisor
from lab.teams.accounts.models import Team, User
from lab.training.runs import metrics
from lab.training.runs.snapshot import build_run_snapshot
from tests.lab.supervisor.spools import assert_database_equals_spool, make_run
from trainers.contract import arrays
from trainers.contract.spec import parse_spec

SPEC: dict[str, Any] = {
    "recipe": "grpo",
    "policy": {"kind": "tiny", "cold_start": False},
    "task": {"name": "mini_gsm"},
    "base": {"name": "dr-grpo"},
    "methods": [{"name": "rs-grpo"}, {"name": "siren"}],
    "training": {"trainer": "grpo", "max_steps": 3, "per_device_train_batch_size": 16, "num_generations": 8, "max_completion_length": 16},
    "evaluation": {"prompts": 8, "every": 0},
}


@pytest.mark.training
@pytest.mark.django_db(transaction=True)
def test_a_stack_of_methods_reports_what_its_panels_draw(team: Team, owner: User) -> None:
    run = make_run(team)
    run.spec = parse_spec({**SPEC, "output": str(run.folder)}).model_dump(mode="json")
    run.save(update_fields=["spec"])
    assert run_supervisor(str(run.pk), "here:1")
    run.refresh_from_db()
    assert (run.status, run.step) == ("finished", 3), run.reason
    assert_database_equals_spool(run)
    for rollout in run.samples.filter(phase="train").select_related("tokens"):
        assert {"base", "rs-grpo"} <= set(rollout.contributions)
        assert rollout.contributions["rs-grpo"] == pytest.approx(rollout.advantage, abs=1e-4)
        length = len(arrays.unpack_array(bytes(rollout.tokens.ids)))
        for packed in (rollout.tokens.weights, rollout.tokens.token_advantages):
            assert len(arrays.unpack_array(bytes(packed))) in (0, length)
    declared = {metric for panel in build_run_snapshot(run, owner)["panels"] if panel["method"] for metric in panel["metrics"]}
    assert {metric for metric in declared if not metric.startswith("rs-grpo/advantage_right")} <= set(metrics.list_metric_names(run.pk))
