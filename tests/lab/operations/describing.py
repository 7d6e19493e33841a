"""What a lab holds and shows, to compare the one that was backed up with the one it was restored into; run in the process of either."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

CHANGING = re.compile(r'name="csrfmiddlewaretoken" value="[^"]*"|nonce="[^"]*"|"X-CSRFToken": ?"[^"]*"|<time\b.*?</time>', re.DOTALL)


def describe_lab(email: str, addresses: Sequence[str], runs: Sequence[str]) -> dict[str, Any]:
    """Pages as that person sees them, without what differs each time; rows and files of ``runs``."""
    from django.conf import settings
    from django.test import Client

    from lab.rollouts.trajectories.models import Rollout
    from lab.teams.accounts.models import User
    from lab.training.runs.models import Run

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get(email=email), backend=settings.AUTHENTICATION_BACKENDS[0])
    pages = {}
    for address in addresses:
        response = client.get(address, follow=True)
        assert response.status_code == 200, (address, response.status_code)
        pages[address] = CHANGING.sub("", response.content.decode())
    rows = {pk: list(Rollout.objects.filter(run=Run.across_teams.get(pk=pk)).values_list("pk", "step", "completion").order_by("pk")) for pk in runs}
    return {"pages": pages, "rows": json.loads(json.dumps(rows)), "files": {pk: digest_folder(Path(settings.RUNS_ROOT) / pk) for pk in runs}}


def digest_folder(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def restore_and_describe(source: str, key: str, told: str) -> None:
    """The command as people run it, interrupted twice, then the new lab. ``told``: JSON, arguments of ``describe_lab`` and the run that trained."""
    import manage

    sys.argv = ["manage.py", "restore", source, "--key", key]
    file = Path(source) / "policies/base/config.json"
    file.rename(f"{source}.aside")
    with pytest.raises(SystemExit) as ended:
        manage.main()
    assert ended.value.code == 1
    Path(f"{source}.aside").rename(file)
    from lab.edges.operations import restores
    from lab.lib.half_restored import get_restore_marker

    assert get_restore_marker().exists()
    assert manage.main() == 0
    assert not get_restore_marker().exists()
    restores.write_marker(get_restore_marker(), Path(source).resolve())  # as if the machine had died after the database was restored
    assert manage.main() == 0
    from lab.supervision.supervisor.ingest import ingest_spool
    from lab.teams.audit.anchor import read_anchor
    from lab.teams.audit.chain import verify_chain
    from lab.training.runs.models import Run
    from tests.lab.supervisor.spools import assert_database_equals_spool

    asked = json.loads(told)
    found = describe_lab(asked["email"], asked["addresses"], asked["runs"])
    trained = Run.across_teams.get(pk=asked["trained"])
    length = (trained.folder / "events.jsonl").stat().st_size
    about = {"status": trained.status, "reason": trained.reason, "ingested": trained.ingested, "length": length, "spec": trained.spec}
    about["step"] = trained.step
    while ingest_spool(trained):
        pass
    assert_database_equals_spool(trained)
    kept = read_anchor()
    chain = verify_chain([kept] if kept else [])
    print(json.dumps({"lab": found, "trained": about, "after": trained.step, "chain": chain.problem}))


def upgrade_and_describe(email: str) -> None:
    """Migrates the database that DATABASE_URL names, then reads it as pages do."""
    import manage

    sys.argv = ["manage.py", "migrate", "--verbosity", "0"]
    assert manage.main() == 0
    from django.urls import reverse

    from lab.labelling.labels.models import Judgement, Preference
    from lab.lib.known_migrations import refuse_newer_database
    from lab.rollouts.trajectories.models import Rollout
    from lab.training.runs.models import Run

    refuse_newer_database()
    run = Run.across_teams.get(number=1)
    judgement = Judgement.across_teams.get()
    rollout = Rollout.objects.filter(run=run).earliest("pk")
    pages = [reverse("run", args=[run.pk]), reverse("rollout", args=[rollout.pk]), reverse("queue", args=[judgement.queue_id])]
    found = describe_lab(email, pages, [str(run.pk)])
    preferred = list(Preference.across_teams.values_list("chosen", "rejected"))
    label = [judgement.verdict, judgement.rationale, judgement.user.email]
    print(json.dumps({"lab": found, "label": label, "preferred": preferred, "name": run.name, "status": run.status}))
