"""Preference pairs over word problems, in a file: a right answer against a wrong one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.trainers.conftest import make_spec
from trainers.attempt import train
from trainers.tasks import registry
from trainers.tasks.base import Example

WRONG = "<think></think><answer>0</answer>"

Row = dict[str, Any]


def pair(prompt: str, chosen: str, rejected: str, **columns: Any) -> Row:
    sides = {name: [{"role": "assistant", "content": text}] for name, text in (("chosen", chosen), ("rejected", rejected))}
    return {"prompt": [{"role": "user", "content": prompt}], **sides, **columns}


def examples(count: int) -> list[Example]:
    return registry.get_task("mini_gsm").examples("pairs", count, 0, "easy")


def gold(example: Example) -> str:
    return registry.get_task("mini_gsm").gold(example)


def rows(count: int = 32, flip_every: int = 0, wrong: Callable[[Example], str] = lambda example: WRONG, **columns: Callable[[int], Any]) -> list[Row]:
    """``flip_every`` 4: rows 0, 4, 8, ... have chosen and rejected the wrong way round, and say so in ``flipped``. ``columns``: from the place."""
    made = []
    for place, example in enumerate(examples(count)):
        flipped = bool(flip_every) and place % flip_every == 0
        sides = (gold(example), wrong(example))
        chosen, rejected = sides[::-1] if flipped else sides
        more = {name: column(place) for name, column in columns.items()} | ({"flipped": flipped} if flip_every else {})
        made.append(pair(example.prompt[0].content, chosen, rejected, **more))
    return made


def write(folder: Path, made: list[Row]) -> dict[str, str]:
    """A spec's ``dataset`` with these rows."""
    file = folder / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, made)))
    return {"path": str(file)}


def earlier_run(folder: Path, dataset: dict[str, str], **overrides: Any) -> str:
    """The final policy of a short DPO run of its own, in ``folder / "earlier"``."""
    own = folder / "earlier"
    spec = make_spec(own, "dpo", dataset=dataset, **{"training__max_steps": 2, "training__learning_rate": 1e-3} | overrides)
    assert train.run_training(spec, own) == train.FINISHED
    return str(own / "final")
