"""Sampling for a person who watches: completions of one prompt from one policy, reported while they are written.

A request is a line of JSON (``SamplingRequest``); the answer is JSON lines (``trainers.policies.sampling_requests``): ``loaded`` once, ``written``
every REPORT_SECONDS with everything each completion has so far, ``done`` at the end. Log-probabilities and entropies are those of the policy
at the asked temperature, before top-p.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation.streamers import BaseStreamer

from trainers.attempt.telemetry import Pieces, to_storable_text
from trainers.contract.events import Message
from trainers.contract.problems import Problem, SpecError
from trainers.contract.steering_file import MOST_ALPHA
from trainers.policies import loading as policies
from trainers.policies.sampling import chat_ids, end_ids, own_generation_config
from trainers.policies.steering_files import check_vector_fits, load_steering_vector
from trainers.policies.steering_vector import steer_layer

REPORT_SECONDS = 0.15
MOST_TOKENS, MOST_COMPLETIONS = 2048, 8

Say = Callable[[dict[str, Any]], None]  # writes a line of the answer


class SamplingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``temperature`` 0 is greedy. ``seed`` makes the answer repeatable on one machine. ``steering``: the folder of a steering vector, of which
    ``alpha`` times is added; empty adds nothing.
    """

    folder: str
    prompt: list[Message]
    count: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int = 0
    steering: str = ""
    alpha: float = 0.0


def parse_sampling_request(text: bytes) -> SamplingRequest:
    """Raises SpecError naming the field."""
    try:
        request = msgspec.json.decode(text, type=SamplingRequest)
    except msgspec.DecodeError as error:
        raise SpecError([Problem("request", "", str(error))]) from None
    bounds = {
        "count": (request.count, 1, MOST_COMPLETIONS),
        "temperature": (request.temperature, 0, 5),
        "top_p": (request.top_p, 0.01, 1),
        "max_tokens": (request.max_tokens, 1, MOST_TOKENS),
        "seed": (request.seed, 0, 2**31 - 1),
        "alpha": (request.alpha, -MOST_ALPHA, MOST_ALPHA),
    }
    problems = [Problem(name, str(value), f"must be from {low} to {high}") for name, (value, low, high) in bounds.items() if not low <= value <= high]
    if not any(message.content.strip() for message in request.prompt):
        problems.append(Problem("prompt", "", "is empty"))
    if problems:
        raise SpecError(problems)
    return request


class DistributionRecorder(LogitsProcessor, BaseStreamer):  # type: ignore[misc]
    """Sees every distribution before a token is drawn from it, and every token after: (B,) at a time."""

    def __init__(self, temperature: float, report: Callable[[], None]) -> None:
        self.temperature = temperature or 1.0
        self.report = report
        self.waiting: torch.Tensor | None = None  # (B, V) log-probabilities
        self.ids: list[list[int]] = []  # T x (B,)
        self.logprobs: list[list[float]] = []
        self.entropies: list[list[float]] = []
        self.reported = 0.0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.waiting = torch.log_softmax(scores.float() / self.temperature, dim=-1)
        return scores

    def put(self, value: torch.Tensor) -> None:
        if self.waiting is None:  # the prompt
            return
        chosen = value.to(self.waiting.device)
        self.ids.append(chosen.tolist())
        self.logprobs.append(self.waiting.gather(1, chosen[:, None])[:, 0].tolist())
        self.entropies.append(torch.special.entr(self.waiting.exp()).sum(-1).tolist())
        if time.monotonic() - self.reported >= REPORT_SECONDS:
            self.report()
            self.reported = time.monotonic()

    def end(self) -> None:
        self.report()


