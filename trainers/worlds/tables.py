"""Questions about a small table that only SQL can read: SQLite itself is the judge of the policy's queries.

``How many live in Rome?`` wants ``<sql>SELECT COUNT(*) FROM people WHERE city = 'Rome'</sql>``, gets ``<information>2</information>`` and ends with
``<answer>2</answer>``. Queries run on a database of the step's own, in memory, which may read and count and nothing else.
"""

import random
import sqlite3
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import ATTRIBUTES, PEOPLE
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

SELECT = "SELECT"
FUNCTIONS = frozenset({"abs", "avg", "count", "length", "lower", "max", "min", "round", "sum", "total", "upper"})  # those without chance or clock
READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})
MOST_OPERATIONS = 20_000  # of SQLite's machine; a query of the gold needs some hundred
MOST_CHARACTERS = 60  # of a result
KINDS = {"easy": ("lookup", "count"), "medium": ("lookup", "count", "oldest"), "hard": ("lookup", "count", "oldest", "older")}


class TablesConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int = Field(6, ge=2, le=12, title="Rows", description="People in the table.")


class Tables(ToolWorld):
    name = "tables"
    title = "Questions to a table"
    summary = "Answer questions about a table that the policy reads by SQL; its queries really run, on SQLite."
    Config = TablesConfig
    config: TablesConfig
    difficulties = {
        "easy": "What somebody's city or job is, and how many live somewhere.",
        "medium": "Also who is the oldest.",
        "hard": "Also how many are older than an age.",
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 50 % ask the right query and answer with its result,"
        " 20 % ask for something else, 30 % answer without a query."
    )
    tools = (Tool("sql", "Runs one SELECT on the table people (name, city, job, age) and returns its first rows."),)
    max_turns = 4
    max_turn_tokens = 32
    episode_tokens = 80

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "ran": ("Share of the queries that SQLite could run; 0 without one.", 0.0),
                "format": FORMAT,
                "grounded": ("1 when the answer is what a query returned.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        names = rng.sample(PEOPLE, self.config.rows)
        ages = rng.sample(range(20, 80), self.config.rows)
        rows = [[name, rng.choice(ATTRIBUTES["city"]), rng.choice(ATTRIBUTES["job"]), age] for name, age in zip(names, ages, strict=True)]
        question, query = write_question(rng.choice(KINDS[difficulty]), rows, rng)
        return Example([Message("user", question)], run_query(rows, query), {"rows": rows, "query": query})

    def begin_calls(self, example: Example) -> State:
        return {"queries": 0, "ran": 0, "results": []}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        facts: dict[str, Any] = {"tool": tool, "query": argument[:200]}
        try:
            result, ran = run_query(example.data.get("rows", []), argument), 1
        except ValueError as error:
            result, ran, facts["error"] = "error", 0, str(error)[:200]
        results = [*state["results"], *([result] if ran else [])]
        return Step(
            {**state, "queries": state["queries"] + 1, "ran": state["ran"] + ran, "results": results},
            write_information(result),
            facts=facts,
        )

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        return {
            POLICY: {
                **self.score_answer(example, state),
                "ran": state["ran"] / state["queries"] if state["queries"] else 0.0,
                "grounded": float(state["answer"] in state["results"]),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if state["queries"] + 2 > self.max_turns:
            raise LookupError("too few turns are left")
        return [write_call("sql", example.data["query"]), write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, rows = rng.random(), example.data["rows"]
        if kind < 0.5:
            return self.tell_turns(example, self.way(example, self.begin(example)))
        _, query = write_question(rng.choice(KINDS["hard"]), rows, rng)
        guess = run_query(rows, query)
        return self.tell_turns(example, [*([write_call("sql", query)] if kind < 0.7 else []), write_answer(guess)])


def write_question(kind: str, rows: list[list[Any]], rng: random.Random) -> tuple[str, str]:
    """(question, the query that answers it)."""
    name, city, _, age = rng.choice(rows)
    if kind == "lookup":
        column = rng.choice(("city", "job"))
        return f"What is the {column} of {name}?", f"{SELECT} {column} FROM people WHERE name = '{name}'"
    if kind == "count":
        return f"How many live in {city}?", f"{SELECT} COUNT(*) FROM people WHERE city = '{city}'"
    if kind == "oldest":
        return "Who is the oldest?", f"{SELECT} name FROM people ORDER BY age DESC LIMIT 1"
    return f"How many are older than {age}?", f"{SELECT} COUNT(*) FROM people WHERE age > {age}"


def run_query(rows: list[list[Any]], query: str) -> str:
    """The first rows of what one SELECT returns, as text; ``nothing`` for none. Raises ValueError for what SQLite refuses or takes too long for."""
    base = sqlite3.connect(":memory:", cached_statements=0)
    try:
        base.execute("CREATE TABLE people (name TEXT, city TEXT, job TEXT, age INTEGER)")
        base.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", rows)
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
        base.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1_000)
        base.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 50)
        base.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 5)
        base.set_authorizer(authorize)
        base.set_progress_handler(lambda: 1, MOST_OPERATIONS)
        found = base.execute(query).fetchmany(3)
    except (sqlite3.Error, sqlite3.Warning, UnicodeError, ValueError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    finally:
        base.close()
    text = "; ".join(", ".join("none" if value is None else str(value) for value in row) for row in found)
    return text.replace("<", "").replace(">", "")[:MOST_CHARACTERS] or "nothing"


def authorize(action: int, first: str | None, second: str | None, base: str | None, trigger: str | None) -> int:
    """Reading the table, and functions that give the same for the same."""
    allowed = action in READS or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS)
    return sqlite3.SQLITE_OK if allowed and first not in ("sqlite_master", "sqlite_schema") else sqlite3.SQLITE_DENY
