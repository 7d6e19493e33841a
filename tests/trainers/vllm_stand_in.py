"""In the place of ``vllm serve MODEL --port N …``: the addresses that TRL's client asks, answered by transformers on a CPU.

Weights come by HTTP (``/weights``, safetensors) instead of NCCL, which needs a GPU; they really are those that sample from then on. ``/told`` says
how often each address was asked, and with which options the server was started.
"""

import argparse
import json
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from safetensors.torch import load
from transformers import AutoModelForCausalLM, AutoTokenizer

CONFIG = {"model_config": {"logprobs_mode": "processed_logprobs"}, "weight_transfer_config": {"backend": "nccl"}}


class StandIn:
    def __init__(self, folder: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.asked = Counter[str]()

    @torch.no_grad()
    def complete(self, asked: dict[str, Any]) -> dict[str, Any]:
        prompts = [ids for ids in asked["prompt"] for _ in range(asked["n"])]
        width, pad, end = max(map(len, prompts)), self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        ids = torch.tensor([[pad] * (width - len(one)) + one for one in prompts])
        mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in prompts])
        sampling = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": asked["temperature"], "max_new_tokens": asked["max_tokens"]}
        made = self.model.generate(input_ids=ids, attention_mask=mask, output_logits=True, return_dict_in_generate=True, **sampling)
        logits = torch.stack(made.logits, 1) / asked["temperature"]  # (B, T, V)
        tokens = made.sequences[:, width:]
        logprobs = logits.log_softmax(-1).gather(2, tokens[..., None])[..., 0]
        choices = []
        for prompt, row, known in zip(prompts, tokens.tolist(), logprobs.tolist(), strict=True):
            kept = row[: row.index(end) + 1] if end in row else row
            names = [f"token_id:{token}" for token in kept]
            told = {"tokens": names, "token_logprobs": known[: len(kept)], "top_logprobs": [None] * len(kept)}
            choices.append({"prompt_token_ids": prompt, "token_ids": kept, "logprobs": told, "finish_reason": "stop"})
        return {"choices": choices}


def make_handler(server: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *parts: Any) -> None:
            pass

        def answer(self, data: Any) -> None:
            body = json.dumps(data).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            told = {"asked": server.asked, "command": sys.argv[1:]}
            answers = {"/v1/models": {"data": [{"id": "policy"}]}, "/get_world_size": {"world_size": 1}, "/server_info": {"vllm_config": CONFIG}}
            self.answer({**answers, "/told": told}.get(path, {}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.asked[self.path] += 1
            if self.path == "/weights":
                server.model.load_state_dict(load(body), strict=False)
            self.answer(server.complete(json.loads(body)) if self.path == "/v1/completions" else {"success": True})

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    options, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    print("stand-in: reading the weights", flush=True)
    ThreadingHTTPServer(("127.0.0.1", options.port), make_handler(StandIn(options.model))).serve_forever()


if __name__ == "__main__":
    main()
