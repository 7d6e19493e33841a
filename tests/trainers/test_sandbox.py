"""Programs, functions, unit tests and queries in the sandbox: what comes back, within which limits, and what happens to its processes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from trainers.sandbox import MODULES, ProgramLimits, Sandbox, SandboxUnavailable, client, get_shared_sandbox, probe, probe_sandbox, sandbox, syscalls

ROOT = Path(__file__).resolve().parents[2]
SHORT = ProgramLimits(seconds=0.2)
ADD = "def add(a, b):\n    return a + b\n"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def have_ended(processes: list[psutil.Process], seconds: float = 5) -> bool:
    """Gone, or dead and waiting for the system to take notice, which takes a second on some."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if all(not process.is_running() or process.status() == psutil.STATUS_ZOMBIE for process in processes):
            return True
        time.sleep(0.01)
    return False


def test_a_program_reads_its_input_prints_and_ends(box: Sandbox) -> None:
    result = box.run_program("name = input()\nprint('hello', name)\nprint(len(open(0).read()))", "Ada\nrest")
    assert (result.outcome, result.stdout, result.error, result.value) == ("ok", "hello Ada\n4\n", "", None)
    assert box.run_program("print(1)\nexit(0)\nprint(2)").stdout == "1\n"
    failed = box.run_program("print('before')\n\n1 / 0")
    assert (failed.outcome, failed.stdout, failed.error) == ("error", "before\n", "ZeroDivisionError: division by zero (line 3)")
    assert box.run_program("exit(3)").error == "SystemExit: 3 (line 1)"
    assert box.run_program("def f(:").error.startswith("SyntaxError: ")
    assert box.run_program("print('\\ud800 ü')").stdout == "\\ud800 ü\n"


def test_every_module_of_the_list_can_be_imported_and_no_other(box: Sandbox) -> None:
    names = [name for name in MODULES if name != "__future__"]
    assert box.run_program("\n".join(f"import {name}" for name in names) + "\nfrom collections.abc import Sized").error == ""
    code = "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nfrom datetime import datetime\n"
    code += "print(P(1), datetime.strptime('2026', '%Y').year, hash('a') == hash('a'))"
    assert box.run_program(code).stdout == "P(x=1) 2026 True\n"
    refused = box.run_program("import os")
    assert refused.error.startswith("ModuleNotFoundError: no module 'os' in the sandbox; programs can import")
    assert "math" in refused.error


def test_the_same_program_gives_the_same_result(box: Sandbox) -> None:
    code = "import random\nprint(random.random(), {'a', 'b', 'c', 'd'})"
    with Sandbox() as other:
        assert box.run_program(code).stdout == box.run_program(code).stdout == other.run_program(code).stdout


def test_limits_say_which_one_was_passed(box: Sandbox) -> None:
    late = box.run_program("print('begun')\nwhile True: pass", limits=replace(SHORT, seconds=0.5))
    assert (late.outcome, late.stdout, late.error) == ("timeout", "begun\n", "took longer than 0.5 s")
    assert box.run_program("x = bytearray(300 << 20)").outcome == "memory"
    assert box.run_program("x = bytearray(40 << 20)\nprint(len(x))", limits=ProgramLimits(seconds=60, memory=64 << 20)).ok
    flood = box.run_program("while True: print('spam')", limits=ProgramLimits(seconds=60, output=1000))
    assert (flood.outcome, len(flood.stdout)) == ("output", 1000)
    with pytest.raises(ValueError, match="seconds = 0"):
        ProgramLimits(seconds=0)


def test_many_programs_run_at_once_and_come_back_in_order(box: Sandbox) -> None:
    began = time.monotonic()
    results = Sandbox(at_once=4).run_programs([(f"import time\ntime.sleep(.4)\nprint({number})", "") for number in range(4)])
    assert [result.stdout for result in results] == ["0\n", "1\n", "2\n", "3\n"]
    assert time.monotonic() - began < 1.6


def test_a_function_is_called_with_json_by_place_or_by_name(box: Sandbox) -> None:
    source = "if __name__ == '__main__': 1 / 0\ndef score(completion, reference, data): print('seen'); return {'reward': len(completion) * data['w']}"
    result = box.call_function(source, "score", ["abc", None, {"w": 0.5}])
    assert (result.value, result.stdout) == ({"reward": 1.5}, "seen\n")
    assert box.call_function(source, "score", {"completion": "a", "reference": 1, "data": {"w": 2}}).value == {"reward": 2}
    assert box.call_function(source, "grade", []).error == "defines no function named 'grade'"
    assert "missing 2 required" in box.call_function(source, "score", ["abc"]).error
    assert box.call_function("def f(): return {1, 2}", "f", []).error.startswith("the value cannot be written as JSON: TypeError")
    assert box.call_function("def f(): return 'x' * 9999", "f", [], ProgramLimits(output=100)).outcome == "output"
    assert box.call_function("def f(): return '\\ud800'", "f", []).value == "?"
    with pytest.raises(TypeError, match="not JSON serializable"):
        box.call_function(source, "score", [{1}])


