"""The supervised start of the built-in masked policy: same shape, vocabulary and demonstrations as the one that writes from left to right.

It learns to restore demonstrations of which some tokens are masked and a few are wrong, and to say which are wrong. What follows the end of a text
is filled with end tokens, which are restored like any other; how many there are differs from batch to batch, since runs differ in how long an answer
may be. Done once on a machine for each task and difficulty; ``LAB_COLD_START_STEPS`` shortens it.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainers.adapters.sft import build_demonstrations
from trainers.attempt.cold_start import build_cold_start_config, describe_cold_start, find_cold_start_task
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract.events import COLD_START
from trainers.contract.hyperparameters import SFT
from trainers.masked.corruption import confidence_loss, corrupt_tokens, token_loss
from trainers.masked.model import MaskedLlama, MaskedLlamaConfig
from trainers.policies import tiny
from trainers.tasks.base import Task

WRONG = 0.1  # RemeDi's r
SHORTEST = 0.02  # share of masked tokens, at least
WIDTHS = (32, 40, 48, 64)  # tokens of an answer and the end tokens behind it
RECIPE = 1  # raise it when the way of building changes in a way that the name cannot see

Pair = tuple[list[int], list[int]]  # ids of a prompt, and of an answer with its end token


def ensure_masked_policy(task: Task, difficulty: str, reporter: Reporter, stop: StopRequest) -> Path:
    """Folder of the masked policy after its start; trains it first if this machine has not done so. Raises Stopped."""
    how, task = build_cold_start_config(), find_cold_start_task(task)

    def write(folder: Path) -> None:
        tokenizer = tiny.build_tokenizer(*family_of(task))
        with reporter.busy(COLD_START):
            rows = build_demonstrations(task, how.demonstrations, 0, difficulty, tokenizer)
        pairs = [encode_row(row, tokenizer) for row in rows]
        model = build_masked_model(tokenizer)
        train_masked_policy(model, pairs, how, reporter, stop)
        model.save_pretrained(folder, safe_serialization=True)
        tokenizer.save_pretrained(folder)

    made_from = [RECIPE, WRONG, WIDTHS, describe_cold_start(how), tiny.find_family(task).policy_name]
    return tiny.ensure_cached_folder(f"masked-{task.cache_key}-{difficulty}-{tiny.hash_json_value(made_from)}", write)


def ensure_untrained_masked_policy(task: Task) -> Path:
    """Folder of the masked policy with random weights."""

    def write(folder: Path) -> None:
        tokenizer = tiny.build_tokenizer(*family_of(task))
        build_masked_model(tokenizer).save_pretrained(folder, safe_serialization=True)
        tokenizer.save_pretrained(folder)

    return tiny.ensure_cached_folder(f"masked-untrained-{tiny.hash_json_value([RECIPE, tiny.find_family(task).policy_name])}", write)


def family_of(task: Task) -> tuple[Sequence[str], Sequence[str]]:
    family = tiny.find_family(task)
    return family.texts, family.tags


def build_masked_model(tokenizer: Any) -> MaskedLlama:
    """Random weights, the same for everyone."""
    shape: dict[str, Any] = dict(tiny.SHAPE)
    config = MaskedLlamaConfig(
        **shape, vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MaskedLlama(config).to(torch.float32)


def encode_row(row: dict[str, Any], tokenizer: Any) -> Pair:
    prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
    return list(prompt), [*tokenizer.encode(row["completion"][-1]["content"], add_special_tokens=False), tokenizer.eos_token_id]


def fill_batch(pairs: Sequence[Pair], width: int, pad: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
    """ids (B, S), attention mask (B, S), (B, S) bool writable: prompts padded on the left, answers filled with end tokens to ``width``."""
    longest = max(len(prompt) for prompt, _ in pairs)
    ids, there = [], []
    for prompt, answer in pairs:
        ids.append([pad] * (longest - len(prompt)) + prompt + (answer + [end] * width)[:width])
        there.append([0] * (longest - len(prompt)) + [1] * (len(prompt) + width))
    writable = torch.zeros(len(pairs), longest + width, dtype=torch.bool)
    writable[:, longest:] = True
    return torch.tensor(ids), torch.tensor(there), writable


def train_masked_policy(model: MaskedLlama, pairs: Sequence[Pair], how: SFT, reporter: Reporter, stop: StopRequest) -> None:
    """``how.max_steps`` steps of both losses, on the CPU. Raises Stopped."""
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=how.learning_rate, betas=(0.9, how.adam_beta2), weight_decay=how.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(1, how.warmup_steps)))
    longest = max(len(answer) for _, answer in pairs)
    widths = [width for width in WIDTHS if width >= longest] or [longest]
    model.train()
    for step in range(how.max_steps):
        stop.check()
        batch = rng.choices(pairs, k=how.per_device_train_batch_size)
        loss = compute_restoring_loss(model, *fill_batch(batch, rng.choice(widths), model.mask_id, model.config.eos_token_id), generator)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), how.max_grad_norm)
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            reporter.phase(COLD_START, step, how.max_steps)


def compute_restoring_loss(model: MaskedLlama, ids: Tensor, there: Tensor, writable: Tensor, generator: torch.Generator) -> Tensor:
    """Scalar: cross-entropy on masked and wrong tokens at random times, and the confidence's loss."""
    shares = torch.rand(len(ids), generator=generator).clamp(min=SHORTEST)
    made = corrupt_tokens(ids, writable, shares, WRONG, model.mask_id, generator)
    output = model(input_ids=made.ids, attention_mask=there, with_confidence=True)
    assert output.confidence is not None
    return token_loss(output.logits, ids, made) + confidence_loss(output.confidence, output.logits, ids, writable, made)
