"""Short trainings of the built-in tiny policy for the effect cases, through the same code as every run; the same run is trained once."""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainers import spool, train
from trainers.events import Metrics, Rollout
from trainers.spec import parse_spec

CACHE = Path(os.environ.get("LAB_EFFECTS_CACHE", "var/effects"))


@dataclass
class Trained:
    """Numbers of one training. ``steps``: metrics of every training step, in order; ``heldout``: by step, 0 = before training."""

    steps: list[dict[str, float]]
    heldout: dict[int, dict[str, float]]
    rollouts: list[dict[str, Any]] = field(default_factory=list)  # of training: step, group, sample, prompt, text, reward, length, rewards

    def last(self, name: str, count: int = 5) -> float:
        """Mean of a training metric over the last ``count`` steps that have it."""
        values = [step[name] for step in self.steps if name in step][-count:]
        return sum(values) / len(values)

    def final(self, name: str) -> float:
        """A held-out metric after training: ``heldout/accuracy``, ``heldout/entropy``, ``heldout/length``, ..."""
        return self.heldout[max(self.heldout)][name]


def run_train(
    seed: int,
    method: str = "",
    config: dict[str, Any] | None = None,
    *,
    trainer: str = "grpo",
    base: str = "",
    steps: int = 40,
    heldout: int = 128,
    **overrides: Any,
) -> Trained:
    """Trains the cold-started tiny policy on word problems. ``method`` "" is the base alone. Dotted overrides: ``training__num_iterations=2``.

    Defaults otherwise are those a person gets in the browser (64 completions a step in groups of 8 for GRPO). 40 steps take 12 to 20 s.
    """
    return cached(spec_of(seed, method, config, trainer=trainer, base=base, steps=steps, heldout=heldout, **overrides))


def step_seconds(seed: int, method: str, **arguments: Any) -> list[float]:
    """Wall-clock seconds of the steps of a fresh short run, the first three left out; nothing is cached."""
    made = train_once(spec_of(seed, method, **arguments))
    return [step["speed/step_seconds"] for step in made.steps[3:]]


def spec_of(
    seed: int,
    method: str = "",
    config: dict[str, Any] | None = None,
    *,
    trainer: str = "grpo",
    base: str = "",
    steps: int = 40,
    heldout: int = 128,
    **overrides: Any,
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "methods": [{"name": method, "config": config or {}}] if method else [],
        "task": {"name": "mini_gsm", "difficulty": "easy"},
        "training": {"trainer": trainer, "max_steps": steps},
        "evaluation": {"prompts": heldout, "every": 0},
        "limits": {"save_every": 100_000},
        "seed": seed,
        "device": "cpu",
        "output": "run",
    }
    if base:
        data["base"] = {"name": base}
    for name, value in overrides.items():
        part, _, key = name.partition("__")
        if key:
            data.setdefault(part, {})[key] = value
        else:
            data[part] = value
    return data


def cached(data: dict[str, Any]) -> Trained:
    digest = hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=10).hexdigest()
    file = CACHE / f"{digest}.json"
    if file.exists():
        kept = json.loads(file.read_text())
        return Trained(kept["steps"], {int(step): values for step, values in kept["heldout"].items()}, kept["rollouts"])
    made = train_once(data)
    CACHE.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"steps": made.steps, "heldout": made.heldout, "rollouts": made.rollouts}))
    return made


def train_once(data: dict[str, Any]) -> Trained:
    folder = Path(tempfile.mkdtemp(prefix="effect-"))
    try:
        spec = parse_spec({**data, "output": str(folder)})
        code = train.run(spec, folder)
        if code != train.FINISHED:
            raise RuntimeError(f"the run ended with exit code {code}: {data['methods']}")
        return read(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read(folder: Path) -> Trained:
    made = Trained([], {})
    for line in spool.read(folder / spool.SPOOL, 0, limit=1 << 30):
        event = line.event
        if isinstance(event, Metrics) and "loss" in event.values:
            made.steps.append(event.values)
        elif isinstance(event, Metrics) and "heldout/length" in event.values:
            made.heldout[event.step] = event.values
        elif isinstance(event, Rollout) and event.phase == "train":
            kept = {"step": event.step, "group": event.group, "sample": event.sample, "prompt": event.prompt[-1].content, "text": event.completion}
            made.rollouts.append({**kept, "reward": event.reward, "length": event.length, "rewards": event.rewards})
    return made
