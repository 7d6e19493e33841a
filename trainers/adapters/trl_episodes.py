"""Episodes of a task that TRL answers itself: what goes into TRL's generation, and what came out of it as the lab's completions.

TRL's ``_generate_and_score_completions`` draws an environment for every row and resets it with the row, its ``_generate`` calls tools or the user's
rollout function. Nothing of this is written again here: held-out prompts go through the same two methods of TRL's.
"""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import GenerationConfig
from trl import GRPOTrainer

from trainers.checks.trl_needs import find_wrong_data
from trainers.contract.events import Message
from trainers.contract.problems import SpecError
from trainers.judges.rewards import RewardFailed
from trainers.policies.sampling import Completion, Sampling, as_rows
from trainers.rollouts.engine import in_evaluation_mode
from trainers.tasks.base import Example
from trainers.tasks.trl_rollouts import REWARD, TRLRollouts

if TYPE_CHECKING:
    from trainers.adapters.grpo import GRPOAdapter

SURROGATE = re.compile("[\ud800-\udfff]")  # no tokenizer takes a lone one
GREEDY = 1e-3  # the temperature that a rollout function reads where evaluation is greedy: it may divide by it
NAN = float("nan")


class HeldOutSampled(Exception):
    """Ends TRL's scoring of a batch after its generation: of held-out prompts nothing else is wanted."""


