"""``python -m trainers score``: a request a line, kept alive, within limits, without torch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.trainers.rewards.scoring import library
from trainers.rewards.scoring_requests import LARGEST_LINE, MOST_ROWS, KeptScorers, answer_scoring_line

ROOT = Path(__file__).resolve().parents[3]
NUMBER = library("number", answer="boxed")


def ask(scorers: KeptScorers, **request: Any) -> dict[str, Any]:
    return answer_scoring_line(scorers, json.dumps(request).encode())


def test_it_answers_line_by_line_and_imports_no_torch():
    code = "import sys; from trainers.__main__ import main; code = main(['score']); assert 'torch' not in sys.modules; sys.exit(code)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for key, (completion, value) in enumerate([(r"\boxed{7}", 1.0), ("8", 0.0)]):
            child.stdin.write(json.dumps({"definition": NUMBER, "rows": [{"completion": completion, "reference": "7"}], "key": key}) + "\n")
            child.stdin.flush()
            answer = json.loads(child.stdout.readline())
            assert (answer["ok"], answer["key"], answer["scores"][0]["value"]) == (True, key, value)
            assert answer["scores"][0]["seconds"] > 0
        child.stdin.close()
        assert child.wait(10) == 0


def test_a_file_of_rows_is_scored_with_one_definition(tmp_path):
    (tmp_path / "number.json").write_text(json.dumps(NUMBER))
    rows = [{"completion": r"\boxed{7}", "reference": "7"}, {"completion": "x"}, {"answer": "7"}]
    done = subprocess.run(
        [sys.executable, "-m", "trainers", "score", str(tmp_path / "number.json")],
        cwd=ROOT,
        input="".join(json.dumps(row) + "\n" for row in rows),
        capture_output=True,
        text=True,
        timeout=60,
    )
    right, without, unknown = map(json.loads, done.stdout.splitlines())
    assert (right["value"], without["value"], without["error"]) == (1.0, None, "the row has no reference answer")
    assert {problem["field"] for problem in unknown["problems"]} == {"rows.0.completion", "rows.0.answer"}
    assert done.returncode == 2


def test_what_is_wrong_is_said_at_its_place():
    scorers = KeptScorers()
    refused = ask(scorers, definition=library("regex", pattern="("), rows=[], key=4)
    assert (refused["ok"], refused["key"]) == (False, 4)
    assert refused["problems"][0]["field"] == "definition.config.pattern"
    assert not answer_scoring_line(scorers, b"{")["ok"]
    assert not answer_scoring_line(scorers, b" " * (LARGEST_LINE + 1))["ok"]
    assert "rows" in ask(scorers, definition=NUMBER, rows=[{"completion": ""}] * (MOST_ROWS + 1))["problems"][0]["field"]


def test_a_request_that_takes_too_long_ends_and_the_next_is_answered():
    scorers, slow = KeptScorers(), library("regex", pattern=r"(x|x\w|\wx)+$")
    refused = ask(scorers, definition=slow, rows=[{"completion": "x" * 60 + "!"}] * 20, seconds=0.5)
    assert [problem["field"] for problem in refused["problems"]] == ["seconds"]
    assert ask(scorers, definition=NUMBER, rows=[{"completion": r"\boxed 7", "reference": "7"}])["scores"][0]["value"] == 1.0
