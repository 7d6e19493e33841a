"""Runs whose final policy is kept: for cases that chain stages, or measure a policy otherwise than its own run does."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from bench.effect_cases import tiny
from trainers.attempt import train
from trainers.attempt.cold_start import ensure_cold_start_policy
from trainers.attempt.evaluate import own_randomness
from trainers.attempt.stop import StopRequest
from trainers.contract.events import Message
from trainers.contract.spec import FINAL, TaskChoice, parse_spec
from trainers.policies import loading
from trainers.policies.sampling import Completion, Sampler, Sampling, chat_ids
from trainers.tasks.base import Example
from trainers.tasks.registry import load_chosen_task

BATCH = 64


def find_cold_start(task: dict[str, Any]) -> Path:
    """Folder of the built-in policy after its cold start on a task, which is made where it is not kept yet."""
    choice = TaskChoice.model_validate(task)
    unheard: Any = SimpleNamespace(writer=SimpleNamespace(sync=lambda: None), attempt=1, phase=lambda *progress: None, busy=lambda name: Silence())
    folder = tiny.kept_folder("cold-start")
    return ensure_cold_start_policy(load_chosen_task(choice), choice.difficulty, unheard, StopRequest(folder, None))


class Silence:
    """A context in which nothing is reported."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def keep_policy(name: str, data: dict[str, Any]) -> Path:
    """Folder of the final policy of a run (``tiny.spec_of``); trained once for as long as the code is the same."""
    folder = tiny.kept_folder(name)
    if not (folder / FINAL).is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        if train.run_training(parse_spec({**data, "output": str(folder)}), folder) != train.FINISHED:
            raise RuntimeError(f"{name} did not finish")
    return folder / FINAL


def sample_answers(
    prompts: Sequence[Sequence[Message]], examples: Sequence[Example], folder: Path, task: dict[str, Any], tokens: int, seed: int = 0
) -> list[Completion]:
    """One completion of a kept policy for each prompt, the same for the same ``seed``."""
    model, tokenizer = loading.load_model(folder, torch.float32).eval(), loading.load_tokenizer(folder)
    sampler = Sampler(model, tokenizer, load_chosen_task(TaskChoice.model_validate(task)), Sampling(1.0, tokens, BATCH))
    ids, made = chat_ids(tokenizer, prompts), list[Completion]()
    with own_randomness(seed, torch.device("cpu")):
        for start in range(0, len(ids), BATCH):
            made += sampler.complete_batch(list(examples[start : start + BATCH]), ids[start : start + BATCH])
    return made


def score_heldout(folder: Path, task: dict[str, Any], count: int, tokens: int, reward: str = "correct") -> float:
    """Share of held-out prompts of a task, which may be another one than the policy was trained on, with the full score of a reward function."""
    choice = TaskChoice.model_validate(task)
    chosen = load_chosen_task(choice)
    examples = chosen.examples("heldout", count, 0, choice.difficulty)
    made = sample_answers([example.prompt for example in examples], examples, folder, task, tokens)
    scores = [chosen.rewards[reward].function(one.text, example) for one, example in zip(made, examples, strict=True)]
    return scores.count(1.0) / len(scores)
