"""Real runs that went as they should, kept as what the health checks look at: a check that finds something in them is wrong about it.

Trains every base on the built-in policy and writes the metrics that the checks read, the newest training rollouts and the settings to
``bench/doctor_runs.json``; ``tests/lab/test_doctor_healthy.py`` puts them, and runs redrawn from them, before every check.

    .venv/bin/python -m bench.doctor_runs [NAME ...]
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("DATABASE_URL", "postgres:///unused")  # lab's settings want both; nothing here connects
os.environ.setdefault("REDIS_URL", "unix:///unused")
os.environ.setdefault("SECRET_KEY", "unused")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")

import django

django.setup()

from bench.effect_cases.tiny import spec_of  # noqa: E402
from lab.rollouts.doctor.rules import RULES  # noqa: E402
from trainers.attempt import train  # noqa: E402
from trainers.contract import spool  # noqa: E402
from trainers.contract.events import Metrics, Rollout  # noqa: E402
from trainers.contract.spec import parse_spec  # noqa: E402

FILE = Path(__file__).with_name("doctor_runs.json")
ANSWERS = 256
RUNS: dict[str, dict[str, Any]] = {
    **{base: {"base": base, "steps": 60} for base in ("grpo", "dapo", "dr-grpo", "gspo", "rloo", "cispo")},
    "grpo-medium": {"base": "grpo", "steps": 60, "task": {"name": "mini_gsm", "difficulty": "medium"}},
    "kb": {"base": "grpo", "steps": 40, "task": {"name": "kb", "difficulty": "easy"}},
    **{base: {"trainer": "dpo", "base": base, "steps": 60} for base in ("dpo", "ipo")},
    **{trainer: {"trainer": trainer, "steps": 60} for trainer in ("kto", "sft", "reward")},
}


def main() -> None:
    kept: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in sys.argv[1:] or [name for name in RUNS if name not in kept]:
        print(name, flush=True)
        kept[name] = train_run(RUNS[name])
        FILE.write_text(json.dumps(kept, separators=(",", ":"), sort_keys=True) + "\n")


def train_run(arguments: dict[str, Any]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="doctor-run-"))
    try:
        data = {**spec_of(0, heldout=64, **arguments), "output": str(folder)}
        data["evaluation"]["every"] = 10 if data["training"]["trainer"] != "reward" else 0
        spec = parse_spec(data)
        if (code := train.run_training(spec, folder)) != train.FINISHED:
            raise SystemExit(f"{arguments} ended with exit code {code}")
        return read_run(folder, spec.model_dump(mode="json"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_run(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """The spool as the checks see it: metrics by name as [steps, values], the newest rollouts without their texts."""
    wanted = {metric for rule in RULES for metric in rule.metrics}
    series: dict[str, tuple[list[int], list[float | None]]] = {}
    answers: list[dict[str, Any]] = []
    for line in spool.read_spool_lines(folder / spool.SPOOL, 0, limit=1 << 30):
        event = line.event
        if isinstance(event, Metrics):
            for name in wanted & event.values.keys():
                steps, values = series.setdefault(name, ([], []))
                value = event.values[name]
                steps.append(event.step)
                values.append(None if value is None else float(f"{value:.6g}"))
        elif isinstance(event, Rollout) and event.phase == "train":
            rewards = {reward: None if value is None else round(value, 4) for reward, value in event.rewards.items()}
            answers.append({"step": event.step, "reward": event.reward, "rewards": rewards, "finish": event.finish_reason, "length": event.length})
    return {"spec": spec, "series": series, "answers": answers[: -ANSWERS - 1 : -1]}


if __name__ == "__main__":
    main()