def test_a_batch_runs_its_source_once_and_a_call_that_fails_costs_only_itself(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "KILL_AFTER", 0.2)
    source = """
import sys, time
seen = []
def f(x):
    seen.append(x)
    if x == 1: return 1 / 0
    if x == 2: time.sleep(9)
    if x == 3: sys.modules['os']._exit(0)
    if x == 4: return sum(range(10 ** 12))
    return len(seen)
"""
    limits = ProgramLimits(seconds=1)  # on a busy machine a child that is started anew takes longer than SHORT
    results = box.call_function_many(source, "f", [[x] for x in (0, 1, 2, 0, 3, 0, 4, 0)], limits)
    assert [result.outcome for result in results] == ["ok", "error", "timeout", "ok", "error", "ok", "timeout", "ok"]
    assert [result.value for result in results if result.ok] == [1, 4, 1, 1]
    assert [result.outcome for result in box.call_function_many("1 / 0", "f", [[1], [2]])] == ["error", "error"]
    assert box.call_function_many(source, "f", []) == []


def test_unit_tests_get_a_verdict_each(box: Sandbox) -> None:
    source = ADD + "LIMIT = 7\nclass Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x); return self\n"
    source += "    def __len__(self): return len(self.items)\n    def __iter__(self): return iter(self.items)\n"
    source += "def mirror(items): items.reverse()\ndef fail(): raise ValueError('no')\ndef spin():\n    while True: pass\n"
    source += "def point():\n    from fractions import Fraction\n    return (1, {2}, {'a': [b'x', None]}, Fraction(1, 3), 10 ** 5000)\n"
    tests = [
        "assert add(1, 2) == 3",
        "assert add(1, 2) == 4, 'sum'",
        "s = Stack().push(1).push(2)\nassert len(s) == 2 and list(s) == [1, 2] and 2 in s and s.items == [1, 2]",
        "items = [1, 2]\nmirror(items)\nassert items == [2, 1]",
        "try:\n    fail()\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n    assert False",
        "spin()",
        "assert point() == (1, {2}, {'a': [b'x', None]}, Fraction(1, 3), 10 ** 5000)",
        "assert LIMIT == 7 and math.isclose(add(.1, .2), .3)",
        "undefined",
        "assert Stack() == Stack()",
    ]
    report = box.run_tests(source, tests, setup="import math\nfrom fractions import Fraction", limits=ProgramLimits(seconds=0.5))
    wanted = ["pass", "fail", "pass", "pass", "pass", "timeout", "pass", "pass", "error", "error"]
    assert next(verdict for verdict in report.verdicts if verdict.verdict == "error").message.startswith("NameError")
    assert [verdict.verdict for verdict in report.verdicts] == wanted
    assert report.verdicts[1].message == "AssertionError: sum (line 1)"
    assert (report.passed, report.share, report.error) == (6, 0.6, "")


def test_unit_tests_that_cannot_run_say_why(box: Sandbox) -> None:
    broken = box.run_tests("def add(a, b) return", ["assert True", "assert True"])
    assert (broken.passed, len(broken.verdicts)) == (0, 2)
    assert "SyntaxError" in broken.error
    assert "NameError" in box.run_tests(ADD, ["assert True"], setup="missing").error
    assert box.run_tests(ADD, ["assert add(1, 1) == 2"], names=["other"]).passed == 0
    slow = box.run_tests("import time\ndef f(): time.sleep(9)", ["f()"] * 9, limits=SHORT, total_seconds=0.5)
    assert {verdict.verdict for verdict in slow.verdicts} == {"timeout"}
    assert box.run_tests("def add(a, b): return 3", ["assert add(1, 2) == 3", "assert add(1, 1) == 2"]).share == 0.5


def test_programs_are_judged_by_what_they_print(box: Sandbox) -> None:
    report = box.run_io_tests("print(int(input()) * 2)", [("2", "4"), ("3", "6 \n\n"), ("3", "7"), ("x", "0")])
    assert [verdict.verdict for verdict in report.verdicts] == ["pass", "pass", "fail", "error"]
    assert report.verdicts[2].message == "printed '6\\n' instead of '7'"


