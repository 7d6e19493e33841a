"""Procedures of the built-in policy for effect cases, against the frozen policy in the same rounds: the same prompts, seeds and random numbers."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench.effect_cases import tiny
from trainers.attempt import train
from trainers.contract import spool
from trainers.contract.events import Metrics
from trainers.contract.spec import parse_spec

WRITTEN = "procedure/tokens"  # all that the policy wrote in a round


def run_rounds(seed: int, method: str = "", config: dict[str, Any] | None = None, **arguments: Any) -> tiny.Trained:
    """Rounds of a procedure; "" is the frozen policy alone. ``arguments``: of ``tiny.spec_of``. Nothing is cached."""
    data = tiny.spec_of(seed, method, config, trainer="procedure", **arguments)
    folder = Path(tempfile.mkdtemp(prefix="effect-"))
    try:
        code = train.run_training(parse_spec({**data, "output": str(folder)}), folder)
        if code != train.FINISHED:
            raise RuntimeError(f"the run ended with exit code {code}: {data['methods']}")
        return read_rounds(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_rounds(folder: Path) -> tiny.Trained:
    """Metrics of every round, and of the held-out prompts by round."""
    made = tiny.Trained([], {})
    for line in spool.read_spool_lines(folder / spool.SPOOL, 0, limit=1 << 30):
        event = line.event
        if isinstance(event, Metrics) and WRITTEN in event.values:
            made.steps.append(event.values)
        elif isinstance(event, Metrics) and "heldout/length" in event.values:
            made.heldout[event.step] = event.values
    return made
