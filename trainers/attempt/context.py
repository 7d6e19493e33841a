"""What every part of one attempt at a run shares."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trainers.attempt.generation_server import ServerPorts
from trainers.attempt.report import Reporter
from trainers.attempt.reward_columns import RewardColumns
from trainers.attempt.stop import StopRequest
from trainers.attempt.telemetry import Pieces
from trainers.contract.hyperparameters import Common
from trainers.contract.spec import RunSpec
from trainers.judges import rewards
from trainers.policies.loading import Policy
from trainers.tasks.base import Task

CHECKPOINTS = "checkpoints"
BESIDE = "beside"  # what a method of a procedure adds to the files of the exported policy
SMALL = 50_000_000  # parameters below which memory does not limit how many completions are sampled together
WIDE = 128


@dataclass
class Attempt:
    spec: RunSpec
    folder: Path
    task: Task
    policy: Policy
    reporter: Reporter
    stop: StopRequest
    report_memory: Callable[[], None] | None = None  # while it trains
    generation_server: ServerPorts | None = None  # where one samples the completions

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    @cached_property
    def pieces(self) -> Pieces:
        return Pieces(self.policy.tokenizer)

    @cached_property
    def training(self) -> Common:
        """The hyperparameters that hold now: the spec's, until an edit changes them."""
        return self.spec.training

    @cached_property
    def weights(self) -> dict[str, float]:
        """Of every reward function, as it holds now."""
        return rewards.weights_of(self.task, self.spec)

    @cached_property
    def columns(self) -> RewardColumns:
        """What scores completions."""
        return RewardColumns(self.task, self.folder, self.spec.device, self.reporter)

    @cached_property
    def sampling_batch(self) -> int:
        """Completions to sample at once outside training."""
        batch = self.spec.training.per_device_train_batch_size
        return max(batch, WIDE) if self.policy.parameters < SMALL else batch
