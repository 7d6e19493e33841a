"""verl's rollout dump: ``trainer.rollout_data_dir`` and ``trainer.validation_data_dir``, a file ``<step>.jsonl`` for each step.

Read from volcengine/verl, commit b178a3cd56f58b2d502255daba591e92833930a7, ``verl/trainer/ppo/ray_trainer.py`` (``_dump_generations``,
``_log_rollout_data``): a line has ``input``, ``output`` (decoded without special tokens), ``gts``, ``score`` (the sum of the token-level scores),
``step`` and a column for each thing the reward function returned besides. Files are written at once, and anew after a resume. It has no group id, and
the batch is sorted by length before it is dumped: members of a group are the rows of a step with the same prompt and reference.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from trainers.outside.readers.base import BrokenRow, SourceFormat, SourceOpening, list_folder, name_phase, read_number, read_text
from trainers.outside.readers.chat_text import find_template_turns, parse_prompt, to_storable_text
from trainers.outside.readers.json_lines import is_row_with
from trainers.outside.readers.rollout_drafts import RolloutDraft, collect_numbers
from trainers.outside.readers.step_files import StepFile, StepFilesReader

NAMED = re.compile(r"(\d{1,9})\.jsonl")
OWN = ("input", "output", "gts", "score", "step", "request_id")


def list_verl_files(folder: Path) -> list[StepFile]:
    """In the folder itself and in those below it: ``rollout/12.jsonl`` and ``validation/10.jsonl``. By step; of one step training first."""
    places = [(folder, ""), *((below, f"{below.name}/") for below in list_folder(folder) if below.is_dir())]
    found = [
        StepFile(path, f"{prefix}{path.name}", int(named[1]), name_phase(prefix or folder.name))
        for place, prefix in places
        for path in list_folder(place)
        if (named := NAMED.fullmatch(path.name))
    ]
    return sorted(found, key=lambda file: (file.step, file.phase != "train", file.key))


def recognize_verl_dump(path: Path) -> bool:
    files = list_verl_files(path) if path.is_dir() else []
    return any(is_row_with(file.path, ("input", "output", "score")) for file in files[:3])


class VerlReader(StepFilesReader):
    def describe_opening(self) -> SourceOpening:
        return SourceOpening(config={"framework": "verl", "rollouts": str(self.path)})

    def list_files(self) -> list[StepFile]:
        return list_verl_files(self.path)

    def draft_rollout(self, row: dict[str, Any], file: StepFile) -> RolloutDraft:
        completion = read_text(row, "output")
        score = read_number(row, "score")
        return RolloutDraft(
            prompt=parse_prompt(read_text(row, "input")),
            completion=completion,
            reward=score,
            rewards={"score": score} | collect_numbers(row, OWN),
            reference=read_reference(row.get("gts")),
            turns=find_template_turns(to_storable_text(completion)),
        )


def read_reference(value: Any) -> str:
    """``gts`` is whatever the dataset has as ground truth. Raises BrokenRow for what is no JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise BrokenRow(f"gts cannot be read: {error}") from None


FORMAT = SourceFormat(
    name="verl",
    title="verl: rollout and validation dumps",
    looks_for="<step>.jsonl with input, output and score",
    example='12.jsonl: {"input": "user\\nWhat is 3 + 4?\\nassistant\\n", "output": "7", "gts": "7", "score": 1.0, "step": 12, "acc": 1.0}',
    recognize=recognize_verl_dump,
    open=VerlReader,
    gives="prompts, completions with tool turns, references, scores, further numbers of the reward function",
)
