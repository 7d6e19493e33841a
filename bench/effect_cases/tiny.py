"""Short trainings of the built-in tiny policy for the effect cases, through the same code as every run; the same run is trained once."""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.effect_cases import Pairs, Quantity
from bench.effect_digest import digest_sources
from bench.equal_tokens import Curve, values_at_equal_tokens
from trainers.attempt import train
from trainers.contract import spool
from trainers.contract.events import Metrics, Rollout
from trainers.contract.spec import parse_spec

CACHE = Path(os.environ.get("LAB_EFFECTS_CACHE", "var/effects"))

ACCURACY = Quantity("accuracy", "held-out accuracy after the same number of steps", "higher", 0.02, "two more of a hundred problems")
ACCURACY_AT_TOKENS = Quantity(
    "accuracy at tokens",
    "held-out accuracy after training on as many tokens, prompts included; what is sampled and thrown away is not counted",
    "higher",
    0.02,
    "two more of a hundred problems",
)


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

    def accuracy_curve(self) -> Curve:
        """Held-out accuracy by the tokens trained on until then."""
        tokens = [0.0]
        for step in self.steps:
            tokens.append(step.get("num_tokens", tokens[-1]))  # another pass over a batch samples nothing new
        return [(tokens[step], values["heldout/accuracy"]) for step, values in sorted(self.heldout.items())]


def mean_of_steps(made: Trained, name: str) -> float:
    """Mean of a training metric over all steps."""
    return sum(step[name] for step in made.steps) / len(made.steps)


def accuracies(own: Trained, parent: Trained) -> Pairs:
    """Held-out accuracy of two runs at equal steps."""
    return {ACCURACY.name: (own.final("heldout/accuracy"), parent.final("heldout/accuracy"))}


def budgeted_accuracies(own: Trained, parent: Trained) -> Pairs:
    """Held-out accuracy of two runs at equal steps, and at equal tokens."""
    return accuracies(own, parent) | {ACCURACY_AT_TOKENS.name: values_at_equal_tokens(own.accuracy_curve(), parent.accuracy_curve())}


def run_train(
    seed: int,
    method: str = "",
    config: dict[str, Any] | None = None,
    *,
    trainer: str = "grpo",
    base: str = "",
    steps: int = 40,
    heldout: int = 128,
    every: int = 10,
    **overrides: Any,
) -> Trained:
    """Trains the cold-started tiny policy on word problems. ``method`` "" is the base alone. Dotted overrides: ``training__num_iterations=2``.

    Defaults otherwise are those a person gets in the browser (64 completions a step in groups of 8 for GRPO). 40 steps take 12 to 20 s.
    """
    return cached(spec_of(seed, method, config, trainer=trainer, base=base, steps=steps, heldout=heldout, every=every, **overrides))


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
    every: int = 10,
    **overrides: Any,
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "methods": [{"name": method, "config": config or {}}] if method else [],
        "task": {"name": "mini_gsm", "difficulty": "easy"},
        "training": {"trainer": trainer, "max_steps": steps},
        "evaluation": {"prompts": heldout, "every": every if heldout else 0},
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
    """The run of the same specification by the same code."""
    digest = hashlib.blake2b((json.dumps(data, sort_keys=True) + digest_sources()).encode(), digest_size=10).hexdigest()
    file = CACHE / f"{digest}.json"
    if file.exists():
        kept = json.loads(file.read_text())
        return Trained(kept["steps"], {int(step): values for step, values in kept["heldout"].items()}, kept["rollouts"])
    made = train_once(data)
    CACHE.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"steps": made.steps, "heldout": made.heldout, "rollouts": made.rollouts}))
    return made


def kept_folder(name: str) -> Path:
    """Where a policy that several measurements start from is kept, for as long as the code is the same."""
    return CACHE.absolute() / f"{name}-{digest_sources()}"


def train_once(data: dict[str, Any]) -> Trained:
    folder = Path(tempfile.mkdtemp(prefix="effect-"))
    try:
        spec = parse_spec({**data, "output": str(folder)})
        code = train.run_training(spec, folder)
        if code != train.FINISHED:
            raise RuntimeError(f"the run ended with exit code {code}: {data['methods']}")
        return read(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read(folder: Path) -> Trained:
    made = Trained([], {})
    for line in spool.read_spool_lines(folder / spool.SPOOL, 0, limit=1 << 30):
        event = line.event
        if isinstance(event, Metrics) and "loss" in event.values:
            made.steps.append(event.values)
        elif isinstance(event, Metrics) and "heldout/length" in event.values:
            made.heldout[event.step] = event.values
        elif isinstance(event, Rollout) and event.phase == "train":
            kept = {"step": event.step, "group": event.group, "sample": event.sample, "prompt": event.prompt[-1].content, "text": event.completion}
            made.rollouts.append({**kept, "reward": event.reward, "length": event.length, "rewards": event.rewards})
    return made
