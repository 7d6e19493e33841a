"""Real tiny trainings share one policy cache, cold-started with fewer steps than a person would use."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tests.steady  # noqa: F401
from trainers.contract import spool
from trainers.contract.events import AnyEvent
from trainers.contract.spec import RunSpec, parse_spec

COLD_START_STEPS = "150"
SEARCH_STEPS = "60"  # after which the policy of kb searches in most of its answers, a third of which is enough for the tests of several turns

DEVICE = os.environ.get("LAB_TEST_DEVICE", "cpu")  # bench/gpu.py has the equality tests run on a GPU
MakeSpec = Callable[..., RunSpec]


@pytest.fixture(scope="session", autouse=True)
def policy_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of built-in policies for this test session; a cold start happens at most once for each task."""
    several = "PYTEST_XDIST_WORKER" in os.environ  # processes, which share what they have started cold
    folder = tmp_path_factory.getbasetemp().parent / "policies" if several else tmp_path_factory.mktemp("policies")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_CACHE", os.environ.get("LAB_TEST_CACHE", str(folder)))
        patch.setenv("LAB_COLD_START_STEPS", COLD_START_STEPS)
        yield Path(os.environ["LAB_CACHE"])


def ensure_cold_start(task: str = "mini_gsm") -> Path:
    """Folder of the built-in policy after its cold start, which is made where no test has made it before."""
    from trainers.attempt.cold_start import ensure_cold_start_policy
    from trainers.attempt.stop import StopRequest
    from trainers.tasks.registry import get_task

    unheard: Any = SimpleNamespace(
        writer=SimpleNamespace(sync=lambda: None), attempt=1, phase=lambda *progress: None, busy=lambda name: nullcontext()
    )
    return ensure_cold_start_policy(get_task(task), "easy", unheard, StopRequest(Path(os.environ["LAB_CACHE"]), None))


def make_spec(folder: Path, trainer: str = "grpo", **overrides: Any) -> RunSpec:
    """A small run: 2 prompts x 4 answers a step for GRPO, no evaluation, nothing saved before the end. Dotted names reach inside."""
    # A GPU samples other answers than a CPU: of 16 prompts some group has answers of different rewards.
    rows = 8 if DEVICE == "cpu" else 64
    small: dict[str, dict[str, Any]] = {
        "grpo": {"per_device_train_batch_size": rows, "num_generations": 4, "prompts": 64, "max_steps": 4},
        "rloo": {"per_device_train_batch_size": rows, "num_generations": 4, "prompts": 64, "max_steps": 4},
        "sft": {"per_device_train_batch_size": 8, "demonstrations": 64, "max_steps": 4},
        "dpo": {"per_device_train_batch_size": 8, "sampled_prompts": 64, "max_steps": 4},
        "orpo": {"per_device_train_batch_size": 8, "sampled_prompts": 64, "max_steps": 4},
        "cpo": {"per_device_train_batch_size": 8, "sampled_prompts": 64, "max_steps": 4},
        "online-dpo": {"per_device_train_batch_size": 4, "prompts": 64, "max_steps": 4},
        "gkd": {"per_device_train_batch_size": 4, "demonstrations": 64, "max_steps": 4},
        "kto": {"per_device_train_batch_size": 8, "sampled_prompts": 64, "max_steps": 4},
        "reward": {"per_device_train_batch_size": 8, "sampled_prompts": 64, "max_steps": 4},
        "procedure": {"per_device_train_batch_size": 8, "num_generations": 4, "prompts": 64, "max_steps": 4},
    }
    schedule = {} if trainer == "procedure" else {"warmup_steps": 1}
    data: dict[str, Any] = {
        "task": {"name": "mini_gsm", "difficulty": "easy"},
        "training": {"trainer": trainer, **schedule, **small[trainer]},
        "evaluation": {"prompts": 0},
        "limits": {"save_every": 1000},
        "output": str(folder),
        "device": DEVICE,
        "precision": "auto" if DEVICE == "cpu" else "fp32",  # on a GPU auto is bf16, where sums in another order differ by more than a tolerance
    }
    for name, value in overrides.items():
        part, _, key = name.partition("__")
        if key:
            data.setdefault(part, {})[key] = value
        else:
            data[part] = value
    return parse_spec(data)


def be_rank(orders: str) -> None:
    from trainers.attempt import parent_process, rank_processes

    parent_process.die_with_parent(os.getppid())
    if code := rank_processes.run_rank(orders):
        sys.exit(code)


def fork_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are forked from this process, which has imported what they need."""
    monkeypatch.setattr("trainers.attempt.rank_processes.build_rank_entry", lambda orders: [be_rank, str(orders)])


def events_in(folder: Path) -> list[AnyEvent]:
    """Every event of the run folder's spool; a line that is none fails the test."""
    lines = list(spool.read_spool_lines(folder / spool.SPOOL, 0, limit=1 << 30))
    assert all(line.event is not None for line in lines), [line.error for line in lines if line.error]
    return [line.event for line in lines if line.event is not None]


def current(events: list[AnyEvent], kind: Any) -> list[Any]:
    """Events of a kind without the steps that a later attempt has replayed, as readers of the spool leave them out."""
    from trainers.contract.events import AttemptStarted

    begins = {event.attempt: event.from_step for event in events if isinstance(event, AttemptStarted)}
    found = []
    for event in events:
        later = [step for attempt, step in begins.items() if attempt > event.attempt]
        if isinstance(event, kind) and all(event.step <= step for step in later):
            found.append(event)
    return found


@pytest.fixture
def written_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training on given answers, so that what a test waits for does not hang on what is sampled: of every four members of a group the first is
    right, the second wrong in the right form, the third without any form and the last a right one that is cut off before its answer."""

    from trainers.adapters.grpo import GRPOAdapter
    from trainers.adapters.rloo import RLOOAdapter

    def write(trainer: Any, prompt_ids: Any, *rest: Any) -> tuple[list[list[int]], None]:
        tokenizer, made = trainer.processing_class, []
        for place, row in enumerate(trainer.rows):
            gold = trainer.task.gold(trainer.examples[row["example"]])
            working, _, _ = gold.partition("</think>")
            text = (gold, f"{working}</think><answer>none</answer>", "7 7 7", working)[place % 4]
            made.append(tokenizer.encode(text, add_special_tokens=False) + [tokenizer.eos_token_id] * (place % 4 < 3))
        return made, None

    monkeypatch.setattr(GRPOAdapter, "_generate_single_turn", write)
    monkeypatch.setattr(RLOOAdapter, "_generate_single_turn", lambda *asked: write(*asked)[0])
