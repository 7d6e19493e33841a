"""Verdicts on steps: the rules, and a real endpoint that answers as it likes."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from trainers.events import Message
from trainers.judge import Judge
from trainers.problems import SpecError
from trainers.step_judge import asked, read, required, supported, true_equation
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import MiniGsm

EXAMPLE = Example([Message("user", "Max has 3 apples, gets 3. How many?")], "6", {"start": 3, "changes": [3]})


@pytest.fixture
def endpoint() -> Iterator[tuple[Judge, list[str]]]:
    """A judge that supports the steps whose text holds "3+3", and what it was asked."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard.append(body["messages"][0]["content"])
            steps = heard[-1].partition("one a line:\n")[2].partition("\n\n")[0].splitlines()
            content = "Verdicts: " + json.dumps([int("3+3" in step) for step in steps])
            answer = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *parts: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Judge(f"http://127.0.0.1:{server.server_port}/v1", "small"), heard
    server.shutdown()
    server.server_close()


def test_an_equation_is_true_wherever_it_comes_from():
    assert [true_equation(step) for step in ("1+1=2", "9-4=5", "1+1=3", "x", "1+1=2 ")] == [True, True, False, False, False]


def test_a_step_is_supported_if_the_solution_has_it():
    assert supported(MiniGsm(), EXAMPLE, ["3+3=6", "1+1=2", "3+3=7"]) == [1.0, 0.0, 0.0]
    assert supported(MiniGsm(), Example([], "6"), ["3+3=6", "3+3=7"]) == [1.0, 0.0]


def test_a_real_endpoint_is_asked_once_for_each_completion_with_steps(endpoint):
    judge, heard = endpoint
    assert asked(judge, [EXAMPLE] * 3, [["3+3=6", "1+1=2"], [], ["2+2=4"]]) == [[1.0, 0.0], [], [0.0]]
    assert len(heard) == 2
    assert "Max has 3 apples" in heard[0]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("[1, 0]", [1, 0]), ("Sure: [1]", [1, 0]), ("[0.5, 7, 1]", [0.5, 1]), ("none", [0, 0]), ("[1, {}]", [0, 0]), ("]1[", [0, 0])],
)
def test_whatever_the_endpoint_says_there_is_one_verdict_for_each_step(answer, expected):
    assert read(answer, 2) == expected


def test_a_worker_without_a_judge_says_so():
    with pytest.raises(SpecError, match="no judge endpoint"):
        required(None, "faithrl")
