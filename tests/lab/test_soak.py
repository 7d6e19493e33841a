"""A lab that is broken once every ten seconds for a minute, by ``bench/soak.py``: how fast it is meanwhile is not asked here."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_lab_that_is_broken_six_times_in_a_minute_loses_nothing() -> None:
    command = [sys.executable, str(ROOT / "bench" / "soak.py"), "--minutes", "1", "--patience", "6", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.stdout, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["problems"] == []
    assert found["ok"]
    assert len(found["faults"]) >= 5  # one of the six may have met nothing to break
    assert found["runs"] > 2
    assert found["labels"]
    assert found["viewers"]
