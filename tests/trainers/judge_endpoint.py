"""A small OpenAI-compatible endpoint that judges steps, on this machine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from trainers.judges.judge import Judge


@contextmanager
def step_endpoint(supports: str) -> Iterator[tuple[Judge, list[str]]]:
    """A judge that supports the steps whose text holds ``supports``, and the questions it was asked."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            question = body["messages"][0]["content"]
            heard.append(question)
            steps = question.partition("one a line:\n")[2].partition("\n\n")[0].splitlines()
            content = "Verdicts: " + json.dumps([int(supports in step) for step in steps])
            answer = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *parts: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Judge(f"http://127.0.0.1:{server.server_port}/v1", "small"), heard
        server.shutdown()
