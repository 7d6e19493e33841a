"""The estimate of memory against a GPU: random policies of Qwen3's sizes, two steps each, the peak of torch's allocator beside the range.

Nothing is downloaded and no lab is needed: torch, TRL with what it needs, and this clone's ``trainers/``.

    .venv/bin/python bench/gpu_memory.py [--json]            every case, on a CUDA device
    .venv/bin/python bench/gpu_memory.py --small [--json]    a tiny shape on whatever there is, to see that everything runs
    … --only Liger                                           the cases with that word in their names

Judged, on a GPU: the peak is at most the upper end of the estimate and at least half of the lower. Batches are full: every sequence is as long as it
may be. Cases that need a package which is not installed are told and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from gpu import Figures, assemble_spec, free_memory, open_attempt, write_tokenizer
from transformers import PrinterCallback, Qwen3Config, Qwen3ForCausalLM

from trainers.adapters.dpo import DPOAdapter
from trainers.adapters.grpo import GRPOAdapter
from trainers.adapters.sft import SFTAdapter
from trainers.attempt import memory, train
from trainers.contract.machine import PACKAGES
from trainers.contract.memory import MemoryPart
from trainers.contract.spec import RunSpec
from trainers.methods import stack as stacks
from trainers.tasks.base import Task

STEPS = 2
LENGTH, COMPLETION, CONTEXT = 512, 128, 1024  # tokens: of a pair's or a demonstration's sequence, of a sampled completion, of what the model reads
ADAPTERS = {"lora": {"r": 16, "alpha": 32}}
# Qwen3's config.json on the hub: width, feed-forward width, layers, heads, heads of keys and values; heads have 128 numbers.
SHAPES = {"0.6B": (1024, 3072, 28, 16, 8), "1.7B": (2048, 6144, 28, 16, 8), "4B": (2560, 9728, 36, 32, 8), "small": (64, 160, 2, 4, 2)}


@dataclass(frozen=True)
class Case:
    shape: str
    trainer: str
    batch: int
    training: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    needs: str = ""  # a module

    @property
    def name(self) -> str:
        words = [f"{self.trainer} {self.shape}", "QLoRA" if self.needs == "bitsandbytes" else "LoRA" if "lora" in self.more else "full"]
        words += ["recomputed"] * bool(self.training.get("gradient_checkpointing")) + ["Liger"] * bool(self.more.get("use_liger_kernel"))
        words += ["with a reference"] * bool(self.training.get("beta"))
        return " ".join([*words, str(self.more.get("attn_implementation", ""))]).strip()


RECOMPUTED = {"gradient_checkpointing": True}
CASES = (
    Case("0.6B", "sft", 8),
    Case("0.6B", "sft", 8, RECOMPUTED),
    Case("0.6B", "sft", 8, more={"attn_implementation": "eager"}),
    Case("0.6B", "dpo", 8),
    Case("0.6B", "dpo", 8, more=ADAPTERS),
    Case("0.6B", "grpo", 16),
    Case("0.6B", "grpo", 16, {"beta": 0.04}),
    Case("0.6B", "grpo", 64, RECOMPUTED, ADAPTERS),
    Case("1.7B", "dpo", 8, RECOMPUTED),
    Case("1.7B", "grpo", 32, more=ADAPTERS),
    Case("4B", "dpo", 8, RECOMPUTED, ADAPTERS),
    Case("4B", "sft", 8, RECOMPUTED, {"lora": {**ADAPTERS["lora"], "quantize": True}}, needs="bitsandbytes"),
    Case("0.6B", "sft", 8, more={"use_liger_kernel": True}, needs="liger_kernel"),  # last: it replaces parts of transformers for the whole process
)


def write_policy(shape: str, folder: Path, device: str) -> None:
    """Random weights in bf16, made on the device: 4 billion of them take a processor minutes."""
    width, inner, layers, heads, key_value_heads = SHAPES[shape]
    tokenizer = write_tokenizer(0 if shape == "small" else 151_936, folder)
    config = Qwen3Config(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=16 if shape == "small" else 128,
        vocab_size=len(tokenizer),
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)


def build_spec(case: Case, device: str, policy: Path, folder: Path) -> RunSpec:
    training: dict[str, Any] = {"trainer": case.trainer, "max_steps": STEPS, "warmup_steps": 0, "learning_rate": 1e-6}
    training |= {"per_device_train_batch_size": case.batch}
    if case.trainer == "grpo":
        training |= {"num_generations": 8, "prompts": 64, "max_completion_length": COMPLETION}
    else:
        training |= {"max_length": LENGTH}
    return assemble_spec(training | case.training, device, policy, folder, **case.more)


def build_rows(trainer: str, task: Task) -> list[Any]:
    """More words than a sequence has room for, so that each is cut at its limit."""
    if trainer == "grpo":
        return task.examples("train", 64, 0, "easy")
    words = " ".join(f"{number} eggs and" for number in range(LENGTH))
    prompt, answer, other = (
        [{"role": role, "content": text}] for role, text in (("user", "Go on."), ("assistant", words), ("assistant", f"No, {words}"))
    )
    row = {"prompt": prompt, "completion": answer} if trainer == "sft" else {"prompt": prompt, "chosen": answer, "rejected": other}
    return [row] * (8 * STEPS)


def measure_case(case: Case, device: str, policy: Path, scratch: Path) -> tuple[list[MemoryPart], int]:
    """The parts of the estimate, its total last, and the peak in bytes."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    attempt, writer = open_attempt(build_spec(case, device, policy, folder), policy, folder)
    rows = build_rows(case.trainer, attempt.task)
    adapter: Any = {"sft": SFTAdapter, "dpo": DPOAdapter, "grpo": GRPOAdapter}[case.trainer]
    trainer = adapter(attempt, rows, None, stacks.of_attempt(attempt))
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    writer.close()
    return memory.estimate_attempt_memory(attempt, rows), memory.measure_peak_memory(attempt.policy.device)[0]


