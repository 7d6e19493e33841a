"""Supervises in a process of its own, for tests that kill it or give it a database of its own.

``driver.py supervise RUN WORKER`` · ``driver.py make SPEC`` (prints the run's id) · ``driver.py check RUN`` (database against spool)
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import django

from lab.lib.garbage_collection import collect_rarely

PROGRAM = [sys.executable, str(Path(__file__).with_name("trainer_program.py"))]


def main(command: str, *words: str) -> int:
    collect_rarely()  # as manage.py does
    django.setup()
    from lab.supervision.supervisor.supervise import run_supervisor
    from lab.teams.accounts.models import Team
    from lab.training.runs.models import Run
    from tests.lab.supervisor.spools import assert_database_equals_spool, make_run

    if command == "supervise":
        print("claimed" if run_supervisor(words[0], words[1], PROGRAM) else "not claimed", flush=True)
    elif command == "make":
        team, _ = Team.objects.get_or_create(name="Reasoning", slug="reasoning")
        print(make_run(team, spec=json.loads(words[0])).pk)
    else:
        run = Run.across_teams.get(pk=words[0])
        assert_database_equals_spool(run)
        print(json.dumps({"status": run.status, "reason": run.reason, "step": run.step, "attempt": run.attempt, "rollouts": run.rollouts}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
