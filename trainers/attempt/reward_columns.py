"""The reward functions of an attempt: scored in batches, with the first error of each reported and the rest counted."""

import logging
from collections.abc import Sequence
from pathlib import Path

from trainers.attempt.report import Reporter
from trainers.attempt.telemetry import to_storable_text
from trainers.contract.events import Warned
from trainers.judges import rewards
from trainers.rewards.columns import close_columns, list_scorers, open_columns
from trainers.rewards.scores import Row, Score, ScoringContext
from trainers.tasks.base import Reward, Task

log = logging.getLogger(__name__)


class RewardColumns:
    """Functions of the task's own code raise; those of the library and people's Python have no opinion where they fail, and say so here."""

    def __init__(self, task: Task, folder: Path, device: str, reporter: Reporter) -> None:
        self.task, self.reporter = task, reporter
        self.context = ScoringContext(folder, device)
        self.warned: set[str] = set()
        open_columns(task, self.context)

    def score_column(self, name: str, rows: Sequence[Row], step: int) -> list[Score]:
        """Raises RewardFailed."""
        scores = rewards.score_column(self.task, name, rows)
        failed = [score for score in scores if score.error]
        if failed and name not in self.warned:
            self.warned.add(name)
            message = f"reward function {name!r} failed on {len(failed)} of {len(scores)} completions, the first with: {failed[0].error}"
            log.warning("%s", message)
            self.reporter.event(Warned, message=to_storable_text(message), step=step)
        return scores

    def score_rows(self, rows: Sequence[Row], step: int = 0) -> list[dict[str, float | None]]:
        """Every function's score of each completion. Raises RewardFailed."""
        columns = {name: self.score_column(name, rows, step) for name in self.task.rewards}
        return [{name: scores[place].value for name, scores in columns.items()} for place in range(len(rows))]

    def measure(self, name: str, scores: Sequence[Score]) -> dict[str, float]:
        """What is charted of a batch's scoring by the library: errors, seconds, and what a function counts itself (calls, tokens, time-outs)."""
        scorer = self.task.rewards[name].scorer
        if scorer is None:
            return {}
        counted = {"errors": float(sum(bool(score.error) for score in scores)), "seconds": sum(score.seconds for score in scores)}
        return {f"rewards/{name}/{what}": value for what, value in (counted | scorer.collect()).items()}

    def add(self, name: str, reward: Reward) -> None:
        """A column more from now on: a shadow that was promoted."""
        self.task.rewards = {**self.task.rewards, name: reward}
        if reward.scorer is not None:
            reward.scorer.open(self.context)

    def close(self) -> None:
        close_columns(list_scorers(self.task))
