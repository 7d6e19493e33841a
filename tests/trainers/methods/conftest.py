"""Two real steps of the tiny policy under a stack of methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.methods import pair_files
from tests.trainers.rollouts.conftest import make_session, scripted  # noqa: F401
from trainers.attempt import train
from trainers.contract.events import AnyEvent, Metrics, Rollout
from trainers.methods.context import RunContext
from trainers.policies.sampling import Completion, Sampler
from trainers.tasks import answers
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, World


@dataclass
class Trained:
    folder: Path
    events: list[AnyEvent]

    @property
    def steps(self) -> list[dict[str, float]]:
        """The metrics of every training step, or round of a procedure, in order."""
        return [event.values for event in self.events if isinstance(event, Metrics) and "speed/step_seconds" in event.values]

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


def write_episode_of(world: World, example: Example, member: int) -> list[Said]:
    """Of every four members of a group the first knows the way, the second answers at once, the third stops after a turn, the last writes nothing."""
    try:
        way = world.way(example, world.begin(example))
    except LookupError:  # noise leaves none
        way = ["<answer>none</answer>"]
    return [
        world.tell_turns(example, way),
        [Said(POLICY, way[-1])],
        world.tell_turns(example, way[:1]) if len(way) > 1 else [Said(POLICY, "<answer>none</answer>")],
        [Said(POLICY, "")],
    ][member % 4]


@pytest.fixture
def write_episode() -> Callable[[World, Example, int], list[Said]]:
    """How ``written_episodes`` writes one; a test file may have another."""
    return write_episode_of


@pytest.fixture
def written_episodes(monkeypatch: pytest.MonkeyPatch, write_episode: Callable[[World, Example, int], list[Said]]) -> dict[str, Any]:
    """Two steps in a world on given episodes, whatever the policy is: what to launch them with, so that no cold start is needed."""

    def write(
        self: Sampler, examples: Sequence[Example], prompts: list[list[int]], prefixes: Sequence[Sequence[int]] | None = None, **more: Any
    ) -> list[Completion]:
        assert isinstance(self.task, World)
        made = [Completion(ids) for ids in prompts]
        for member, (completion, example, prefix) in enumerate(zip(made, examples, prefixes or [()] * len(made), strict=True)):
            if prefix:
                completion.add("given", list(prefix), [0.0] * len(prefix), [0.0] * len(prefix))
            written = write_episode(self.task, example, member)
            for said in written[:1] if self.how.stop else written:
                ids = self.tokenizer.encode(said.text or self.tokenizer.eos_token, add_special_tokens=False)
                ids = ids[: self.how.max_tokens - len(completion.ids)]
                completion.add("assistant" if said.seat else "tool", ids, [-1.0] * len(ids), [1.0] * len(ids))
            completion.text = self.tokenizer.decode(completion.ids, skip_special_tokens=True)
        return made

    monkeypatch.setattr(Sampler, "complete_batch", write)
    return {"policy": {"kind": "tiny", "cold_start": False}, "training__max_completion_length": 120, "training__prompts": 32}
