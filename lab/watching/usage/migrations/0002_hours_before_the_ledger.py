"""Runs from before the ledger get a lease of their last attempt, from its start to the end of the run, so that their hours are not lost."""

from __future__ import annotations

from typing import Any

from django.db import migrations


def backfill(apps: Any, schema_editor: Any) -> None:
    Run, Attempt, Lease = apps.get_model("runs", "Run"), apps.get_model("runs", "Attempt"), apps.get_model("usage", "Lease")
    ended = Run.objects.exclude(finished_at=None).filter(leases=None).only("pk", "team", "number", "created_by", "recipe", "finished_at")
    last = {attempt.run_id: attempt for attempt in Attempt.objects.order_by("number").only("run", "number", "started_at", "device")}
    leases = [
        Lease(
            team_id=run.team_id,
            run=run,
            number=run.number,
            user_id=run.created_by_id,
            recipe=run.recipe,
            owner=f"before the ledger/{run.pk}",
            gpus=int(last[run.pk].device.startswith("cuda")),
            started_at=last[run.pk].started_at,
            seen_at=run.finished_at,
            ended_at=run.finished_at,
        )
        for run in ended.iterator()
        if run.pk in last and last[run.pk].started_at <= run.finished_at
    ]
    Lease.objects.bulk_create(leases, batch_size=500)


class Migration(migrations.Migration):
    dependencies = [("usage", "0001_quotas")]
    operations = [migrations.RunPython(backfill, migrations.RunPython.noop)]
