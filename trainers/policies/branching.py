"""Branches: another token at one place of a stored completion, and what the policy writes from there.

Two requests (``trainers.policies.sampling_requests``). ``alternatives``: which tokens were likely at that place, a line ``alternatives``.
``branch``: several completions that begin with exactly the tokens that are given, ids as they were stored and never text tokenised again; lines
``loaded``, ``written`` with everything each has so far, and ``scored`` for each with what the run's own reward functions say. The chat template
renders the prompt as it did in training. Log-probabilities and entropies, of the kept tokens too, are those of this policy at the asked temperature.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import torch

from trainers.attempt.telemetry import to_storable_text
from trainers.contract.events import Message, Turn
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import RUN_FILE, RunSpec, read_spec
from trainers.judges import rewards
from trainers.policies.branch_examples import NO_FACTS, find_example
from trainers.policies.branch_sampling import POLICY, BranchSampler
from trainers.policies.playground import MOST_TOKENS, PolicySession, Say
from trainers.policies.sampling import Completion, Sampling, chat_ids
from trainers.rewards.columns import compose_task, open_columns
from trainers.rewards.scores import ScoringContext
from trainers.tasks import registry

MOST_BRANCHES, MOST_ALTERNATIVES = 16, 50
MOST_TOTAL = 131_072  # tokens of all completions of a request, the kept ones included
CHUNK = 256  # tokens of a forward pass: all logits of a long prefix at once would take gigabytes


class AlternativesRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="ask", tag="alternatives"):
    """``prefix``: the completion's token ids before the place; ``token``: the one that was sampled there; ``temperature`` 0 counts as 1."""

    folder: str
    prompt: list[Message]
    prefix: list[int]
    token: int
    top: int = 12
    temperature: float = 1.0


class BranchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="ask", tag="branch"):
    """``run``: the run's folder, whose spec names task, weights and data; ``turns`` of the kept tokens, [role, start, end].

    ``token`` stands after ``prefix``; None lets the policy choose there.
    """

    folder: str
    run: str
    phase: str
    prompt: list[Message]
    reference: str
    prefix: list[int]
    turns: list[tuple[str, int, int]]
    token: int | None
    count: int
    temperature: float
    max_tokens: int
    seed: int = 0


def run_branch_request(text: bytes, say: Say) -> None:
    """Raises SpecError."""
    try:
        request = msgspec.json.decode(text, type=AlternativesRequest | BranchRequest)
    except msgspec.DecodeError as error:
        raise SpecError([Problem("request", "", str(error))]) from None
    if isinstance(request, AlternativesRequest):
        check_bounds(top=(request.top, 1, MOST_ALTERNATIVES), temperature=(request.temperature, 0, 5))
        AlternativesSession(request, say).run()
        return
    check_bounds(
        count=(request.count, 1, MOST_BRANCHES),
        temperature=(request.temperature, 0, 5),
        max_tokens=(request.max_tokens, 1, MOST_TOKENS),
        seed=(request.seed, 0, 2**31 - 1),
        tokens=(request.count * (len(request.prefix) + request.max_tokens), 1, MOST_TOTAL),
    )
    BranchSession(request, say).run()


def check_bounds(**bounds: tuple[float, float, float]) -> None:
    """Raises SpecError naming every value out of (value, low, high)."""
    problems = [Problem(name, str(value), f"must be from {low} to {high}") for name, (value, low, high) in bounds.items() if not low <= value <= high]
    if problems:
        raise SpecError(problems)


