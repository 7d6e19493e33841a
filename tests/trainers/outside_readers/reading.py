"""Sources for the tests of readers, and reading them without a lab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainers.contract.events import AnyEvent, Metrics, Rollout, Warned
from trainers.contract.spool import SPOOL, read_spool_lines
from trainers.outside.readers.base import ReaderOptions
from trainers.outside.readers.formats import find_format
from trainers.outside.source_sending import open_source
from trainers.outside.source_spool import SourceSpool, read_position

FIXTURES = Path(__file__).parent / "fixtures"


def write_lines(path: Path, *rows: Any, mode: str = "w", tail: str = "") -> Path:
    """A row that is a text is a line as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.write("".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows) + tail)
    return path


def open_spool(keep: Path, source: Path, name: str = "auto", **options: str) -> SourceSpool:
    """As a process of its own would open it: everything it knows is on the disk."""
    found, position = find_format(name, source), read_position(keep)
    reader = open_source(found, source.resolve(), position, ReaderOptions(**options))
    return SourceSpool(keep, position, [reader], reader.describe_opening().total_steps, reader.brings_metrics)


def read_once(keep: Path, source: Path, name: str = "auto", final: bool = True, **options: str) -> list[AnyEvent]:
    """Reads what is new, and returns everything that is in the spool."""
    spool = open_spool(keep, source, name, **options)
    try:
        spool.take_new(final)
    finally:
        spool.close()
    return events_in(keep)


def events_in(keep: Path) -> list[AnyEvent]:
    lines = list(read_spool_lines(keep / SPOOL, 0, 1 << 40))
    assert all(line.event is not None for line in lines), [line.error for line in lines if line.event is None]
    return [line.event for line in lines if line.event is not None]


def rollouts_of(events: list[AnyEvent]) -> list[Rollout]:
    return [event for event in events if isinstance(event, Rollout)]


def metrics_of(events: list[AnyEvent]) -> dict[int, dict[str, float]]:
    """By step; of two events of a step both."""
    found: dict[int, dict[str, float]] = {}
    for event in events:
        if isinstance(event, Metrics):
            found.setdefault(event.step, {}).update(event.values)
    return found


def warnings_of(events: list[AnyEvent]) -> list[str]:
    return [event.message for event in events if isinstance(event, Warned)]


def places_of(events: list[AnyEvent]) -> list[tuple[int, str, int, int]]:
    return [(one.step, one.phase, one.group, one.sample) for one in rollouts_of(events)]


def verl_row(step: int, prompt: int = 0, answer: str = "7", score: float = 1.0, **more: Any) -> dict[str, Any]:
    asked = f"system\nYou solve sums.\nuser\nWhat is {prompt} + 4?\nassistant\n"
    return {"input": asked, "output": answer, "gts": str(prompt + 4), "score": score, "step": step, "acc": score > 0, **more}


def write_verl_step(folder: Path, step: int, prompts: int = 2, answers: int = 2) -> Path:
    """Rows of different groups in turn, as verl's balancing by length leaves them."""
    rows = [verl_row(step, prompt, f"<answer>{step + sample}</answer>", float(sample)) for sample in range(answers) for prompt in range(prompts)]
    return write_lines(folder / f"{step}.jsonl", *rows)
