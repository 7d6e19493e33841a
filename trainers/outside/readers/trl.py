"""TRL's completions: ``<output_dir>/completions/completions_<step>.parquet``, which GRPO and RLOO write with ``log_completions=True``.

Read from huggingface/trl 1.16.0, ``trl/trainer/grpo_trainer.py`` (``log``): a row has ``step``, ``prompt`` and ``completion`` (a text or a list of
messages, with calls of tools), a column for each reward function and for each thing logged by ``log_extra``, and ``advantage``. A file holds the last
generation batch before it was logged; members of a group stand one after the other. The total reward is not in it: it is the sum of the reward
functions with TRL's weights of 1, or with those of ``--reward-weights``. Metrics are in ``trainer_state.json`` of a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainers.outside.readers.base import BrokenRow, SourceError, SourceFormat, SourceOpening, list_folder, read_number
from trainers.outside.readers.chat_text import make_completion, make_prompt, parse_prompt, read_messages
from trainers.outside.readers.json_lines import RawLine
from trainers.outside.readers.parquet_rows import drop_nulls, list_parquet_columns, read_parquet_rows
from trainers.outside.readers.rollout_drafts import RolloutDraft, collect_numbers
from trainers.outside.readers.step_files import NotComplete, StepFile, WholeFilesReader

NAMED = re.compile(r"completions_(\d{1,9})\.parquet")
OWN = ("step", "prompt", "completion", "advantage")


def list_completion_files(path: Path) -> list[StepFile]:
    """In the folder itself, or in ``completions`` below it."""
    found = []
    for folder in (path, path / "completions"):
        for file in list_folder(folder):
            if named := NAMED.fullmatch(file.name):
                found.append(StepFile(file, file.name, int(named[1])))
    return sorted(found, key=lambda file: file.step)


def recognize_trl_completions(path: Path) -> bool:
    for file in list_completion_files(path)[:3]:
        try:
            if {"prompt", "completion", "advantage"} <= set(list_parquet_columns(file.path)):
                return True
        except NotComplete:
            continue
        except SourceError:  # no pyarrow: reading says so
            return True
    return False


class TrlReader(WholeFilesReader):
    def describe_opening(self) -> SourceOpening:
        return SourceOpening(config={"framework": "trl", "completions": str(self.path)})

    def list_files(self) -> list[StepFile]:
        return list_completion_files(self.path)

    def read_rows(self, file: StepFile, mark: dict[str, Any], final: bool) -> Iterator[tuple[RawLine, dict[str, Any]]]:
        for number, row in enumerate(read_parquet_rows(file.path, mark["offset"]), mark["offset"] + 1):
            yield RawLine(number, number, None), row

    def draft_rollout(self, row: dict[str, Any], file: StepFile) -> RolloutDraft:
        rewards = collect_numbers(row, OWN)
        weights = self.options.weights or dict.fromkeys(rewards, 1.0)
        scored = [(weight, rewards[name]) for name, weight in weights.items() if rewards.get(name) is not None]
        prompt, completion = drop_nulls(row.get("prompt")), drop_nulls(row.get("completion"))
        try:
            asked = parse_prompt(prompt) if isinstance(prompt, str) else make_prompt(read_messages(prompt))
            text, turns = (completion, []) if isinstance(completion, str) else make_completion(read_messages(completion))
        except ValueError as error:
            raise BrokenRow(f"prompt or completion {error}") from None
        return RolloutDraft(
            prompt=asked,
            completion=text,
            turns=turns,
            rewards=rewards,
            reward=sum(weight * value for weight, value in scored if value is not None) if scored else None,
            advantage=read_number(row, "advantage"),
            filtered="" if any(value is not None for value in rewards.values()) or not rewards else "no reward function had an opinion on it",
        )


FORMAT = SourceFormat(
    name="trl",
    title="TRL: completions of GRPO and RLOO (log_completions=True)",
    looks_for="completions/completions_<step>.parquet with prompt, completion and advantage",
    example='completions_00012.parquet: {"step": 12, "prompt": [{"role": "user", "content": "3 + 4?"}], "completion":'
    ' [{"role": "assistant", "content": "7"}], "correct": 1.0, "advantage": 0.7}',
    recognize=recognize_trl_completions,
    open=TrlReader,
    gives="messages with calls of tools, rewards of each function, advantages",
)
