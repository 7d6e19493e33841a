"""Training on a GPU, from nothing: a randomly initialised policy of a 0.5B model's shape, GRPO and DPO in bf16, with telemetry and without.

Nothing is downloaded and no lab is needed: torch, TRL with what it needs, and this clone's ``trainers/``; pytest and hypothesis for the last part.

    .venv/bin/python bench/gpu.py [--json]                the whole thing, on a CUDA device (about 15 minutes on one H100, not measured)
    .venv/bin/python bench/gpu.py --small [--json]        a tiny shape on whatever there is; --cpu: on the CPU although there is a GPU

Judged: losses are finite; GRPO's reward rises and DPO's loss falls on a set small enough to be learnt by heart; the measured peak is within the
estimate (on a GPU; a CPU knows only the whole process's memory); a step with telemetry takes at most 1.02 times bare TRL's, rounds of both in
alternation (on a GPU at full size; ``measure_ratio`` says how); and the adapters compute what TRL's own trainers compute
(tests/trainers/test_equality.py on that device).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback  # noqa: E402
from trl import DPOConfig, DPOTrainer, GRPOTrainer  # noqa: E402

from trainers.adapters.arguments import build_common_arguments  # noqa: E402
from trainers.adapters.dpo import DPOAdapter, build_dpo_dataset  # noqa: E402
from trainers.adapters.groups import build_prompt_dataset  # noqa: E402
from trainers.adapters.grpo import GRPOAdapter, grpo_config  # noqa: E402
from trainers.attempt import memory, train  # noqa: E402
from trainers.attempt.context import Attempt  # noqa: E402
from trainers.attempt.report import Reporter  # noqa: E402
from trainers.attempt.stop import StopRequest  # noqa: E402
from trainers.contract.events import Message  # noqa: E402
from trainers.contract.spec import RunSpec, parse_spec  # noqa: E402
from trainers.contract.spool import SPOOL, SpoolWriter  # noqa: E402
from trainers.methods import stack as stacks  # noqa: E402
from trainers.policies import loading, tiny  # noqa: E402
from trainers.tasks.base import Example, Reward, Task  # noqa: E402

RATIO = 1.02  # of a step with telemetry to a step of bare TRL
ROUNDS = 2  # of each side, in turn
WARM_UP = 2  # first steps of a round, not counted, nor is the last: ours saves its checkpoint in it
SHARED = 0.02  # of the rewarded words' embeddings, in the units of their own deviation


@dataclass(frozen=True)
class Size:
    """Of the model, and of a run."""

    shape: dict[str, int]
    vocabulary: int  # 0: the tokenizer's own
    steps: dict[str, int]
    batch: dict[str, int]
    completion: int
    rates: dict[str, float]
    context: int


SMALL = Size(
    {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160},
    0,
    {"grpo": 40, "dpo": 24},
    {"grpo": 32, "dpo": 8},
    16,
    {"grpo": 1e-2, "dpo": 1e-3},
    256,
)
# Qwen2.5 0.5B's sizes: 24 layers of width 896, 14 heads of 64 with 2 for keys, 4864 inside, 151,936 tokens: 0.49 billion parameters.
FULL = Size(
    {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864},
    151_936,
    {"grpo": 20, "dpo": 40},
    {"grpo": 32, "dpo": 8},
    128,
    {"grpo": 1e-4, "dpo": 1e-5},
    1024,
)


class ShortWords(Task):
    """A reward that random weights earn some of, so that there is something to learn: the share of tokens' texts that hold an "e"."""

    name, title, summary = "short-words", "Letters", "Write words with an e."
    difficulties = {"easy": ""}

    def __init__(self) -> None:
        self.rewards = {"letters": Reward(score_letters, "share of words with an e", 1.0)}

    def example(self, rng: random.Random, difficulty: str) -> Example:
        return Example([Message("user", f"Write {rng.randrange(10**6)} words.")], "")


def score_letters(text: str, example: Example) -> float:
    words = text.split()
    return sum("e" in word for word in words) / len(words) if words else 0.0


