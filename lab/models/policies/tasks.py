"""The Celery task that pushes. Its only argument is a number: what it may do and with which secret it finds out itself."""

from celery import shared_task

from lab.lib.task_arguments import row_id
from lab.models.policies.pushes import TASK, execute_push


@shared_task(name=TASK, acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def push_policy(push_id: int) -> None:
    if known := row_id(TASK, push_id):
        execute_push(known)
