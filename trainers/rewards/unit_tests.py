"""Whether Python that a policy wrote passes the row's tests, in the sandbox: the code never sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trainers.contract.hyperparameters import param
from trainers.rewards.answers import AnswerPlace, find_answer
from trainers.rewards.sandboxed import SandboxedReward, build_limits, read_code
from trainers.rewards.scores import UnusableRow

if TYPE_CHECKING:
    from trainers.tasks.base import Example

MOST_TESTS = 200
FORMS = "a list of asserts, or of [input, output] pairs"


class UnitTestsParameters(AnswerPlace):
    tests: str = param(
        "tests",
        "Key of the row's data with its tests: a list of Python like “assert add(1, 2) == 3”, or of what a program reads and prints.",
        title="Tests in data",
        min_length=1,
        max_length=100,
    )
    setup: str = param(
        "setup", "Key of the row's data with Python that runs before the tests; a row may have none.", title="Set-up in data", max_length=100
    )
    kind: Literal["asserts", "programs"] = param("asserts", "Tests call the code, or run it as a program and compare what it prints.", title="Kind")
    grade: Literal["all", "share"] = param("all", "1 only where every test passes, or the share of tests that do.", title="Grade")
    seconds: float = param(2.0, "Longest a test may take.", title="Time limit", unit="seconds", ge=0.1, le=60)
    total_seconds: float = param(10.0, "Longest a row's tests may take.", title="Time limit of a row", unit="seconds", advanced=True, ge=0.1, le=600)
    memory: int = param(256, "Most memory of the code.", title="Memory limit", unit="MiB", advanced=True, ge=16, le=8192)


class UnitTests(SandboxedReward):
    name = "unit-tests"
    title = "Unit tests"
    summary = "Whether the answer's Python passes the row's tests, run in the sandbox. The last code block is the code."
    Parameters = UnitTestsParameters

    def score(self, text: str, example: Example) -> float | None:
        from trainers.sandbox import get_shared_sandbox

        chosen: UnitTestsParameters = self.parameters
        tests = self.read_tests(example)
        code = read_code(find_answer(text, example, chosen))
        if not code.strip():
            return 0.0
        limits = build_limits(chosen.seconds, chosen.memory)
        if chosen.kind == "programs":
            report = get_shared_sandbox().run_io_tests(code, [(given, printed) for given, printed in tests], limits)
        else:
            setup = str(example.data.get(chosen.setup) or "") if chosen.setup else ""
            report = get_shared_sandbox().run_tests(code, tests, setup=setup, limits=limits, total_seconds=chosen.total_seconds)
        return report.share if chosen.grade == "share" else float(report.passed == len(tests))

    def read_tests(self, example: Example) -> list[Any]:
        """Raises UnusableRow for a row without tests, or with tests of another kind."""
        found = example.data.get(self.parameters.tests)
        listed = [found] if isinstance(found, str) else found
        if not isinstance(listed, list) or not listed:
            raise UnusableRow(f"the row's data has no tests under {self.parameters.tests}: {FORMS}")
        if len(listed) > MOST_TESTS:
            raise UnusableRow(f"the row has more than {MOST_TESTS} tests")
        if self.parameters.kind == "asserts":
            fits = all(isinstance(test, str) for test in listed)
        else:
            fits = all(isinstance(case, list) and len(case) == 2 and all(isinstance(part, str) for part in case) for case in listed)
        if not fits:
            raise UnusableRow(f"the row's tests under {self.parameters.tests} are not of the kind {self.parameters.kind}: {FORMS}")
        return listed