class StepTimes(TrainerCallback):  # type: ignore[misc]
    """Seconds of each step, from its beginning to the next one's, the device's work done, and how many of them went into generation."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.began, self.seconds = device, 0.0, list[float]()
        self.generating, self.generated = 0.0, list[float]()

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        now = self.now()
        if state.global_step:
            self.end_step(now)
        self.began = now

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.end_step(self.now())

    def end_step(self, now: float) -> None:
        self.seconds.append(now - self.began)
        self.generated.append(self.generating)
        self.generating = 0.0

    @contextmanager
    def watch_generation(self, model: Any) -> Iterator[None]:
        """By the model's class: an adapter may replace the object's own ``generate`` for a while."""
        kind, original = type(model), type(model).generate

        def generate(*args: Any, **kwargs: Any) -> Any:
            began = self.now()
            try:
                return original(*args, **kwargs)
            finally:
                self.generating += self.now() - began

        kind.generate = generate
        try:
            yield
        finally:
            kind.generate = original


@dataclass
class Round:
    seconds: list[float]  # of each step
    generated: list[float]  # of them in generate
    spooling: float  # processor seconds of the thread that writes the events, a step
    losses: list[float]
    rewards: list[float]
    tokens: int
    peak: int
    measured: str
    estimate: tuple[int, int]


def write_tokenizer(vocabulary: int, folder: Path) -> Any:
    """A tokenizer whose vocabulary is filled up with words that no text has, so that every id can be decoded; 0: as large as it is by itself."""
    tokenizer = tiny.build_tokenizer(tiny.build_tokenizer_corpus()[:2000])
    if vocabulary:
        data = json.loads(tokenizer.backend_tokenizer.to_str())
        first = len(tokenizer)
        data["model"]["vocab"] |= {f"Ġfill{number}{'e' if number % 3 else 'o'}": number for number in range(first, vocabulary)}
        template, special = tokenizer.chat_template, {"pad_token": tiny.PAD, "eos_token": tiny.END}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(data)), padding_side="left", **special)
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return tokenizer


def write_policy(size: Size, folder: Path) -> None:
    """Random weights."""
    tokenizer = write_tokenizer(size.vocabulary, folder)
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(
        **size.shape,
        **ids,
        bos_token_id=None,
        vocab_size=len(tokenizer),
        max_position_embeddings=size.context,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    rewarded = torch.tensor(["e" in (text or "") for text in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))])
    # A direction that the rewarded words share: without one each of 150,000 had to be sampled before it could be learnt.
    model.model.embed_tokens.weight.data[rewarded] += SHARED * torch.randn(config.hidden_size)
    model.generation_config = GenerationConfig(**ids)
    model.save_pretrained(folder)


def build_spec(trainer: str, size: Size, device: str, policy: Path, folder: Path) -> RunSpec:
    training: dict[str, Any] = {
        "trainer": trainer,
        "max_steps": size.steps[trainer],
        "warmup_steps": 1,
        "learning_rate": size.rates[trainer],
        "per_device_train_batch_size": size.batch[trainer],
        "max_completion_length": size.completion,
    }
    training |= {"num_generations": 8, "prompts": 64} if trainer == "grpo" else {"max_length": size.completion + 64}
    return assemble_spec(training, device, policy, folder)


def assemble_spec(training: dict[str, Any], device: str, policy: Path, folder: Path, **more: Any) -> RunSpec:
    """A run in bf16 from the folder ``policy``, without evaluation or checkpoints. ``more``: other parts of a spec."""
    return parse_spec(
        {
            "task": {"name": ShortWords.name},
            "policy": {"kind": "folder", "path": str(policy)},
            "training": training,
            "evaluation": {"prompts": 0},
            "limits": {"save_every": 10**6},
            "device": device,
            "precision": "bf16",
            "output": str(folder),
            **more,
        }
    )


def open_attempt(spec: RunSpec, policy: Path, folder: Path) -> tuple[Attempt, SpoolWriter]:
    """The attempt with its policy loaded, the peak of the device's memory counted from here on, and its spool, to be closed when it has trained."""
    writer = SpoolWriter(folder / SPOOL)
    if spec.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    return Attempt(spec, folder, ShortWords(), loading.load_policy(policy, spec), Reporter(writer, 1), StopRequest(folder, None)), writer


