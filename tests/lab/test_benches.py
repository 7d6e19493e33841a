"""The benches' small modes: that they run, and that what they check holds. How fast a busy test machine is, is nobody's business here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run_bench(name: str, *options: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """The object that the bench prints last; it may have failed only for being slow."""
    command = [sys.executable, str(ROOT / "bench" / name), "--json", *options]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert "ok" in found
    return found


def test_viewers_who_come_and_go_miss_no_point_and_get_none_twice(process_env: dict[str, str]) -> None:
    found = run_bench("live.py", "--small", "--services", "environment", env=process_env)
    assert (found["gaps"], found["doubles"], found["complete"]) == (0, 0, True)
    assert found["received_ms"]["count"] > 12 * 10
    assert found["reconnects"] > 0