class PrefixSession(PolicySession):
    """What both requests do: the policy over a prompt and the completion's first tokens."""

    def check_ids(self, ids: list[int]) -> None:
        """Raises SpecError for ids that are none of this policy's."""
        most = self.model.get_input_embeddings().num_embeddings
        if any(not 0 <= token < most for token in ids):
            message = f"holds a token id that this policy does not have (it has {most})"
            raise SpecError([Problem("prefix", "", message, "choose a checkpoint with the tokenizer of the run")])

    @torch.no_grad()
    def measure(self, prompt: list[int], given: list[int], temperature: float) -> tuple[list[float], list[float], torch.Tensor]:
        """Log-probability and entropy (T,) of every given token, nats, and the log-probabilities (V,) of what comes after the last."""
        ids, cache = prompt + given, None
        logprobs: list[float] = []
        entropies: list[float] = []
        scores = torch.empty(0)
        for start in range(0, len(ids), CHUNK):
            part = torch.tensor([ids[start : start + CHUNK]], device=self.model.device)
            out = self.model(input_ids=part, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            scores = torch.log_softmax(out.logits[0].float() / (temperature or 1.0), -1)  # (C, V); row c is about token start + c + 1
            first = max(0, len(prompt) - 1 - start)
            own = ids[start + first + 1 : start + len(scores) + 1]
            rows = scores[first : first + len(own)]
            logprobs += rows.gather(1, torch.tensor(own, device=rows.device, dtype=torch.long)[:, None])[:, 0].tolist() if own else []
            entropies += torch.special.entr(rows.exp()).sum(-1).tolist()
        return logprobs, entropies, scores[-1]

    def write_token(self, token: int) -> str:
        """What a person sees of one token; bytes that are no character by themselves as the vocabulary writes them."""
        text = self.tokenizer.decode([token], skip_special_tokens=False)
        if not text or "\ufffd" in text:
            text = str(self.tokenizer.convert_ids_to_tokens(token))
        return to_storable_text(text)


class AlternativesSession(PrefixSession):
    """The likeliest tokens at a place."""

    def __init__(self, request: AlternativesRequest, say: Say) -> None:
        super().__init__(request.folder, say)
        self.request = request

    def run(self) -> None:
        request = self.request
        self.check_ids([*request.prefix, request.token])
        [prompt] = chat_ids(self.tokenizer, [request.prompt])
        self.room(len(prompt) + len(request.prefix))
        _, _, scores = self.measure(prompt, request.prefix, request.temperature)
        best = scores.topk(min(request.top, len(scores))).indices.tolist()
        own = float(scores[request.token])
        self.say(
            {
                "event": "alternatives",
                "device": str(self.model.device),
                "entropy": float(torch.special.entr(scores.exp()).sum()),
                "own": {**self.say_token(request.token, own), "rank": int((scores > own).sum()) + 1},
                "tokens": [self.say_token(token, float(scores[token])) for token in best],
            }
        )

    def say_token(self, token: int, logprob: float) -> dict[str, Any]:
        return {"id": token, "text": self.write_token(token), "logprob": max(logprob, -1e4), "end": token in self.ends}


class BranchSession(PrefixSession):
    """Completions from a place on, scored as the run scores."""

    def __init__(self, request: BranchRequest, say: Say) -> None:
        self.spec = read_spec(Path(request.run) / RUN_FILE)
        self.task = find_task(self.spec)
        open_columns(self.task, ScoringContext(Path(request.run), self.spec.device))
        super().__init__(request.folder, say)
        self.request = request
        self.left = 0  # tokens of the context after what is given
        self.place: dict[str, Any] = {}

    def run(self) -> None:
        request = self.request
        example, known = find_example(self.spec, self.task, request.phase, request.prompt, request.reference)
        begun = self.begin()
        self.say({"event": "loaded", "special": self.special(), "device": str(self.model.device), "note": "" if known else NO_FACTS, **self.place})
        how = Sampling(request.temperature, min(len(begun.ids) + request.max_tokens, len(begun.ids) + self.left), request.count)
        sampler = BranchSampler(self.model, self.tokenizer, self.task, how, lambda made: self.report(made, False))
        torch.manual_seed(request.seed)
        made = sampler.continue_from(begun, example, request.count)
        self.report(made, True)
        weights = rewards.weights_of(self.task, self.spec)
        for number, completion in enumerate(made):
            line: dict[str, Any] = {"event": "scored", "number": number, "rewards": {}, "reward": None, "problem": ""}
            try:
                scores = {name: rewards.score_column(self.task, name, [(completion.text, example)])[0] for name in self.task.rewards}
                line["rewards"] = {name: score.value for name, score in scores.items()}
                line["problem"] = to_storable_text("; ".join(f"{name}: {score.error}" for name, score in scores.items() if score.error))[:500]
                line["reward"] = rewards.weighted_sum(line["rewards"], weights)
            except rewards.RewardFailed as error:
                line["problem"] = to_storable_text(str(error))[:500]
            self.say(line)

    def begin(self) -> Completion:
        """What all completions begin with, and in ``place`` what the policy thought of the token they branch at. Raises SpecError."""
        request = self.request
        given = request.prefix if request.token is None else [*request.prefix, request.token]
        self.check_ids(given)
        [prompt] = chat_ids(self.tokenizer, [request.prompt])
        self.left = self.room(len(prompt) + len(given))
        logprobs, entropies, after = self.measure(prompt, given, request.temperature)
        chosen = request.token is not None
        entropy = entropies[-1] if chosen else float(torch.special.entr(after.exp()).sum())
        self.place = {"entropy": entropy, "logprob": max(logprobs[-1], -1e4) if chosen else None}
        self.place["text"] = self.write_token(given[-1]) if chosen else ""
        turns = cut_turns(request.turns, len(given))
        mask = [0] * len(given)
        for turn in turns:
            mask[turn.start : turn.end] = [int(turn.role == POLICY)] * (turn.end - turn.start)
        own_logprobs, own_entropies = ([value if mine else 0.0 for value, mine in zip(row, mask, strict=True)] for row in (logprobs, entropies))
        return Completion(prompt, given, mask, {}, turns, own_logprobs, own_entropies)

    def report(self, made: list[Completion], whole: bool) -> None:
        self.say({"event": "written", "completions": [self.write_completion(completion, whole) for completion in made]})

    def write_completion(self, completion: Completion, whole: bool) -> dict[str, Any]:
        text = to_storable_text(completion.text)
        return {
            "text": text,
            "ids": completion.ids,
            "lengths": self.pieces.lengths(completion.ids, text),
            "logprobs": [max(value, -1e4) for value in completion.logprobs],
            "entropies": completion.entropies,
            "mask": completion.mask,
            "turns": [[turn.role, turn.start, turn.end] for turn in completion.turns] if len(completion.turns) > 1 else [],
            "finish_reason": completion.finish_reason if whole else "",
        }


def find_task(spec: RunSpec) -> Any:
    """Raises SpecError for a task that is not installed here."""
    try:
        return compose_task(registry.load_chosen_task(spec.task, spec.seed), spec)
    except registry.UnknownTask as error:
        raise SpecError([Problem("task.name", spec.task.name, str(error), "install it where this runs")]) from None


def cut_turns(turns: list[tuple[str, int, int]], count: int) -> list[Turn]:
    """The turns of the first ``count`` tokens; a completion stored without turns is one of the policy's."""
    if not turns:
        return [Turn(POLICY, 0, count)] if count else []
    kept = [Turn(role, start, min(end, count)) for role, start, end in turns if start < count]
    if kept and kept[-1].end < count:  # the token that was chosen stands where the last turn ended
        kept.append(Turn(POLICY, kept[-1].end, count))
    return kept
