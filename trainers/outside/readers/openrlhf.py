"""OpenRLHF's batch inference: JSON lines with ``input``, ``output`` and, once a reward model has scored them, ``reward``.

Read from OpenRLHF/OpenRLHF, ``openrlhf/cli/batch_inference.py`` as of the commit before 6a981c8c (2026-03-19), which removed it. A file is one
iteration and says no step: 0, unless its name ends in a number. Its trainer writes no rollouts besides one sample a step for TensorBoard
(``openrlhf/utils/logging_utils.py``, commit 3c3be6234e0cb353e76bb8019947db9dfe99fca7), which the format ``tensorboard`` reads.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trainers.outside.readers.base import SourceFormat, SourceOpening, list_folder, read_number, read_text
from trainers.outside.readers.chat_text import find_template_turns, parse_prompt, to_storable_text
from trainers.outside.readers.json_lines import is_row_with
from trainers.outside.readers.rollout_drafts import RolloutDraft
from trainers.outside.readers.skyrl import ENDING
from trainers.outside.readers.step_files import StepFile, StepFilesReader

NUMBERED = re.compile(r"(\d{1,9})\Z")


def list_openrlhf_files(path: Path) -> list[StepFile]:
    files = [path] if path.is_file() else [file for file in list_folder(path) if file.suffix == ".jsonl"]
    found = [StepFile(file, file.name, int(named[1]) if (named := NUMBERED.search(file.stem)) else 0, "train") for file in files]
    return sorted(found, key=lambda file: (file.step, file.key))


def recognize_openrlhf_outputs(path: Path) -> bool:
    files = list_openrlhf_files(path) if path.is_dir() or path.suffix == ".jsonl" else []
    return any(is_row_with(file.path, ("input", "output")) and not is_row_with(file.path, ("score",)) for file in files[:3])


class OpenRlhfReader(StepFilesReader):
    def describe_opening(self) -> SourceOpening:
        return SourceOpening(config={"framework": "openrlhf", "rollouts": str(self.path)})

    def list_files(self) -> list[StepFile]:
        return list_openrlhf_files(self.path)

    def draft_rollout(self, row: dict[str, Any], file: StepFile) -> RolloutDraft:
        reward = read_number(row, "reward")
        written = to_storable_text(ENDING.sub("", read_text(row, "output")))
        return RolloutDraft(
            prompt=parse_prompt(read_text(row, "input")),
            completion=written,
            turns=find_template_turns(written),
            reward=reward,
            rewards={} if reward is None else {"reward": reward},
        )


FORMAT = SourceFormat(
    name="openrlhf",
    title="OpenRLHF: outputs of batch inference",
    looks_for="*.jsonl with input and output",
    example='iter_1.jsonl: {"input": "<|im_start|>user\\n3 + 4?<|im_end|>\\n<|im_start|>assistant\\n", "output": "7<|im_end|>", "reward": 0.9}',
    recognize=recognize_openrlhf_outputs,
    open=OpenRlhfReader,
    gives="prompts, completions, rewards; the trainer's sample of each step comes with tensorboard",
)