def free_memory(device: str) -> None:
    """Of what has trained: it made the next training slower, and counts to its peak."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def build_pairs(batch: int) -> list[dict[str, Any]]:
    """One batch, seen again in every step: it can be learnt by heart."""

    def say(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    return [
        {"prompt": say("user", f"{i} + {i}?"), "chosen": say("assistant", f"{2 * i}"), "rejected": say("assistant", f"{i} more than {i}")}
        for i in range(batch)
    ]


def build_trainer(attempt: Attempt, rows: list[Any], telemetry: bool) -> Any:
    """Ours, or TRL's own with the same configuration, data and reward function."""
    stack, policy, training = stacks.of_attempt(attempt), attempt.policy, attempt.spec.training
    if training.trainer == "grpo":
        if telemetry:
            return GRPOAdapter(attempt, rows, None, stack)

        def letters(completions: Any, example: Any, **rest: Any) -> list[float]:
            return [score_letters(made[-1]["content"], rows[number]) for made, number in zip(completions, example, strict=True)]

        data, arguments = build_prompt_dataset(rows), grpo_config(attempt, stack)
        return GRPOTrainer(policy.model, letters, args=arguments, train_dataset=data, processing_class=policy.tokenizer)
    if telemetry:
        return DPOAdapter(attempt, rows, None, stack)
    own = {"beta": training.beta, "max_length": training.max_length}  # type: ignore[attr-defined]
    arguments = DPOConfig(**build_common_arguments(attempt) | own | stack.base.arguments())
    return DPOTrainer(policy.model, args=arguments, train_dataset=build_dpo_dataset(rows), processing_class=policy.tokenizer)


def run_round(trainer: str, telemetry: bool, size: Size, device: str, policy: Path, scratch: Path) -> Round:
    folder = Path(tempfile.mkdtemp(dir=scratch))
    spec = build_spec(trainer, size, device, policy, folder)
    attempt, writer = open_attempt(spec, policy, folder)
    rows: list[Any] = attempt.task.examples("train", 64, 0, "easy") if trainer == "grpo" else build_pairs(size.batch[trainer])
    place = attempt.policy.device
    made = build_trainer(attempt, rows, telemetry)
    times, heard = StepTimes(place), LossWatch()
    made.remove_callback(PrinterCallback)
    made.callback_handler.callbacks.insert(0, heard)  # ours empties the log after it has read it
    made.add_callback(times)
    with times.watch_generation(attempt.policy.model):
        made.train()
    writer.sync()
    spooling = time.clock_gettime(time.pthread_getcpuclockid(cast(int, writer.thread.ident))) / len(times.seconds)
    writer.close()
    peak, measured = memory.measure_peak_memory(place)
    total = memory.estimate_attempt_memory(attempt, rows)[-1]
    tokens = int(made.state.num_input_tokens_seen or getattr(made, "_total_train_tokens", 0))
    return Round(times.seconds, times.generated, spooling, heard.losses, heard.rewards, tokens, peak, measured, (total.low, total.high))


class LossWatch(TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.losses, self.rewards = list[float](), list[float]()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **rest: Any) -> None:
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))
        if "reward" in logs:
            self.rewards.append(float(logs["reward"]))


