"""One run claimed as a worker claims the next of its queue, whichever is next."""

from django.db import transaction

from lab.supervision.supervisor.run_claims import NotClaimed, set_waiting_reason, take_run
from lab.training.runs.models import Run


def claim_run(run: Run, owner: str, worker: str) -> bool:
    try:
        with transaction.atomic():
            take_run(run, owner, worker)
    except NotClaimed as error:
        if error.reason:
            set_waiting_reason(run, error.reason)
        return False
    return True
