"""Two real steps of the tiny policy under a stack of methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.methods import pair_files
from trainers.attempt import train
from trainers.contract.events import AnyEvent, Metrics, Rollout
from trainers.methods.context import RunContext
from trainers.policies.sampling import Completion
from trainers.tasks import answers
from trainers.tasks.base import Example


@dataclass
class Trained:
    folder: Path
    events: list[AnyEvent]

    @property
    def steps(self) -> list[dict[str, float]]:
        """The metrics of every training step, in order."""
        return [event.values for event in self.events if isinstance(event, Metrics) and "loss" in event.values]

    @property
    def rollouts(self) -> list[Rollout]:
        return [event for event in self.events if isinstance(event, Rollout) and event.phase == "train"]


@pytest.fixture
def two_steps(tmp_path: Path) -> Callable[..., Trained]:
    """``two_steps("siren", {"weight": 0.1}, trainer="grpo", base="dr-grpo", training__num_iterations=2)``: trains and asserts that it finished.

    2 prompts x 4 answers a step on the cold-started tiny policy. More methods: ``methods=[{"name": ..., "config": {...}}]``.
    """

    def run(method: str, config: dict[str, Any] | None = None, *, trainer: str = "grpo", base: str = "", **overrides: Any) -> Trained:
        methods = overrides.pop("methods", None) or [{"name": method, "config": config or {}}]
        overrides.setdefault("training__max_steps", 2)
        chosen = {"base": {"name": base}} if base else {}
        spec = make_spec(tmp_path, trainer, methods=methods, **chosen, **overrides)
        assert train.run_training(spec, tmp_path) == train.FINISHED
        trained = Trained(tmp_path, events_in(tmp_path))
        assert len(trained.steps) == spec.training.max_steps
        return trained

    return run


@pytest.fixture
def written_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """What methods sample for themselves (``RunContext.sample``): right and wrong answers in turn."""

    def write_right(task: Any, example: Example) -> str:
        return task.gold(example) if example.data else answers.write_answer([], example.reference)  # a row of a file has no working

    def sample(self: RunContext, examples: Sequence[Example], *rest: Any, **more: Any) -> list[Completion]:
        prompts = self.prompt_ids([example.prompt for example in examples])
        texts = [pair_files.WRONG if place % 2 else write_right(self.attempt.task, example) for place, example in enumerate(examples)]
        made = []
        for prompt_ids, text in zip(prompts, texts, strict=True):
            ids = self.completion_ids(text)
            zeros = [0.0] * len(ids)
            made.append(Completion(prompt_ids, ids, [1] * len(ids), logprobs=zeros, entropies=zeros, text=text))
        return made

    monkeypatch.setattr(RunContext, "sample", sample)