class TRLEpisodes:
    def __init__(self, trainer: "GRPOAdapter", rollouts: TRLRollouts) -> None:
        self.trainer, self.rollouts = trainer, rollouts
        self.other = "tool" if rollouts.tools and not rollouts.factories else "environment"  # who writes what the policy does not
        self.heldout_pool: dict[Any, list[Any]] = {}
        self.sampled: list[Completion] = []  # of the latest batch of held-out prompts
        self.is_measuring = False
        self.drop_environment_rewards()
        if problems := list(find_wrong_data(trainer.task, trainer.examples)):
            raise SpecError(problems)

    def drop_environment_rewards(self) -> None:
        """Those that TRL has added after ours, which have them already: they are columns of the task."""
        trainer, count = self.trainer, len(self.trainer.attempt.weights)
        for columns in (trainer.reward_funcs, trainer.reward_func_names, trainer.reward_processing_classes):
            del columns[count:]
        trainer.reward_weights = trainer.reward_weights[:count]

    def rows_for_trl(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows as a data set of the user's would have them: the prompt, and every key of the examples' data as a column."""
        return build_trl_rows([row["prompt"] for row in rows], [self.trainer.examples[row["example"]] for row in rows], self.trainer.examples)

    def collect_episodes(self, prompts: Sequence[list[dict[str, Any]]], made: tuple[Any, ...]) -> tuple[list[Completion], tuple[Any, ...]]:
        """The episodes of a batch, and what TRL's ``_generate`` has made of it, without sampler's log-probabilities of tokens that are not the
        policy's and without what is for the lab alone. Raises ValueError for what a rollout function must not return, and RewardFailed."""
        prompt_ids, ids, masks, messages, logprobs, extra, *images = made
        plain = masks
        masks = [[1] * len(row) for row in ids] if masks is None else [[int(bool(own)) for own in row] for row in masks]
        scores = self.read_scores(len(ids), extra)
        episodes = [
            self.build_episode(
                Completion(list(prompt_ids[row]), asked=read_prompt(prompts[row]), scores=scores[row]), ids[row], masks[row], messages[row]
            )
            for row in range(len(ids))
        ]
        if logprobs is not None:
            pairs = (zip(said, mask, strict=True) for said, mask in zip(logprobs, masks, strict=True))
            logprobs = [[one if own else NAN for one, own in row] for row in pairs]
        return episodes, (prompt_ids, ids, None if plain is None else masks, messages, logprobs, {}, *images)

    def build_episode(self, episode: Completion, ids: list[int], mask: list[int], messages: list[dict[str, Any]]) -> Completion:
        start = 0
        for own, run in groupby(mask):
            end = start + len(list(run))
            zeros = [0.0] * (end - start)
            episode.add("assistant" if own else self.other, ids[start:end], zeros, zeros)
            start = end
        episode.answer = read_content(messages[-1])
        episode.text = self.trainer.attempt.policy.tokenizer.decode(ids, skip_special_tokens=True)
        episode.finish_reason = self.find_finish_reason(ids, messages)
        return episode

    def find_finish_reason(self, ids: list[int], messages: list[dict[str, Any]]) -> Literal["stop", "length", "turns"]:
        """No end token: cut off, as TRL has it. A call without an answer: no turn was left for it, or its result did not fit and TRL took it back."""
        if ids[-1] not in self.trainer.eos_token_ids:
            return "length"
        calls = [message for message in messages if message.get("tool_calls")]
        if calls and messages[-1] is calls[-1]:
            return "turns" if len(calls) > self.trainer.max_tool_calling_iterations else "length"
        return "stop"

    def read_scores(self, count: int, extra: Mapping[str, Any]) -> list[dict[str, float | None]]:
        """What is known of each episode beside its text: its environment's reward, and fields of a rollout function that are named like a column."""
        columns = {name: list(extra[name]) for name in self.trainer.task.rewards if name in extra}
        scores = [{name: read_score(name, values[row]) for name, values in columns.items()} for row in range(count)]
        for row, environment in enumerate(self.trainer.environments or ()):
            if callable(getattr(type(environment), REWARD, None)):
                scores[row][type(environment).__name__] = self.ask_environment(environment)
        return scores

    def ask_environment(self, environment: Any) -> float | None:
        """Raises RewardFailed where the environment fails or says something that is no reward."""
        name = type(environment).__name__
        if name not in self.trainer.task.rewards:
            raise RewardFailed(f"environment_factory made a {name}, which is not the class it names")
        try:
            value = environment.get_reward()
            if inspect.isawaitable(value):
                value = asyncio.run_coroutine_threadsafe(wait_for(value), self.trainer.async_loop).result()
        except Exception as error:  # a user's code: anything can happen in it
            raise RewardFailed(f"{name}.{REWARD} failed: {type(error).__name__}: {error}") from error
        return read_score(f"{name}.{REWARD}", value)

    def complete_heldout(self, examples: Sequence[Example], how: Sampling, progress: Callable[[int], None]) -> list[Completion]:
        """One episode for each held-out example, in TRL's own way and in environments of their own. Training does not notice."""
        done: list[Completion] = []
        for start in range(0, len(examples), how.batch):
            some = examples[start : start + how.batch]
            rows = build_trl_rows([as_rows(example.prompt) for example in some], some, examples)
            with self.measure_at(how.temperature), suppress(HeldOutSampled):
                GRPOTrainer._generate_and_score_completions(self.trainer, rows)
            self.add_statistics(self.sampled, how)
            done += self.sampled
            progress(len(done))
        return done

    @contextmanager
    def measure_at(self, temperature: float) -> Iterator[None]:
        """Inside, TRL samples at ``temperature`` in evaluation mode and from another pool of environments; afterwards all is as it was."""
        trainer = self.trainer
        names = ("generation_config", "generation_kwargs", "temperature", "environments", "_environment_pool")
        kept = {name: getattr(trainer, name) for name in names if hasattr(trainer, name)}
        heat = (
            {"do_sample": True, "temperature": temperature}
            if temperature
            else {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        )
        trainer.generation_kwargs = trainer.generation_kwargs | heat
        trainer.generation_config = GenerationConfig(**trainer.generation_kwargs, disable_compile=True)
        trainer.temperature = temperature or GREEDY
        if "_environment_pool" in kept:
            trainer._environment_pool = self.heldout_pool or {name: [] for name in kept["_environment_pool"]}
            self.heldout_pool = trainer._environment_pool
        was_training, self.is_measuring = trainer.model.training, True
        trainer.model.eval()
        try:
            yield
        finally:
            self.is_measuring = False
            trainer.model.train(was_training)
            trainer._metrics["eval"].clear()
            for name, value in kept.items():
                setattr(trainer, name, value)

    @torch.no_grad()
    def add_statistics(self, made: Sequence[Completion], how: Sampling) -> None:
        """Log-probability and entropy of what the policy wrote, by one forward pass; at temperature 1 where it was sampled greedily."""
        trainer, pad = self.trainer, self.trainer.attempt.policy.tokenizer.pad_token_id
        model, size = trainer.accelerator.unwrap_model(trainer.model), trainer.args.per_device_train_batch_size
        for start in range(0, len(made), size):
            some = made[start : start + size]
            keep = max(len(one.ids) for one in some)
            rows = [one.prompt_ids + one.ids + [pad] * (keep - len(one.ids)) for one in some]
            there = [[1] * (len(one.prompt_ids) + len(one.ids)) + [0] * (keep - len(one.ids)) for one in some]
            wide = max(map(len, rows))
            ids = torch.tensor([[pad] * (wide - len(row)) + row for row in rows], device=trainer.accelerator.device)
            mask = torch.tensor([[0] * (wide - len(row)) + row for row in there], device=ids.device)
            with in_evaluation_mode(model), trainer.accelerator.autocast():
                logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=keep + 1, use_cache=False).logits
            every = torch.log_softmax(logits[:, -keep - 1 : -1].float() / (how.temperature or 1.0), -1)  # (B, T, V)
            logprobs = every.gather(2, ids[:, -keep:, None])[..., 0].tolist()
            entropies = torch.special.entr(every.exp()).sum(-1).tolist()
            for place, one in enumerate(some):
                one.logprobs = [value * own for value, own in zip(logprobs[place], one.mask, strict=False)]
                one.entropies = [value * own for value, own in zip(entropies[place], one.mask, strict=False)]


def build_trl_rows(prompts: Sequence[Any], examples: Sequence[Example], known: Sequence[Example]) -> list[dict[str, Any]]:
    """One row for each prompt, all with the same columns: None where an example has no such data. ``known``: all there are."""
    columns = dict.fromkeys(sorted({key for example in known for key in example.data}))
    return [{"prompt": prompt, **columns, **example.data} for prompt, example in zip(prompts, examples, strict=True)]


async def wait_for(value: Any) -> Any:
    return await value


def read_score(name: str, value: Any) -> float | None:
    """Raises RewardFailed for what is neither a finite number nor None."""
    try:
        score = None if value is None else float(value)
    except (TypeError, ValueError):
        raise RewardFailed(f"{name} returned {value!r}: return a finite number or None") from None
    if score is not None and not abs(score) < float("inf"):
        raise RewardFailed(f"{name} returned {score}: return a finite number or None")
    return score


def read_content(message: Mapping[str, Any]) -> str:
    """The text of a message; of one in blocks, the texts among them."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(block.get("text", "")) for block in content if isinstance(block, Mapping))
    return str(content or "")


def read_prompt(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    return [Message(str(message["role"]), read_content(message)) for message in messages]


def replace_surrogates(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message that any tokenizer takes: U+FFFD for every lone surrogate that a tool or an environment has written."""
    content = message.get("content")
    if isinstance(content, list):
        blocks = [{**block, "text": SURROGATE.sub("\ufffd", block["text"])} if isinstance(block.get("text"), str) else block for block in content]
        return {**message, "content": blocks}
    return {**message, "content": SURROGATE.sub("\ufffd", content)} if isinstance(content, str) else dict(message)


def watch_rollout_function(function: Callable[[list[Any], Any], Mapping[str, Any]]) -> Callable[[list[Any], Any], dict[str, Any]]:
    """The user's function as TRL calls it; what it returns is looked at before TRL stumbles over it. The wrapper raises ValueError."""

    def play_prompts(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        output = dict(function(prompts, trainer))
        ids, mask, count = output.get("completion_ids"), output.get("env_mask"), len(prompts)
        for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask"):
            values = output.get(name)
            if values is not None and len(values) != count:
                raise ValueError(f"rollout_func returned {len(values)} rows of {name} for {count} prompts")
        if ids is None or output.get("prompt_ids") is None:
            raise ValueError("rollout_func must return prompt_ids and completion_ids")
        for row, own in enumerate(ids):
            if not len(own):
                raise ValueError(f"rollout_func returned no token for prompt {row}")
            for name, values in (("env_mask", mask), ("logprobs", output.get("logprobs"))):
                if values is not None and len(values[row]) != len(own):
                    raise ValueError(f"rollout_func returned {len(values[row])} of {name} for the {len(own)} tokens of prompt {row}")
        plain = {name: [[int(one) for one in row] for row in output[name]] for name in ("prompt_ids", "completion_ids")}
        return {**output, **plain}

    return play_prompts
