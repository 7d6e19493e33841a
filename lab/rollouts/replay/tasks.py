"""The Celery task that answers a question. A message delivered twice, or late, finds it claimed and does nothing."""

from celery import shared_task

from lab.lib.task_arguments import row_uuid
from lab.rollouts.replay.answers import answer_question


@shared_task(name="replay", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def replay_question(replay_id: str) -> None:
    if known := row_uuid("replay", replay_id):
        answer_question(known)