def report_case(case: Case, device: str, policy: Path, scratch: Path, figures: Figures) -> None:
    if case.needs and (device != "cuda" or find_spec(case.needs) is None):
        figures.add(case.name, None, "", f"needs {PACKAGES[case.needs]} and a GPU")
        return
    try:
        parts, peak = measure_case(case, device, policy, scratch)
    except torch.OutOfMemoryError as error:
        figures.add(case.name, str(error).split(". ")[0], "", "fits", ok=False)
        return
    finally:
        free_memory(device)
    total = parts[-1]
    ok = total.low / 2 <= peak <= total.high if device == "cuda" else None
    bound = f"estimate {total.low / 2**30:.2f} to {total.high / 2**30:.2f}"
    figures.add(case.name, round(peak / 2**30, 2), "GiB", bound, ok)
    print("    " + ", ".join(f"{part.name} {part.low / 2**30:.2f} to {part.high / 2**30:.2f}" for part in parts[:-1]), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tiny shape, to see that everything runs")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with this word in their names")
    parser.add_argument("--json", action="store_true", help="print a JSON object as the last line")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.small:
        print("no CUDA device is there: --small runs the tiny shape on the CPU", file=sys.stderr)
        return 2
    train.set_up()
    figures = Figures()
    figures.add("device", torch.cuda.get_device_name(0) if device == "cuda" else "CPU")
    with tempfile.TemporaryDirectory(prefix="gpu-memory-") as scratch:
        for shape, cases in groupby([case for case in CASES if options.only in case.name], lambda case: "small" if options.small else case.shape):
            policy = Path(scratch) / shape
            write_policy(shape, policy, device)
            for case in cases:
                report_case(case, device, policy, Path(scratch), figures)
    if options.json:
        print(json.dumps({"device": device, "figures": figures.rows, "ok": figures.ok}))
    return 0 if figures.ok else 1


if __name__ == "__main__":
    sys.exit(main())
