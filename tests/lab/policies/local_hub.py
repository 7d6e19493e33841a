"""A model hub on this machine: what huggingface_hub asks of one to make a repository, upload large files and commit."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hub:
    token: str
    url: str = ""
    refuse: int = 0  # answer everything with this status
    echo: bool = False  # put the token into what is refused, as a careless server might
    repositories: dict[str, bool] = field(default_factory=dict)  # name → private
    stored: dict[str, bytes] = field(default_factory=dict)  # SHA-256 → content
    files: dict[str, dict[str, Any]] = field(default_factory=dict)  # repository → path → content or SHA-256
    asked: list[str] = field(default_factory=list)

    def start(self) -> ThreadingHTTPServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *words: Any) -> None:
                pass

            def handle_any(self) -> None:
                answer(hub, self)

            do_GET = do_POST = do_PUT = do_HEAD = handle_any

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


def body_of(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding") != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    pieces = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        pieces.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(pieces)


def answer(hub: Hub, handler: BaseHTTPRequestHandler) -> None:
    path = handler.path.split("?")[0]
    hub.asked.append(f"{handler.command} {path}")
    body = body_of(handler)
    if handler.command == "PUT":
        hub.stored[path.rsplit("/", 1)[-1]] = body
        return say(handler, 200, {})
    if hub.refuse:
        return say(handler, hub.refuse, {"error": f"not with {handler.headers['Authorization']}" if hub.echo else "no"})
    if handler.headers["Authorization"] != f"Bearer {hub.token}":
        return say(handler, 401, {"error": "Invalid credentials"})
    if path == "/api/validate-yaml":
        return say(handler, 200, {"warnings": [], "errors": []})
    if path == "/api/repos/create":
        return create(hub, handler, json.loads(body))
    if path.endswith("/info/lfs/objects/batch"):
        objects = [{**one, "actions": {"upload": {"href": f"{hub.url}/lfs/{one['oid']}"}}} for one in json.loads(body)["objects"]]
        return say(handler, 200, {"transfer": "basic", "objects": objects})
    name = "/".join(path.removeprefix("/api/models/").split("/")[:2])
    if name not in hub.repositories:
        return say(handler, 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
    if path.endswith("/preupload/main"):
        modes = [
            {"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular", "shouldIgnore": False}
            for one in json.loads(body)["files"]
        ]
        return say(handler, 200, {"files": modes})
    if path.endswith("/commit/main"):
        return commit(hub, handler, name, body)
    return say(handler, 200, {"id": name, "private": hub.repositories[name], "siblings": [], "sha": "0" * 40})


def create(hub: Hub, handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> None:
    name = f"{asked['organization']}/{asked['name']}"
    if name in hub.repositories:
        return say(handler, 409, {"error": "exists", "url": f"{hub.url}/{name}"})
    hub.repositories[name] = asked.get("visibility") == "private" or asked.get("private") is True
    return say(handler, 200, {"url": f"{hub.url}/{name}", "id": name})


def commit(hub: Hub, handler: BaseHTTPRequestHandler, name: str, body: bytes) -> None:
    files = hub.files.setdefault(name, {})
    for line in body.splitlines():
        one = json.loads(line)
        if one["key"] == "file":
            files[one["value"]["path"]] = base64.b64decode(one["value"]["content"])
        elif one["key"] == "lfsFile":
            files[one["value"]["path"]] = hub.stored[one["value"]["oid"]]
    say(handler, 200, {"success": True, "commitOid": "1" * 40, "commitUrl": f"{hub.url}/{name}/commit/{'1' * 40}", "hookOutput": ""})


def say(handler: BaseHTTPRequestHandler, status: int, found: dict[str, Any], headers: dict[str, str] | None = None) -> None:
    text = json.dumps(found).encode()
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)), **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(text)
