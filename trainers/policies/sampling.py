"""Completions from a policy, in batches: one turn, or several with the task's world answering between them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from trainers.attempt.alternatives import Alternatives, fill_up, join_alternatives, no_alternatives
from trainers.attempt.telemetry import to_storable_text
from trainers.contract.events import Message, Turn
from trainers.policies.watching import TopTokenWatch
from trainers.tasks.base import Example, Task

if TYPE_CHECKING:
    from trainers.rollouts.compile import Row


@dataclass
class Completion:
    """T tokens, the policy's and the world's together; ``logprobs`` and ``entropies`` (T,) in nats, 0 on the world's tokens."""

    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)  # 1 = written by the policy
    notes: dict[str, Any] = field(default_factory=dict)  # what a rollout method knows about it; reaches RolloutBatch.notes
    turns: list[Turn] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish_reason: Literal["stop", "length", "turns"] = "stop"
    text: str = ""
    alternatives: Alternatives | None = None  # of the tokens so far, where they are wanted
    scores: dict[str, float | None] = field(default_factory=dict)  # what its world says of the state it ended in, in place of its text
    asked: Sequence[Message] | None = None  # the prompt, where it is not its example's: an environment may have added an observation
    answer: str | None = None  # what reward functions score, where that is not the whole text
    row: "Row | None" = field(default=None, compare=False, repr=False)  # of the tree that it was made from, where it was

    @property
    def sampled_logprobs(self) -> list[float]:
        """(T,) NaN on the tokens that the policy did not write."""
        return [logprob if own else float("nan") for logprob, own in zip(self.logprobs, self.mask, strict=True)]

    def add(self, role: str, ids: list[int], logprobs: Sequence[float], entropies: Sequence[float]) -> None:
        if self.alternatives is not None:
            self.alternatives = fill_up(self.alternatives, len(self.ids) + len(ids))
        self.turns.append(Turn(role, len(self.ids), len(self.ids) + len(ids)))
        self.ids += ids
        self.mask += [int(role == "assistant")] * len(ids)
        self.logprobs += logprobs
        self.entropies += entropies


@dataclass(frozen=True)
class Sampling:
    """How to sample. ``statistics``: record log-probability and entropy of every sampled token."""

    temperature: float
    max_tokens: int  # a completion is not longer, the world's answers included
    batch: int
    statistics: bool = True
    top_k: int = 0  # sample from the k likeliest tokens only; 0 = from all
    stop: tuple[str, ...] = ()  # texts that end the completion, besides the task's own
    pause: int = 0  # a turn is sampled this far at most; 0 = as far as it may go
    alternatives: int = 0  # likeliest tokens kept at every position of the completions that are asked for them


class TokenStatistics(LogitsProcessor):  # type: ignore[misc]
    """Watches ``generate``: log-probability (at ``temperature``) of every token that was sampled, and the entropy it was sampled from.

    A processor sees the logits before the choice and the choice only with the next logits, so the last one is added by ``finish``.
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature or 1.0  # greedy: the statistics are those of the unscaled distribution
        self.waiting: torch.Tensor | None = None  # (B, V) log-probabilities of a choice not seen yet
        self.logprobs: list[torch.Tensor] = []  # T x (B,)
        self.entropies: list[torch.Tensor] = []  # T x (B,)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.choose(input_ids[:, -1])
        self.waiting = torch.log_softmax(scores.float() / self.temperature, dim=-1)  # (B, V)
        self.entropies.append(torch.special.entr(self.waiting.exp()).sum(-1))
        return scores

    def choose(self, ids: torch.Tensor) -> None:
        if self.waiting is not None:
            self.logprobs.append(self.waiting.gather(1, ids[:, None])[:, 0])

    def finish(self, ids: torch.Tensor) -> tuple[list[list[float]], list[list[float]]]:
        """Log-probabilities and entropies (B, T), given the last token of every row."""
        self.choose(ids)
        return torch.stack(self.logprobs, 1).tolist(), torch.stack(self.entropies, 1).tolist()


def prompt_ids(tokenizer: Any, examples: Sequence[Example]) -> list[list[int]]:
    return chat_ids(tokenizer, [example.prompt for example in examples])


def chat_ids(tokenizer: Any, prompts: Sequence[Sequence[Message]]) -> list[list[int]]:
    """Token ids of chats, up to where the policy begins to write."""
    chats = [as_rows(prompt) for prompt in prompts]
    found: list[list[int]] = tokenizer.apply_chat_template(chats, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
    return found


def as_rows(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as TRL and chat templates want them."""
    return [{"role": message.role, "content": message.content} for message in messages]