class Figures:
    """Each with the bound it is held to, None where it is only told."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, value: Any, unit: str = "", bound: str = "", ok: bool | None = None) -> None:
        self.rows.append({"name": name, "value": value, "unit": unit, "bound": bound or None, "ok": ok})
        verdict = "" if ok is None else "  ok" if ok else "  FAILED"
        print(f"{name:34} {value} {unit}{f'   ({bound})' if bound else ''}{verdict}", flush=True)

    @property
    def ok(self) -> bool:
        return all(row["ok"] is not False for row in self.rows)


def measure_trainer(trainer: str, size: Size, device: str, policy: Path, scratch: Path, figures: Figures, count: int) -> None:
    """``count`` rounds of both sides in turn."""
    rounds: dict[bool, list[Round]] = {False: [], True: []}
    for number in range(count):
        for telemetry in (False, True) if number % 2 == 0 else (True, False):
            rounds[telemetry].append(run_round(trainer, telemetry, size, device, policy, scratch))
            free_memory(device)
    last, judged = rounds[True][-1], device == "cuda" and size.shape is FULL.shape
    ratio = measure_ratio(trainer, rounds, figures)
    figures.add(f"{trainer} step time ratio", ratio, "", f"at most {RATIO}" if judged else "", ratio <= RATIO if judged else None)
    figures.add(f"{trainer} tokens per second", round(last.tokens / sum(last.seconds)))
    figures.add(f"{trainer} finite losses", all(map(math.isfinite, last.losses)), "", "all", all(map(math.isfinite, last.losses)))
    told, what = (last.rewards, "reward") if trainer == "grpo" else (last.losses, "loss")
    quarter = max(1, len(told) // 4)
    before, after = statistics.mean(told[:quarter]), statistics.mean(told[-quarter:])
    learnt = after > before + 0.05 if trainer == "grpo" else after < 0.8 * before
    bound = "last quarter above the first by 0.05" if trainer == "grpo" else "last quarter below 0.8 of the first"
    figures.add(f"{trainer} {what}, first and last quarter", [round(before, 4), round(after, 4)], "", bound, learnt)
    low, high = last.estimate
    inside = last.peak <= high if last.measured == "cuda" else None
    figures.add(f"{trainer} peak memory ({last.measured})", last.peak, "bytes", f"estimate {low} to {high}", inside)


def measure_ratio(trainer: str, rounds: dict[bool, list[Round]], figures: Figures) -> float:
    """Of a step with telemetry to one of bare TRL, medians, what both do in ``generate`` taken from bare TRL.

    Generation is nearly all of a GRPO step here: tens of thousands of small kernels that one processor core starts, a tenth slower or faster from
    round to round. What telemetry costs is outside it, and in the thread that writes the events, which may keep the interpreter from that core: its
    whole processor time is counted.
    """
    whole, outside = {}, {}
    for telemetry, side in ((False, "bare TRL"), (True, "with telemetry")):
        counted = [pair for one in rounds[telemetry] for pair in list(zip(one.seconds, one.generated, strict=True))[WARM_UP:-1]]
        whole[telemetry] = statistics.median(step for step, _ in counted)
        steps = [step - made for step, made in counted]
        outside[telemetry] = statistics.median(steps)
        figures.add(f"{trainer} step, {side}", round(1000 * whole[telemetry], 1), "ms")
        figures.add(f"{trainer} outside generation, {side}", round(1000 * outside[telemetry], 1), "ms")
    spooling = statistics.median(one.spooling for one in rounds[True])
    figures.add(f"{trainer} thread of the spool", round(1000 * spooling, 1), "ms of processor time a step")
    return round((whole[False] + outside[True] - outside[False] + spooling) / whole[False], 4)


def run_equality_tests(device: str, figures: Figures) -> None:
    """Every adapter against TRL's own trainer, in fp32, by the tests' own comparison; without the lab's configuration of pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-c", os.devnull, "--rootdir", str(ROOT), "--noconftest", "-p", "no:cacheprovider"]
    command += ["-p", "no:django", "-p", "tests.trainers.conftest", "-W", "ignore", "tests/trainers/test_equality.py"]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "LAB_TEST_DEVICE": device}, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-1000:], file=sys.stderr)
    words = next((line.strip("= ") for line in reversed(done.stdout.splitlines()) if line.strip()), "pytest said nothing")
    figures.add(f"equality with TRL on {device}", words, "", "all pass", done.returncode == 0)
    figures.add("equality tests took", round(time.perf_counter() - began), "s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tiny shape, to see that everything runs")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU (implies --small)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each trainer runs with telemetry and without (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="of GRPO in a round (default: those of the size)")
    parser.add_argument("--no-equality", action="store_true", help="leave the equality tests out")
    parser.add_argument("--json", action="store_true", help="print a JSON object as the last line")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    if device == "cpu" and not (options.small or options.cpu):
        print("no CUDA device is there: --small runs the tiny shape on the CPU", file=sys.stderr)
        return 2
    size = SMALL if options.small or options.cpu else FULL
    if options.steps:
        size = replace(size, steps=size.steps | {"grpo": options.steps})
    train.set_up()
    figures = Figures()
    figures.add("device", torch.cuda.get_device_name(0) if device == "cuda" else "CPU")
    with tempfile.TemporaryDirectory(prefix="gpu-bench-") as scratch:
        policy = Path(scratch) / "policy"
        write_policy(size, policy)
        figures.add("parameters", sum(parameter.numel() for parameter in loading.load_model(policy, torch.float32).parameters()))
        for trainer in ("grpo", "dpo"):
            measure_trainer(trainer, size, device, policy, Path(scratch), figures, options.rounds)
    if not options.no_equality:
        run_equality_tests(device, figures)
    if options.json:
        print(json.dumps({"size": "0.5B" if size.shape is FULL.shape else "small", "device": device, "figures": figures.rows, "ok": figures.ok}))
    return 0 if figures.ok else 1


if __name__ == "__main__":
    sys.exit(main())