class PolicySession:
    """One policy and one request to it. Raises SpecError for a folder that holds no policy."""

    def __init__(self, folder: str, say: Say) -> None:
        self.path = path = Path(folder)
        if not path.is_dir():
            raise SpecError([Problem("folder", path.name, "the policy's files are not there any more", "choose another checkpoint")])
        policies.check_policy_folder(path)
        self.say = say
        self.tokenizer = policies.load_tokenizer(path)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        half = device.type == "cuda" and torch.cuda.is_bf16_supported()
        self.model = policies.load_model(path, torch.bfloat16 if half else torch.float32).to(device).eval()
        self.pieces = Pieces(self.tokenizer)
        self.ends = end_ids(self.model, self.tokenizer)

    def room(self, prompt: int) -> int:
        """Tokens the policy's context has left. Raises SpecError when that is none."""
        context = getattr(self.model.config, "max_position_embeddings", None) or MOST_TOKENS + prompt
        if context <= prompt:
            message = f"has {prompt} tokens and leaves no room in the policy's context of {context}"
            raise SpecError([Problem("prompt", "", message, "make it shorter")])
        return int(context - prompt)

    def special(self) -> dict[str, str]:
        names = self.tokenizer.all_special_tokens
        return {str(key): name for key, name in zip(self.tokenizer.convert_tokens_to_ids(names), names, strict=True)}


class SamplingSession(PolicySession):
    """A request for completions of a prompt."""

    def __init__(self, request: SamplingRequest, say: Say) -> None:
        super().__init__(request.folder, say)
        self.request = request
        self.watcher = DistributionRecorder(request.temperature, self.report)

    @torch.no_grad()
    def run(self) -> None:
        request = self.request
        [prompt] = chat_ids(self.tokenizer, [request.prompt])
        self.say({"event": "loaded", "special": self.special(), "prompt_tokens": len(prompt), "device": str(self.model.device)})
        longest = min(request.max_tokens, self.room(len(prompt)))
        torch.manual_seed(request.seed)
        given = torch.tensor([prompt] * request.count, device=self.model.device)
        config = self.config(longest)
        with own_generation_config(self.model, config), self.steer():
            self.model.generate(
                input_ids=given,
                attention_mask=torch.ones_like(given),
                generation_config=config,
                logits_processor=LogitsProcessorList([self.watcher]),
                streamer=self.watcher,
            )

    def steer(self) -> AbstractContextManager[None]:
        """Inside, the policy writes with the request's vector. Raises SpecError for one of another policy, whatever its strength."""
        if not self.request.steering:
            return nullcontext()
        vector, facts = load_steering_vector(Path(self.request.steering))
        check_vector_fits(facts, self.model, self.path)
        return steer_layer(self.model, facts.layer, vector.to(self.model.device), self.request.alpha)

    def config(self, longest: int) -> GenerationConfig:
        heat = self.request.temperature
        drawn = {"do_sample": True, "temperature": heat, "top_p": self.request.top_p, "top_k": 0} if heat else {"do_sample": False}
        ends = {"eos_token_id": self.ends, "pad_token_id": self.tokenizer.pad_token_id}
        return GenerationConfig(max_new_tokens=longest, disable_compile=True, **ends, **drawn)

    def report(self) -> None:
        if self.watcher.ids:
            self.say({"event": "written", "completions": [self.completion(row) for row in range(self.request.count)]})

    def completion(self, row: int) -> dict[str, Any]:
        """Up to and with its end token; what ``generate`` pads after it is not part of it."""
        ids = [step[row] for step in self.watcher.ids]
        ended = next((place for place, token in enumerate(ids) if token in self.ends), None)
        count = len(ids) if ended is None else ended + 1
        text = to_storable_text(self.tokenizer.decode(ids[:count], skip_special_tokens=True))
        return {
            "text": text,
            "ids": ids[:count],
            "lengths": self.pieces.lengths(ids[:count], text),
            "logprobs": [step[row] for step in self.watcher.logprobs[:count]],
            "entropies": [step[row] for step in self.watcher.entropies[:count]],
            "finish_reason": "stop" if ended is not None else "length",
        }