class Sampler:
    """Samples completions of one task from one policy. Consumes torch's global random numbers."""

    def __init__(self, model: Any, tokenizer: Any, task: Task, how: Sampling) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.task = task
        self.how = how
        self.ends = end_ids(model, tokenizer)
        self.stop = (*task.stop, *how.stop)
        stops = [tokenizer.encode(text, add_special_tokens=False) for text in self.stop]
        # A stop string that is one token ends a turn like an end token does; only other ones need the text to be watched.
        self.watch_text = any(len(ids) != 1 for ids in stops)
        self.turn_ends = self.ends if self.watch_text else [*self.ends, *(ids[0] for ids in stops)]

    def complete(
        self, examples: Sequence[Example], progress: Callable[[int], None] = lambda done: None, watched: Sequence[bool] = ()
    ) -> list[Completion]:
        """One completion for each example, in order. ``progress`` hears how many are done after every batch; ``watched`` ones get alternatives."""
        done: list[Completion] = []
        for start in range(0, len(examples), self.how.batch):
            some = examples[start : start + self.how.batch]
            done += self.complete_batch(some, prompt_ids(self.tokenizer, some), watched=watched[start : start + self.how.batch])
            progress(len(done))
        return done

    def complete_batch(
        self, examples: Sequence[Example], prompts: list[list[int]], prefixes: Sequence[Sequence[int]] | None = None, watched: Sequence[bool] = ()
    ) -> list[Completion]:
        """Turn after turn, the episodes that go on sampled together. ``prefixes``: what each completion begins with, as context without loss."""
        made = [Completion(ids) for ids in prompts]
        for completion, is_watched in zip(made, watched, strict=False):
            if is_watched and self.how.alternatives:
                completion.alternatives = no_alternatives(min(self.how.alternatives, self.model.config.get_text_config().vocab_size))
        for completion, prefix in zip(made, prefixes or (), strict=False):
            if prefix:
                completion.add("given", list(prefix), [0.0] * len(prefix), [0.0] * len(prefix))
        going = [i for i, completion in enumerate(made) if len(completion.ids) < self.how.max_tokens]
        for i in set(range(len(made))) - set(going):
            made[i].finish_reason = "length"
        was_training = self.model.training
        self.model.eval()
        try:
            for turn in range(1, self.task.max_turns + 1):
                if not going:
                    break
                self.sample_turn([made[i] for i in going])
                going = [i for i in going if self.goes_on(examples[i], made[i], turn)]
        finally:
            self.model.train(was_training)
        for completion in made:
            completion.text = self.tokenizer.decode(completion.ids, skip_special_tokens=True)
        return made

    @torch.no_grad()
    def sample_turn(self, made: list[Completion]) -> None:
        """Adds the policy's next turn to each completion."""
        room = self.how.max_tokens - min(len(completion.ids) for completion in made)
        ids = [completion.prompt_ids + completion.ids for completion in made]
        padded = self.tokenizer.pad({"input_ids": ids}, padding_side="left", return_tensors="pt")
        statistics = self.make_statistics(made)
        rows = [row for row, completion in enumerate(made) if completion.alternatives is not None]
        watch = TopTokenWatch(self.how.temperature, rows, self.how.alternatives)
        watching = [*([statistics] if self.how.statistics else []), *([watch] if rows else [])]
        config = self.generation_config(min(self.task.max_turn_tokens or room, self.how.pause or room, room))
        with own_generation_config(self.model, config):
            out = self.model.generate(
                input_ids=padded["input_ids"].to(self.model.device),
                attention_mask=padded["attention_mask"].to(self.model.device),
                generation_config=config,
                logits_processor=LogitsProcessorList(watching),
                synced_gpus=False,  # of several processes that share weights (FSDP2) each has them all here, and samples on its own
                **({"tokenizer": self.tokenizer} if self.watch_text else {}),
            )
        new = out[:, padded["input_ids"].shape[1] :]  # (B, T)
        known = statistics.finish(new[:, -1]) if self.how.statistics else None
        tops = watch.finish(new[:, -1]) if rows else {}
        for row, (completion, sampled) in enumerate(zip(made, new.tolist(), strict=True)):
            end = min(self.turn_end(sampled), self.how.max_tokens - len(completion.ids))
            logprobs, entropies = (known[0][row][:end], known[1][row][:end]) if known else ([0.0] * end, [0.0] * end)
            before = completion.alternatives
            completion.add("assistant", sampled[:end], logprobs, entropies)
            if before is not None:
                completion.alternatives = join_alternatives(before, tops[row][:end])

    def make_statistics(self, made: list[Completion]) -> TokenStatistics:
        """What watches the next turn of ``made``."""
        return TokenStatistics(self.how.temperature)

    def generation_config(self, longest: int) -> GenerationConfig:
        """Plain sampling from the whole distribution."""
        heat = self.how.temperature
        choice = {"do_sample": True, "temperature": heat, "top_k": self.how.top_k, "top_p": 1.0} if heat else {"do_sample": False}
        return GenerationConfig(
            max_new_tokens=longest,
            eos_token_id=self.turn_ends,
            pad_token_id=self.tokenizer.pad_token_id,
            stop_strings=list(self.stop) if self.watch_text else None,
            disable_compile=True,
            **choice,
        )

    def turn_end(self, ids: list[int]) -> int:
        """How many of the generated ids belong to the turn: up to and with the first end token or the token that completes a stop string."""
        for place, id_ in enumerate(ids):
            if id_ in self.turn_ends:
                return place + 1
            if self.watch_text and self.stop_in(self.tokenizer.decode(ids[: place + 1])):
                return place + 1
        return len(ids)

    def stop_in(self, text: str) -> str:
        return next((stop for stop in self.stop if stop in text), "")

    def goes_on(self, example: Example, completion: Completion, turn: int) -> bool:
        """Whether the episode has another turn: adds the world's answer if so, else says why it ended."""
        last = completion.turns[-1]
        stop = self.stop_in(self.tokenizer.decode(completion.ids[last.start : last.end]))
        if not stop:
            completion.finish_reason = "stop" if completion.ids[-1] in self.ends else "length"
            return False
        if stop in self.how.stop:
            return False
        if turn == self.task.max_turns:
            completion.finish_reason = "turns"
            return False
        text = self.tokenizer.decode(completion.ids, skip_special_tokens=True)
        answer = self.task.respond(example, text[: text.rfind(stop) + len(stop)])
        if answer is None:
            completion.finish_reason = "stop"
            return False
        ids = self.tokenizer.encode(to_storable_text(answer), add_special_tokens=False)
        if len(completion.ids) + len(ids) >= self.how.max_tokens:
            completion.finish_reason = "length"
            return False
        completion.add("tool", ids, [0.0] * len(ids), [0.0] * len(ids))
        return True


def end_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every id that ends a completion: the tokenizer's and those the model declares, as TRL has it."""
    declared = model.generation_config.eos_token_id
    declared = [declared] if isinstance(declared, int) else list(declared or [])
    return declared if tokenizer.eos_token_id in declared else [tokenizer.eos_token_id, *declared]


@contextmanager
def own_generation_config(model: Any, config: GenerationConfig) -> Iterator[None]:
    """``generate`` fills what a config leaves open from the model's own; for the time of this call that is the same config.

    Set on the network below adapters: peft hands its own on to it and would leave it there, for the exported policy to be sampled with.
    """
    network = model.get_base_model() if hasattr(model, "peft_config") else model
    before = network.generation_config
    network.generation_config = config
    try:
        yield
    finally:
        network.generation_config = before
