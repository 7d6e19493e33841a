"""Where Python and SQL that people or policies wrote is run: in forks that can compute and answer, and do nothing else (docs/security.md).

    with Sandbox() as sandbox:                                      # or get_shared_sandbox(), one for the process
        sandbox.run_program("print(int(input()) + 1)", "41").stdout           # "42\\n"
        sandbox.call_function("def score(text): return len(text)", "score", ["abc"]).value    # 3
        sandbox.run_tests("def add(a, b): return a + b", ["assert add(1, 2) == 3"]).passed    # 1

Nothing of it needs torch, Django or another package. Where the kernel does not hold programs, everything here raises ``SandboxUnavailable``.
"""

from trainers.sandbox.probe import SandboxProbe, probe_sandbox
from trainers.sandbox.results import (
    MODULES,
    ProgramLimits,
    ProgramResult,
    SandboxUnavailable,
    SqlResult,
    TestReport,
    TestVerdict,
)
from trainers.sandbox.sandbox import Sandbox, get_shared_sandbox

__all__ = [
    "MODULES",
    "ProgramLimits",
    "ProgramResult",
    "Sandbox",
    "SandboxProbe",
    "SandboxUnavailable",
    "SqlResult",
    "TestReport",
    "TestVerdict",
    "get_shared_sandbox",
    "probe_sandbox",
]
