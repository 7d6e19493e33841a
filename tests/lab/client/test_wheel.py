"""The client's wheel: what is in it, and that it is enough on a machine without the repository."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from lab.lib.client_wheel import ROOT, build_client_wheel, find_source_imports, hash_for_record, main, rewrite_imports
from lab.rollouts.trajectories.models import Rollout
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import assert_database_equals_spool, finished, started, steps, write
from trainers.contract.spool import SPOOL

Elsewhere = Callable[..., subprocess.CompletedProcess[str]]
IMPORTS = """
import json, sys
import policy_lab, policy_lab.commands
from policy_lab._trainers.outside import sending, send_command
print(json.dumps([policy_lab.__file__, sorted({name.partition(".")[0] for name in sys.modules})]))
"""
SENDS_AND_READS = """
import json
from pathlib import Path
from policy_lab import Lab, LabClient
from policy_lab._trainers.outside.sending import Sender, ensure_run_opening
folder = Path("kept")
ensure_run_opening(folder, {"name": "elsewhere", "trainer": "grpo", "policy": "p", "task": "t", "total_steps": 4, "config": {}})
assert Sender(LabClient(), folder).finish(20)
lab = Lab()
[run] = lab.runs(q="elsewhere")
print(json.dumps([run.number, [[row.step, row.completion] for row in lab.rollouts(run)], [[p.step, p.value] for p in lab.metrics(run, ["loss"])]]))
"""


def test_the_wheel_lists_its_files_with_their_hashes_and_is_the_same_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = build_client_wheel(ROOT)
    assert wheel == build_client_wheel(ROOT)
    with zipfile.ZipFile(io.BytesIO(wheel.data)) as archive:
        about = f"policy_lab-{wheel.version}.dist-info"
        listed = {name: (digest, size) for name, digest, size in csv.reader(archive.read(f"{about}/RECORD").decode().splitlines())}
        assert set(listed) == set(archive.namelist())
        for name in set(listed) - {f"{about}/RECORD"}:
            assert listed[name] == (f"sha256={hash_for_record(archive.read(name))}", str(len(archive.read(name))))
        assert {name.partition("/")[0] for name in listed} == {"policy_lab", about}
        modules = {name for name in listed if name.endswith(".py")}
        code = {name: archive.read(name).decode() for name in modules}
    assert {f"policy_lab/_trainers/{path.relative_to(ROOT / 'trainers')}" for path in (ROOT / "trainers/outside").rglob("*.py")} <= modules
    assert [name for name, text in code.items() if list(find_source_imports(text))] == []
    assert len(wheel.data) < 200_000
    assert main([str(tmp_path / "dist")]) == 0
    assert (tmp_path / "dist" / wheel.name).read_bytes() == wheel.data
    assert wheel.name in capsys.readouterr().out


def test_imports_are_renamed_where_they_stand_and_nothing_else() -> None:
    text = 'def act():\n    """from trainers.x"""\n    from trainers.a import b  # from trainers\n    return "é"; from trainers import c\n'
    assert rewrite_imports(text) == (
        'def act():\n    """from trainers.x"""\n    from policy_lab._trainers.a import b  # from trainers\n'
        '    return "é"; from policy_lab._trainers import c\n'
    )
    with pytest.raises(ValueError, match="line 1"):
        rewrite_imports("import trainers.a\n")


def test_the_lab_hands_its_client_out_to_anybody_under_its_own_name_only(client: Client, as_owner: Client, settings: Any, db: None) -> None:
    settings.LAB_URL = "https://lab.example.org"
    wheel = build_client_wheel(ROOT)
    page = client.get("/client/").content.decode()
    assert f'href="/client/{wheel.name}#sha256={wheel.sha256}"' in page
    about = as_owner.get("/t/reasoning/api/").content.decode()
    assert f'pip install "https://lab.example.org/client/{wheel.name}"' in page
    assert f'pip install "https://lab.example.org/client/{wheel.name}"' in about
    assert 'Lab("https://lab.example.org")' in about
    answer = client.get(f"/client/{wheel.name}")
    assert (answer.content, answer.headers["Content-Type"]) == (wheel.data, "application/zip")
    assert "sessionid" not in answer.cookies
    assert client.get("/client/policy_lab-9.9-py3-none-any.whl").status_code == 404
    assert client.post("/client/").status_code in (403, 405)


@pytest.mark.feature(80)
@pytest.mark.django_db(transaction=True)
def test_installed_from_the_lab_it_sends_a_run_and_reads_it_back_without_torch_numpy_or_the_repository(
    run_elsewhere: Elsewhere, installed: Path, tmp_path: Path
) -> None:
    done = run_elsewhere("-c", IMPORTS)
    assert done.returncode == 0, done.stderr
    place, names = json.loads(done.stdout)
    assert place == str(installed / "policy_lab/__init__.py")
    assert not {"torch", "numpy", "transformers", "pydantic", "django", "trainers", "lab"} & set(names)
    write(tmp_path / "kept", [started(total_steps=4), *steps(1, 2, groups=1, samples=2)])
    for more in ([], [*steps(3, 4, groups=1, samples=2), finished(step=4)]):
        write(tmp_path / "kept", list(more))
        done = run_elsewhere("-c", SENDS_AND_READS)  # the second process goes on where the first one was
        assert done.returncode == 0, done.stderr
    run = Run.across_teams.get()
    assert (run.status, (run.folder / SPOOL).read_bytes()) == (Status.FINISHED, (tmp_path / "kept" / SPOOL).read_bytes())
    assert_database_equals_spool(run)
    number, rollouts, loss = json.loads(done.stdout)
    assert (number, loss) == (run.number, [[step, 1.0 / (step + 1)] for step in (1, 2, 3, 4)])
    assert sorted(map(tuple, rollouts)) == sorted(Rollout.objects.filter(run=run).values_list("step", "completion"))
    sent = run_elsewhere("-m", "policy_lab", "send", "kept")  # nothing is left
    assert (sent.returncode, f"/runs/{run.pk}/" in sent.stdout) == (0, True), sent.stderr
    listed = run_elsewhere("-m", "policy_lab", "runs")
    assert listed.stdout.split() == [f"#{run.number}", "finished", "4/4", "elsewhere"], listed.stderr
