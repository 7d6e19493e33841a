"""The Celery task that runs a backtest. A message delivered twice, or late, finds it claimed and does nothing."""

from celery import shared_task

from lab.lib.task_arguments import row_uuid
from lab.rollouts.backtests.scoring import run_backtest


@shared_task(name="backtest", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def score_backtest(backtest_id: str) -> None:
    if known := row_uuid("backtest", backtest_id):
        run_backtest(known)
