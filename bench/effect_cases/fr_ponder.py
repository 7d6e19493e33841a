"""FR-Ponder on word problems of two difficulties: how long the controller ponders on each, and what that costs."""

import json
import tempfile
from functools import cache
from pathlib import Path

import torch

from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract.spec import FINAL, parse_spec
from trainers.contract.spool import SpoolWriter
from trainers.methods.context import RunContext
from trainers.methods.prompts.fr_ponder import Config, FRPonder
from trainers.policies import loading as policies
from trainers.tasks import registry

STEPS, PROMPTS, HELD_OUT = 40, 600, 200
CONFIG = {"contrast": "working", "alpha": 2.0}


def write_prompts(folder: Path, seed: int) -> Path:
    """Easy and hard problems in turn, as a dataset: a run has one difficulty."""
    task, file = registry.get_task("mini_gsm"), folder / "prompts.jsonl"
    easy, hard = (task.examples("train", PROMPTS // 2, seed, name) for name in ("easy", "hard"))
    rows = [{"prompt": one.prompt[0].content, "reference": one.reference} for pair in zip(easy, hard, strict=True) for one in pair]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


@cache
def measured(seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = tiny.spec_of(seed, "fr-ponder", CONFIG, base="grpo", steps=STEPS, heldout=0, training__max_completion_length=70)
        spec = parse_spec({**data, "dataset": {"path": str(write_prompts(folder, seed))}, "output": name})
        if train.run_training(spec, folder) != train.FINISHED:
            raise RuntimeError("the training did not finish")
        kept = torch.load(next((folder / "checkpoints").glob(f"*-{STEPS}")) / "methods.pt", weights_only=True)["methods"]["fr-ponder"]
        with SpoolWriter(folder / "measure.jsonl") as writer:
            policy = policies.load_policy(folder / FINAL, spec)
            run = RunContext(Attempt(spec, folder, registry.get_task("mini_gsm"), policy, Reporter(writer, 1), StopRequest(folder, None)))
            return compare_difficulties(run, kept)


def compare_difficulties(run: RunContext, kept: dict) -> dict[str, float]:
    """Steps by difficulty, and accuracy of held-out answers with the trained controller and with none."""
    made: dict[str, float] = {}
    plain = answer_all(run)
    method = FRPonder(Config(**CONFIG))
    method.prepare(run)
    method.restore(kept)
    steps: dict[str, list[float]] = {"easy": [], "hard": []}
    original = method.count_steps

    def count(states: torch.Tensor) -> torch.Tensor:
        found = original(states)
        steps[current[0]] += found.tolist()
        return found

    current = ["easy"]
    method.count_steps = count  # type: ignore[method-assign]
    pondered = {}
    for name in steps:
        current[0] = name
        pondered[name] = answer_difficulty(run, name)
    for name, values in steps.items():
        made[f"steps {name}"] = sum(values) / len(values)
    return made | {"plain": plain, "pondered": sum(pondered.values()) / 2}


def answer_all(run: RunContext) -> float:
    return sum(answer_difficulty(run, name) for name in ("easy", "hard")) / 2


def answer_difficulty(run: RunContext, name: str) -> float:
    examples = run.task.examples("heldout", HELD_OUT, 0, name)
    texts = [one.text for one in run.sample(examples, 1.0, name)]
    return sum(run.right(example, text) for example, text in zip(examples, texts, strict=True)) / len(examples)


def measure(seed: int) -> Pairs:
    found = measured(seed)
    return {"steps": (found["steps hard"], found["steps easy"]), "accuracy": (found["pondered"], found["plain"])}


CASE = Case(
    method="fr-ponder",
    parent="grpo",
    claim="the controller ponders longer on hard problems than on easy ones, and the answers are not worse than those of the frozen policy",
    quantities=(
        Quantity("steps", "mean steps of pondering: on hard problems, against on easy ones", "higher", 0.2, "a step on one problem in five"),
        Quantity(
            "accuracy", "mean held-out accuracy over both difficulties, against that of the frozen policy alone", "higher", 0.02, "two of a hundred"
        ),
    ),
    problem="word problems, half easy and half hard, cold-started tiny policy, frozen; 40 steps of the controller",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "config": CONFIG},
)
