"""A backtest in a worker: ``python -m trainers score`` in a process of its own, a batch after the other."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from lab.lib.child_environment import REPLAY
from lab.lib.kept_process import Conversation, IdleProcess, KeptProcess, StartError
from lab.rollouts.backtests.comparison import ScoredRollout, compare_scores
from lab.rollouts.backtests.models import BATCH_SECONDS, SECONDS, Backtest
from lab.rollouts.backtests.stored_rows import build_row, find_stored_reward, load_rollouts
from lab.rollouts.trajectories.models import Rollout
from lab.training.runs.problem_words import format_problem_sentence, problem_of_report

BATCH = 50  # rollouts
SHOWN_ERROR = 300


class BacktestError(RuntimeError):
    """It came to no answer; the message is one readable line."""


def run_backtest(backtest_id: str) -> None:
    backtest = Backtest.across_teams.filter(pk=backtest_id).select_related("run", "team").first()
    if backtest is None or not backtest.claim():
        return
    try:
        rollouts = load_rollouts(backtest)
        if not rollouts:
            raise BacktestError("These steps have no training rollouts any more. Choose other steps.")
        backtest.finish(compare_scores(score_rollouts(backtest, rollouts)))
    except BacktestError as error:
        backtest.fail(str(error))
    except Exception as error:  # nobody waits for ever for an answer that will not come
        backtest.fail(f"The backtest failed: {type(error).__name__}.")
        raise


def start_score_process() -> KeptProcess:
    return KeptProcess([sys.executable, "-m", "trainers", "score"], REPLAY, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")


idle_score = IdleProcess(start_score_process)


def score_rollouts(backtest: Backtest, rollouts: list[Rollout]) -> list[ScoredRollout]:
    """Raises BacktestError."""
    scored: list[ScoredRollout] = []
    try:
        with Conversation(idle_score, SECONDS) as conversation:
            while len(scored) < len(rollouts):
                if not backtest.beat(len(scored), len(rollouts)):
                    raise BacktestError("The backtest was taken from this worker.")
                batch = rollouts[len(scored) : len(scored) + BATCH]
                left = min(BATCH_SECONDS, max(1.0, conversation.deadline - time.monotonic()))
                given = ask_for_scores(conversation, build_request(backtest, batch, left))
                scored += [join_score(backtest, rollout, score) for rollout, score in zip(batch, given, strict=True)]
    except StartError as error:
        raise BacktestError(f"The scoring process {error}.") from None
    except (OSError, ValueError) as error:
        raise BacktestError(f"The backtest was aborted: {error}"[:SHOWN_ERROR]) from None
    backtest.beat(len(scored), len(rollouts))
    return scored


def build_request(backtest: Backtest, rollouts: list[Rollout], seconds: float) -> bytes:
    rows = [build_row(rollout) for rollout in rollouts]
    return json.dumps({"definition": backtest.definition, "rows": rows, "seconds": seconds, "device": "cpu"}).encode()


def ask_for_scores(conversation: Conversation, request: bytes) -> list[dict[str, Any]]:
    """Raises BacktestError."""
    conversation.ask(request)
    text = conversation.read_line()
    if not text:
        code = conversation.exit_code()
        if conversation.is_late():
            raise BacktestError(f"The backtest timed out after {SECONDS:.0f} s. Choose fewer steps or a faster function.")
        raise BacktestError(f"Scoring failed with exit code {code}: {conversation.last_words() or 'no output'}"[:SHOWN_ERROR])
    answer = json.loads(text)
    conversation.answered = True
    if not answer["ok"]:
        raise BacktestError(" ".join(format_problem_sentence(problem_of_report(item)) for item in answer["problems"]))
    return list(answer["scores"])


def join_score(backtest: Backtest, rollout: Rollout, score: dict[str, Any]) -> ScoredRollout:
    place = (rollout.pk, rollout.step, rollout.group, rollout.sample)
    return ScoredRollout(*place, find_stored_reward(rollout, backtest.against), score["value"], score["error"], score["seconds"])
