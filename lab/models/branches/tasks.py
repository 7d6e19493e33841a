"""The Celery tasks that branch. A message delivered twice, or late, finds its question claimed and does nothing."""

from celery import shared_task

from lab.lib.task_arguments import row_uuid
from lab.models.branches.answering import answer_alternatives, answer_branch


@shared_task(name="branch", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def sample_branch(branch_id: str) -> None:
    if known := row_uuid("branch", branch_id):
        answer_branch(known)


@shared_task(name="alternatives", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]
def list_token_alternatives(alternatives_id: str) -> None:
    if known := row_uuid("alternatives", alternatives_id):
        answer_alternatives(known)
