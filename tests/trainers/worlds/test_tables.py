"""The world ``tables``: what a query may do, and what counts as grounded."""

import time

import pytest

from trainers.worlds.tables import MOST_CHARACTERS, Tables, run_query

ROWS = [["Eva", "Rome", "cook", 30], ["Leo", "Rome", "judge", 50], ["Kim", "Oslo", "pilot", 41]]


@pytest.mark.parametrize(
    ("query", "result"),
    [
        ("SELECT COUNT(*) FROM people WHERE city = 'Rome'", "2"),
        ("select name from people order by age desc limit 1", "Leo"),
        ("SELECT name, age FROM people", "Eva, 30; Leo, 50; Kim, 41"),
        ("SELECT name FROM people WHERE age > 90", "nothing"),
        ("SELECT '<answer>' || name FROM people LIMIT 1", "answerEva"),
        ("SELECT max(age) FROM people WHERE city = 'Lima'", "none"),
    ],
)
def test_a_query_reads_the_table(query: str, result: str) -> None:
    assert run_query(ROWS, query) == result


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE people",
        "INSERT INTO people VALUES ('a', 'b', 'c', 1)",
        "ATTACH '/tmp/x' AS x",
        "PRAGMA table_info(people)",
        "VACUUM INTO '/tmp/x'",
        "SELECT load_extension('x')",
        "SELECT random()",
        "SELECT date('now')",
        "SELECT zeroblob(1000000000)",
        "SELECT sql FROM sqlite_master",
        "SELECT 1; SELECT 2",
        "SELECT name FROM nobody",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "SELECT count(*) FROM people a, people b, people c, people d, people e, people f, people g, people h, people i, people j, people k, people l",
        "SELECT " + "(" * 500 + "1" + ")" * 500,
        "SELECT '" + "x" * 2_000 + "'",
        "SELECT '\ud800'",
        "SELECT '\0'",
        "",
    ],
)
def test_whatever_does_more_is_refused_at_once(query: str) -> None:
    began = time.process_time()
    if query:
        with pytest.raises(ValueError, match=r"Error|Warning"):
            run_query(ROWS, query)
    else:
        assert run_query(ROWS, query) == "nothing"
    assert time.process_time() - began < 0.2  # measured: 0.002; the machine may be busy


def test_a_long_result_is_cut() -> None:
    assert len(run_query(ROWS, "SELECT name || '" + "x" * 500 + "' FROM people")) == MOST_CHARACTERS


def test_an_answer_is_grounded_when_a_query_returned_it() -> None:
    world = Tables()
    example = next(one for one in world.examples("train", 50, 0, "easy") if one.prompt[0].content.startswith("How many"))
    query = f"<sql>{example.data['query']}</sql><information>{example.reference}</information>"
    wrong = str(int(example.reference) + 1)
    found = {
        text: tuple(reward.function(text, example) for reward in world.rewards.values())
        for text in (
            f"{query}<answer>{example.reference}</answer>",
            f"<answer>{example.reference}</answer>",
            f"{query}<answer>{wrong}</answer>",
            f"<sql>SELECT x</sql><information>error</information>{query}<answer>{example.reference}</answer>",
        )
    }
    assert list(found.values()) == [(1, 1, 1, 1), (1, 0, 1, 0), (0, 1, 1, 0), (1, 0.5, 1, 1)]
