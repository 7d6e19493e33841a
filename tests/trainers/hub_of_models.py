"""A model hub on this machine: what it says of its models, and the small files that are read before the weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# The configuration of Qwen/Qwen3-0.6B as far as sizes go: 596,049,920 parameters, as its card says (0.6 B).
QWEN = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
QWEN_PARAMETERS = 596_049_920
REFUSED = {"gated": (403, "GatedRepo"), "private": (401, "RepoNotFound"), "gone": (404, "RepoNotFound"), "broken": (500, "")}


@dataclass
class HubOfModels:
    """``team/<word>``: a word of REFUSED is refused so, any other has QWEN's files. ``tokens``: the Authorization of each request."""

    url: str = ""
    tokens: list[str | None] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, str, dict[str, Any]]:
        name = path.removeprefix("/api/models/").strip("/").split("/")[1]
        if name in REFUSED and not (name == "gated" and path.startswith("/api/")):  # what the hub says of a gated model is public
            return *REFUSED[name], {"error": "refused"}
        if path.startswith("/api/models/"):
            files = [{"rfilename": file} for file in ("config.json", "tokenizer_config.json", "model.safetensors")]
            return (
                200,
                "",
                {
                    "id": f"team/{name}",
                    "siblings": files,
                    "cardData": {"license": "apache-2.0"},
                    "safetensors": {"parameters": {"BF16": QWEN_PARAMETERS}, "total": QWEN_PARAMETERS},
                },
            )
        return 200, "", QWEN if path.endswith("/config.json") else {"chat_template": "{{ messages }}"}


@contextmanager
def serve_models() -> Iterator[HubOfModels]:
    hub = HubOfModels()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: Any) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            hub.tokens.append(self.headers.get("Authorization"))
            status, code, body = hub.answer(path)
            text = json.dumps(body).encode()
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
