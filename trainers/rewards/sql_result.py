"""Whether a query that a policy wrote finds the same rows as the reference query, in the sandbox, on a database that the row's statements fill."""

from __future__ import annotations

from collections import Counter, OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

from trainers.contract.hyperparameters import param
from trainers.rewards.answers import AnswerPlace, find_answer, find_reference
from trainers.rewards.sandboxed import SandboxedReward, build_limits, read_code
from trainers.rewards.scores import UnusableRow

if TYPE_CHECKING:
    from trainers.tasks.base import Example

Found = tuple[tuple[Any, ...], ...]
KEPT = 10_000  # results of reference queries


class SqlResultParameters(AnswerPlace):
    setup: str = param(
        "setup", "Key of the row's data with the statements that make its tables (SQLite).", title="Set-up in data", min_length=1, max_length=100
    )
    statements: str = param("", "Statements for rows without any of their own.", title="Set-up", max_length=100_000)
    ordered: bool = param(False, "Rows have to come in the reference's order.", title="In order")
    seconds: float = param(2.0, "Longest a query may take.", title="Time limit", unit="seconds", ge=0.1, le=60)
    most_rows: int = param(1000, "A query that finds more rows is wrong.", title="Most rows", advanced=True, ge=1, le=100_000)
    memory: int = param(256, "Most memory of a query.", title="Memory limit", unit="MiB", advanced=True, ge=16, le=8192)


class SqlResult(SandboxedReward):
    name = "sql-result"
    title = "SQL result"
    summary = "1 where the answer's query finds the rows that the reference's does. No opinion on a row whose reference finds nothing."
    Parameters = SqlResultParameters

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.known: OrderedDict[tuple[str, str], Found] = OrderedDict()
        self.lock = Lock()

    def score(self, text: str, example: Example) -> float | None:
        chosen: SqlResultParameters = self.parameters
        setup = str(example.data.get(chosen.setup) or chosen.statements)
        wanted = self.find_wanted(setup, read_code(find_reference(example, chosen)))
        query = read_code(find_answer(text, example, chosen))
        if not query.strip():
            return 0.0
        result = self.run(setup, query)
        if not result.ok:
            return 0.0
        return float(result.rows == wanted if chosen.ordered else Counter(result.rows) == Counter(wanted))

    def find_wanted(self, setup: str, query: str) -> Found:
        """What the reference query finds. Raises UnusableRow where it cannot be run, or finds nothing: then a query for nothing would be right."""
        with self.lock:
            known = self.known.get((setup, query))
        if known is None:
            result = self.run(setup, query)
            if not result.ok:
                raise UnusableRow(f"the row's reference query cannot be run: {result.error or result.outcome}")
            known = result.rows
            with self.lock:
                self.known[setup, query] = known
                if len(self.known) > KEPT:
                    self.known.popitem(last=False)
        if not known:
            raise UnusableRow("the row's reference query finds no rows")
        return known

    def run(self, setup: str, query: str) -> Any:
        from trainers.sandbox import get_shared_sandbox

        chosen: SqlResultParameters = self.parameters
        return get_shared_sandbox().run_sql(setup, query, build_limits(chosen.seconds, chosen.memory), chosen.most_rows)
