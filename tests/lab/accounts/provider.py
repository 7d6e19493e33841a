"""A small OpenID Connect provider in a thread: discovery, authorize, token with PKCE, userinfo, keys."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "lab", "secret of the lab"


class Provider(ThreadingHTTPServer):
    """``claims`` are what it says of whoever signs in; ``audience`` and ``key`` what its tokens are made for and signed with."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.claims: dict[str, Any] = {}
        self.audience = CLIENT
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.challenges: dict[str, str] = {}
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def discovery(self) -> dict[str, Any]:
        ends = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        return {"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **{f"{name}_endpoint": f"{self.url}/{path}" for name, path in ends.items()}}

    def token(self, asked: dict[str, str]) -> dict[str, Any] | None:
        """None when the code is unknown or used, or its verifier or the client is wrong."""
        challenge = self.challenges.pop(asked.get("code", ""), "")
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        proven = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if not challenge or proven != challenge or (asked.get("client_id"), asked.get("client_secret")) != (CLIENT, SECRET):
            return None
        now = int(time.time())
        said = {"iss": self.url, "aud": self.audience, "iat": now, "exp": now + 60, **self.claims}
        return {"access_token": "access", "token_type": "Bearer", "id_token": jwt.encode(said, self.key, "RS256", headers={"kid": "one"})}


class Answers(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if path == "/authorize":
            code = f"code{len(self.server.challenges)}"
            self.server.challenges[code] = query["code_challenge"]
            self.send_response(302)
            self.send_header("Location", f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}")
            self.end_headers()
        elif path == "/userinfo":
            self.answer(self.server.claims if self.headers.get("Authorization") == "Bearer access" else None)
        elif path == "/jwks":
            self.answer({"keys": [{**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.server.key.public_key())), "kid": "one"}]})
        else:
            self.answer(self.server.discovery() if path == "/.well-known/openid-configuration" else None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.answer(self.server.token({name: values[0] for name, values in parse_qs(body).items()}))

    def answer(self, found: dict[str, Any] | None) -> None:
        self.send_response(200 if found is not None else 400)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(found if found is not None else {"error": "invalid_request"}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        return
