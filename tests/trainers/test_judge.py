"""The judge against a real HTTP server of the test's own: good answers, patience, and a clear reason where it gives up."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trainers.judges.judge import LARGEST_ANSWER, TRIES, Judge, JudgeFailed

Answer = tuple[int, bytes]


def completion(text: Any) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


class Endpoint(ThreadingHTTPServer):
    """Answers with what ``reply`` says; remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.reply: Callable[[dict[str, Any]], Answer] = lambda body: (200, completion(f"heard: {body['messages'][0]['content']}"))

    def judge(self, key: str = "secret", path: str = "/v1") -> Judge:
        return Judge(f"http://127.0.0.1:{self.server_address[1]}{path}", "small-judge", key, pause=0.001)

    def in_turn(self, *answers: Answer) -> None:
        """One answer after the other, the last one for ever."""
        rest = list(answers)
        self.reply = lambda body: rest.pop(0) if len(rest) > 1 else rest[0]


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, dict(self.headers), body))
        status, answer = self.server.reply(body)
        self.send_response(status)
        if status in (302, 307):
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *args: Any) -> None:
        """Says nothing on the terminal."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_good_answer(endpoint):
    assert endpoint.judge().ask(["is it right?"], max_tokens=7) == ["heard: is it right?"]
    ((path, headers, body),) = endpoint.asked
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert body == {"model": "small-judge", "messages": [{"role": "user", "content": "is it right?"}], "temperature": 0, "max_tokens": 7}


def test_answers_come_in_the_order_of_the_questions(endpoint):
    questions = [f"question {number}" for number in range(30)]
    assert endpoint.judge().ask(questions) == [f"heard: {question}" for question in questions]
    assert endpoint.judge().ask([]) == []


def test_without_a_key_none_is_sent(endpoint):
    endpoint.judge(key="").ask(["?"])
    assert "Authorization" not in endpoint.asked[0][1]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_endpoint_is_asked_again(endpoint, status):
    endpoint.in_turn((status, b"later"), (200, completion("yes")))
    assert endpoint.judge().ask(["?"]) == ["yes"]
    assert len(endpoint.asked) == 2


def test_it_gives_up_on_an_endpoint_that_stays_broken(endpoint):
    endpoint.in_turn((500, b"oops"))
    with pytest.raises(JudgeFailed, match="status 500; check LAB_JUDGE_URL"):
        endpoint.judge().ask(["?"])
    assert len(endpoint.asked) == TRIES


def test_a_wrong_key_is_not_tried_again_and_not_told(endpoint):
    endpoint.in_turn((401, b"no"))
    with pytest.raises(JudgeFailed, match="status 401") as failure:
        endpoint.judge().ask(["?"])
    assert len(endpoint.asked) == 1
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b"\xff\xfe", completion(None), completion(["a"]), b"[" * 100_000],
    ids=["empty", "html", "list", "nothing", "no choice", "no message", "not utf-8", "null", "parts", "deep"],
)
def test_anything_but_a_chat_completion_is_refused(endpoint, body):
    endpoint.in_turn((200, body))
    with pytest.raises(JudgeFailed, match="does not answer as an OpenAI-compatible endpoint does"):
        endpoint.judge().ask(["?"])
    assert len(endpoint.asked) == 1


def test_an_endless_answer_is_not_read_to_its_end(endpoint):
    endpoint.in_turn((200, completion("x" * LARGEST_ANSWER)))
    with pytest.raises(JudgeFailed):
        endpoint.judge().ask(["?"])


@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_does_not_carry_the_key_elsewhere(endpoint, status):
    endpoint.in_turn((status, b""))
    with pytest.raises(JudgeFailed, match=f"status {status}"):
        endpoint.judge().ask(["?"])
    assert [path for path, _, _ in endpoint.asked] == ["/v1/chat/completions"]


def test_an_endpoint_that_is_not_there(endpoint):
    judge = endpoint.judge()
    endpoint.shutdown()
    endpoint.server_close()
    with pytest.raises(JudgeFailed, match="failed: "):
        judge.ask(["?"])


def test_one_failed_question_fails_them_all(endpoint):
    endpoint.reply = lambda body: (400, b"") if "bad" in body["messages"][0]["content"] else (200, completion("ok"))
    with pytest.raises(JudgeFailed):
        endpoint.judge().ask(["good", "bad", "good"])


def test_the_environment_names_the_judge(monkeypatch):
    monkeypatch.delenv("LAB_JUDGE_URL", raising=False)
    assert Judge.from_environment() is None
    for name, value in (("URL", "http://judge.example/v1/"), ("MODEL", "small-judge"), ("KEY", "")):
        monkeypatch.setenv(f"LAB_JUDGE_{name}", value)
    assert Judge.from_environment() == Judge("http://judge.example/v1", "small-judge", "")


@pytest.mark.parametrize("url", ["judge.example/v1", "file:///etc"])
def test_an_address_is_one_of_the_web(url):
    with pytest.raises(JudgeFailed, match="neither http:// nor https://"):
        Judge(url, "small-judge").ask(["?"])
