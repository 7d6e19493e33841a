"""What methods are given in place of a run when its stored rollouts are replayed: all that the spec and the task say, nothing that a model says.

What is not there stands as ``MissingPart``: using it raises MissingDataError with the reason, so that a method that never looks at it
replays all the same.
"""

from functools import cached_property
from typing import Any, NoReturn

import torch

from trainers.contract.events import Message
from trainers.contract.spec import RunSpec
from trainers.judges import rewards
from trainers.methods.context import RunContext
from trainers.tasks.base import Example, Task

TOKENIZER = "the policy's tokenizer, which a replay does not load"
Key = tuple[tuple[tuple[str, str], ...], str]


class MissingDataError(RuntimeError):
    """A hook needs something that stored rollouts do not have; the message says what."""


class MissingPart:
    """Something that is not there, named by ``what``. Passing it around is fine, using it is not."""

    def __init__(self, what: str) -> None:
        object.__setattr__(self, "what", what)

    def refuse(self, *args: Any, **rest: Any) -> NoReturn:
        raise MissingDataError(f"needs {object.__getattribute__(self, 'what')}")

    def __getattr__(self, name: str) -> Any:
        self.refuse()

    __call__ = __getitem__ = __iter__ = __len__ = __contains__ = __eq__ = __bool__ = refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class StoredRun(RunContext):
    """``RunContext`` without policy, reference, tokenizer and judge."""

    def __init__(self, spec: RunSpec, task: Task) -> None:
        super().__init__(attempt=MissingPart("the run's policy, which a replay does not load"))  # type: ignore[arg-type]
        self.spec, self.own_task = spec, task

    @property
    def task(self) -> Task:
        return self.own_task

    @property
    def tokenizer(self) -> Any:
        return MissingPart(TOKENIZER)

    @property
    def model(self) -> Any:
        return MissingPart("a forward pass of the policy, which a replay does not load")

    @cached_property
    def reference(self) -> Any:
        return MissingPart("a forward pass of the reference policy, which a replay does not load")

    @cached_property
    def judge(self) -> Any:
        return MissingPart("a judge, which a replay does not ask")

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def seed(self) -> int:
        return self.spec.seed

    @property
    def training(self) -> Any:
        return self.spec.training

    @cached_property
    def weights(self) -> dict[str, float]:
        return rewards.weights_of(self.task, self.spec)

    def frozen(self, folder: str) -> Any:
        return MissingPart("another model, which a replay does not load")

    def score(self, example: Example, text: str) -> float:
        return rewards.weighted_sum(rewards.score_all(self.task, text, example), self.weights) or 0.0

    def sample(self, *args: Any, **rest: Any) -> Any:
        raise MissingDataError("needs completions sampled from the policy, which a replay does not load")

    def logprobs(self, *args: Any, **rest: Any) -> Any:
        raise MissingDataError("needs a forward pass of the policy, which a replay does not load")

    def prompt_ids(self, prompts: Any) -> Any:
        return MissingPart(TOKENIZER)

    def completion_ids(self, text: str, end: bool = True) -> Any:
        return MissingPart(TOKENIZER)


class StoredExamples:
    """The training examples that stored prompts came from, drawn again from the task as the run drew them."""

    def __init__(self, spec: RunSpec, task: Task) -> None:
        self.spec, self.task = spec, task
        self.others: dict[Key, int] = {}

    @cached_property
    def known(self) -> dict[Key, tuple[int, Example]]:
        if self.spec.dataset is not None:
            return {}
        drawn = self.task.examples("train", getattr(self.spec.training, "prompts", 0), self.spec.seed, self.spec.task.difficulty)
        found: dict[Key, tuple[int, Example]] = {}
        for number, example in enumerate(drawn):
            found.setdefault(key_of(example.prompt, example.reference), (number, example))
        return found

    def of(self, prompt: list[Message], reference: str) -> tuple[int, Example]:
        """(place in the training examples, example). One that the task does not draw has a number of its own and no ``data``."""
        key = key_of(prompt, reference)
        if (drawn := self.known.get(key)) is not None:
            return drawn
        number = self.others.setdefault(key, getattr(self.spec.training, "prompts", 0) + len(self.others))
        return number, Example(prompt, reference, MissingPart("the task's own facts about the prompt (example.data), which are not stored"))  # type: ignore[arg-type]


def key_of(prompt: list[Message], reference: str) -> Key:
    return tuple((message.role, message.content) for message in prompt), reference
