"""The Celery task that builds a version. A message delivered twice, or late, finds it claimed and does nothing."""

from celery import shared_task

from lab.data.datasets.freezing import TASK, build_version
from lab.lib.task_arguments import row_id


@shared_task(name=TASK, acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def freeze_version(version_id: int) -> None:
    if known := row_id(TASK, version_id):
        build_version(known)
