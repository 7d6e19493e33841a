"""Rows that a dataset tool made as what a run trains on, and what its final policy does with held-out answers."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench import kept_runs
from bench.effect_cases import tiny
from trainers.attempt.evaluate import own_randomness
from trainers.contract.dataset_tools.application import apply_tool
from trainers.contract.dataset_tools.base import DatasetTool, RowForm
from trainers.contract.events import Message
from trainers.contract.spec import TaskChoice
from trainers.maths.distributions import next_token_logprobs
from trainers.policies import loading
from trainers.policies.sampling import Sampler, Sampling, chat_ids
from trainers.tasks.base import Example, Split, Task
from trainers.tasks.registry import get_task, load_chosen_task

Row = dict[str, Any]
NAME = "mini_gsm"
EASY = "easy"
UNTRAINED: dict[str, Any] = {"kind": "tiny", "cold_start": False}
BATCH = 64


@dataclass(frozen=True)
class PairScores:
    """``preferred``: share of pairs whose chosen answer is the likelier one. ``chosen``: mean log-likelihood of their tokens, in nats."""

    preferred: float
    chosen: float


def choose_task(difficulty: str = EASY) -> dict[str, Any]:
    return {"name": NAME, "difficulty": difficulty}


def draw_examples(split: Split, count: int, seed: int, difficulty: str = EASY) -> list[Example]:
    """Word problems: ``split`` "heldout" are those that no run trains on, whatever the seed."""
    return get_task(NAME).examples(split, count, seed, difficulty)


def write_right_answers(examples: Sequence[Example]) -> list[Row]:
    """Prompt and completion: the whole working, and the answer."""
    task = get_task(NAME)
    return [{"prompt": example.prompt[0].content, "completion": task.gold(example)} for example in examples]


def make_rows(tool: DatasetTool, rows: Sequence[Row], form: RowForm, seed: int) -> list[Row]:
    """All that the tool makes of the rows, in their order."""
    return [made.row for outcome in apply_tool(tool, rows, form, seed) for made in outcome.made]


def keep_trained(seed: int, rows: Sequence[Row], difficulty: str = EASY, **settings: Any) -> Path:
    """Folder of the policy that a run trained on the rows (``tiny.spec_of`` has the settings); the same run is made once."""
    settings = {"task": choose_task(difficulty), "heldout": 0, **settings}
    name = f"made-rows-{hashlib.blake2b(json.dumps([seed, rows, settings]).encode(), digest_size=8).hexdigest()}"
    folder = tiny.kept_folder(f"{name}-data")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return kept_runs.keep_policy(name, tiny.spec_of(seed, dataset={"path": str(file)}, **settings))


def answer_after(folder: Path, examples: Sequence[Example], prompts: Sequence[str], begun: Sequence[str], tokens: int) -> list[str]:
    """One answer of a kept policy to each prompt, what it begins with included. The same whenever it is asked."""
    model, tokenizer = loading.load_model(folder, torch.float32).eval(), loading.load_tokenizer(folder)
    sampler = Sampler(model, tokenizer, load_chosen_task(TaskChoice.model_validate(choose_task())), Sampling(1.0, tokens, BATCH))
    ids = chat_ids(tokenizer, [[Message("user", prompt)] for prompt in prompts])
    given, made = [tokenizer.encode(text, add_special_tokens=False) for text in begun], list[str]()
    with own_randomness(0, torch.device("cpu")):
        for start in range(0, len(ids), BATCH):
            some = slice(start, start + BATCH)
            made += [one.text for one in sampler.complete_batch(list(examples[some]), ids[some], given[some])]
    return made


def share_right(texts: Sequence[str], examples: Sequence[Example]) -> float:
    task: Task = get_task(NAME)
    return sum(task.rewards["correct"].function(text, one) == 1.0 for text, one in zip(texts, examples, strict=True)) / len(texts)


def score_heldout(folder: Path, examples: Sequence[Example], tokens: int) -> float:
    """Share of the problems that are answered right."""
    prompts = [example.prompt[0].content for example in examples]
    return share_right(answer_after(folder, examples, prompts, [""] * len(prompts), tokens), examples)


@torch.no_grad()
def score_pairs(folder: Path, pairs: Sequence[Row]) -> PairScores:
    """Of pairs ``{"prompt", "chosen", "rejected"}``, by a kept policy."""
    model, tokenizer = loading.load_model(folder, torch.float32).eval(), loading.load_tokenizer(folder)
    prompts = chat_ids(tokenizer, [[Message("user", pair["prompt"])] for pair in pairs])
    sums, lengths = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    for side in ("chosen", "rejected"):
        answers = [[*tokenizer.encode(pair[side], add_special_tokens=False), tokenizer.eos_token_id] for pair in pairs]
        batches = [slice(start, start + BATCH) for start in range(0, len(pairs), BATCH)]
        found = [sum_logprobs(model, tokenizer.pad_token_id, prompts[some], answers[some]) for some in batches]
        sums[side], lengths[side] = torch.cat(found), torch.tensor([len(answer) for answer in answers])
    preferred = (sums["chosen"] > sums["rejected"]).float().mean()
    return PairScores(float(preferred), float((sums["chosen"] / lengths["chosen"]).mean()))


def sum_logprobs(model: Any, pad: int, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> torch.Tensor:
    """(B,) log-likelihoods of answers after their prompts, in nats."""
    width = max(map(len, answers))
    ids = torch.tensor([[*answer, *[pad] * (width - len(answer))] for answer in answers])
    there = torch.tensor([[1.0] * len(answer) + [0.0] * (width - len(answer)) for answer in answers])
    logprobs = next_token_logprobs(model, prompts, ids, pad)
    return (logprobs.gather(-1, ids[..., None])[..., 0] * there).sum(-1)