def test_a_query_reads_what_its_setup_filled(box: Sandbox) -> None:
    setup = "PRAGMA foreign_keys = OFF; CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (2.5, x'00ff'), (NULL, 'y');"
    result = box.run_sql(setup, "SELECT a, b FROM t ORDER BY a")
    assert (result.columns, result.rows) == (("a", "b"), ((None, "y"), (1, "x"), (2.5, b"\x00\xff")))
    assert box.run_sql(setup, "SELEC").error == 'OperationalError: near "SELEC": syntax error'
    for query in ("DELETE FROM t", "ATTACH '/tmp/x' AS y", "PRAGMA table_info(t)", "SELECT load_extension('x')", "SELECT zeroblob(900000000)"):
        assert box.run_sql(setup, query).outcome == "error", query
    assert box.run_sql("ATTACH '/tmp/x' AS y", "SELECT 1").error == "DatabaseError: not authorized"
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT {} FROM c"
    assert box.run_sql("", endless.format("count(*)"), SHORT).outcome == "timeout"
    assert box.run_sql("", endless.format("x"), max_rows=5).outcome == "output"


def test_a_server_that_is_killed_is_replaced_and_its_forks_die_with_it(box: Sandbox) -> None:
    found: list[str] = []
    later = time.time() + 0.3
    code = f"import time\nif time.time() < {later}: time.sleep(60)\nprint('done')"
    thread = threading.Thread(target=lambda: found.append(box.run_program(code, limits=ProgramLimits(seconds=60)).stdout))
    assert box.run_program("1").ok
    server = box.server.process
    assert server is not None
    thread.start()
    while not (forks := psutil.Process(server.pid).children()):
        time.sleep(0.01)
    while time.time() < later:
        time.sleep(0.05)
    assert not have_ended(forks, 0.02)
    os.kill(server.pid, signal.SIGKILL)
    assert have_ended(forks)
    thread.join()
    assert found == ["done\n"]  # run once more by another server
    assert box.server.process is not server


def test_a_server_ends_with_its_owner_also_when_that_is_killed() -> None:
    code = """
import threading, time
from trainers.sandbox import ProgramLimits, Sandbox
box = Sandbox()
box.run_program("1")
threading.Thread(target=box.run_program, args=("import time; time.sleep(60)", "", ProgramLimits(seconds=60))).start()
time.sleep(.1)
print(box.server.process.pid, flush=True)
time.sleep(60)
"""
    owner = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert owner.stdout is not None
    server = psutil.Process(int(owner.stdout.readline()))
    processes = [server, *server.children()]
    assert len(processes) == 2
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert have_ended(processes)


def test_without_landlock_nothing_is_run_and_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_sandbox().holds
    assert json.loads(json.dumps(probe_sandbox().as_json()))["landlock_abi"] >= 1
    monkeypatch.setattr(probe, "ask_landlock_abi", lambda: 0)
    with pytest.raises(SandboxUnavailable, match=r"not run on this machine: Landlock is missing: it needs Linux 5\.13"):
        Sandbox().run_program("1")
    monkeypatch.setattr(probe.platform, "machine", lambda: "riscv64")
    assert "only Linux on x86-64 or aarch64" in probe_sandbox().explain()


def test_a_jail_that_does_not_hold_is_found_out_before_any_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    start = "from trainers.sandbox import server, jail; "
    hole = start + "from trainers.sandbox import syscalls as s; "
    hole += "jail.build_filter = lambda: s.Filter(1, (s.Instruction * 1)(s.Instruction(s.RETURN, 0, 0, s.ALLOW))); "
    monkeypatch.setattr(client, "PROGRAM", client.PROGRAM.replace("from trainers.sandbox import server; ", hole))
    with Sandbox() as made, pytest.raises(SandboxUnavailable, match="a program in the sandbox still"):
        made.run_program("1")
    broken = start + "server.try_jail = lambda plan: ''; server.enter_jail = lambda *a: jail.keep_descriptors(a[1], None) or 1 / 0; "
    monkeypatch.setattr(client, "PROGRAM", client.PROGRAM.replace(hole, broken))
    with Sandbox() as made, pytest.raises(SandboxUnavailable, match="could not be locked in and was not run: division by zero"):
        made.run_program("1")


def test_one_sandbox_is_shared_by_the_process() -> None:
    assert get_shared_sandbox() is get_shared_sandbox()


@pytest.mark.parametrize(("header", "column"), [("x86_64-linux-gnu/asm/unistd_64.h", 0), ("asm-generic/unistd.h", 1)])
def test_numbers_of_system_calls_are_the_kernels(header: str, column: int) -> None:
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip(f"{path} is not installed")
    defined = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) >= 3 and words[0] == "#define" and words[1].startswith(("__NR_", "__NR3264_")) and words[2].isdecimal():
            defined[words[1].removeprefix("__NR_").removeprefix("__NR3264_")] = int(words[2])
    for name, numbers in (syscalls.ALLOWED | syscalls.OTHER_CALLS).items():
        assert defined[name] == numbers[column], name
