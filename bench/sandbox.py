"""What a program costs in the sandbox, beside the same program in a Python started for it.

Both run in alternation, so that whatever else the machine does hits both. Reported are medians in milliseconds for a program of the sandbox, for
``python -I -S`` by subprocess with pipes and a time limit (which holds nothing), for a call in a batch, and for an answer with three unit tests (two
forks). Processor time, of this process, the server and all that they started, says more on a busy machine.

    .venv/bin/python bench/sandbox.py [--programs 200] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trainers.sandbox import Sandbox, probe_sandbox

TARGET = 5.0  # ms, median of a program
PROGRAM = "import math\nnumbers = [int(word) for word in input().split()]\nprint(math.prod(numbers), sorted(numbers))\n"
STDIN, EXPECTED = "3 1 2", "6 [1, 2, 3]\n"
SCORE = "def score(completion, reference, data):\n    return float(completion.strip() == reference)\n"
ADD, TESTS = "def add(a, b):\n    return a + b\n", ["assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add('a', 'b') == 'ab'"]
CALLS = 64  # of a batch


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", type=int, default=200, help="programs each way (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    result = measure_programs(options.programs)
    print(probe_sandbox().explain())
    for name, value in result.items():
        print(f"{name}: {value}")
    if options.json:
        print(json.dumps(result))
    return 0 if result["ok"] else 1


def measure_programs(programs: int) -> dict[str, Any]:
    with Sandbox() as sandbox:
        first = time_action(lambda: run_in_sandbox(sandbox))
        ways: dict[str, Callable[[], None]] = {
            "sandbox_ms": lambda: run_in_sandbox(sandbox),
            "subprocess_ms": run_in_subprocess,
            "call_of_a_batch_ms": lambda: call_batch(sandbox),
            "answer_with_tests_ms": lambda: test_answer(sandbox),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(programs):
            for name, action in ways.items():
                times[name].append(time_action(action))
        processor = {}
        for name in ("sandbox_ms", "subprocess_ms"):
            began = read_processor_time(sandbox)
            for _ in range(programs):
                ways[name]()
            processor[f"processor_{name}"] = round((read_processor_time(sandbox) - began) * 1000 / programs, 2)
    times["call_of_a_batch_ms"] = [value / CALLS for value in times["call_of_a_batch_ms"]]
    medians = {name: round(statistics.median(values), 3) for name, values in times.items()}
    best = {f"best_{name}": round(min(values), 3) for name, values in times.items()}
    ratio = round(medians["sandbox_ms"] / medians["subprocess_ms"], 3)
    load = round(os.getloadavg()[0], 1)
    more = {"ratio": ratio, "start_ms": round(first, 1), "load": load, "ok": medians["sandbox_ms"] <= TARGET}
    return {"programs": programs, **medians, **best, **processor, **more}


def time_action(action: Callable[[], None]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)


def read_processor_time(sandbox: Sandbox) -> float:
    """Seconds so far, those of ended forks and processes included."""
    assert sandbox.server.process is not None
    fields = Path(f"/proc/{sandbox.server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(os.times()[:4]) + sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def run_in_sandbox(sandbox: Sandbox) -> None:
    if (result := sandbox.run_program(PROGRAM, STDIN)).stdout != EXPECTED:
        raise RuntimeError(f"the program went wrong: {result}")


def run_in_subprocess() -> None:
    command = [sys.executable, "-I", "-S", "-c", PROGRAM]
    done = subprocess.run(command, input=STDIN, capture_output=True, text=True, timeout=2, check=False, env={})
    if done.stdout != EXPECTED:
        raise RuntimeError(f"the program went wrong: {done}")


def call_batch(sandbox: Sandbox) -> None:
    results = sandbox.call_function_many(SCORE, "score", [[" 42 ", "42", {}]] * CALLS)
    if [result.value for result in results] != [1.0] * CALLS:
        raise RuntimeError(f"the calls went wrong: {results[:3]}")


def test_answer(sandbox: Sandbox) -> None:
    if (report := sandbox.run_tests(ADD, TESTS)).passed != len(TESTS):
        raise RuntimeError(f"the tests went wrong: {report}")


if __name__ == "__main__":
    sys.exit(main())
