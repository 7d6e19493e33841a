"""slime's and miles' rollouts: ``rollout_data/<rollout>.pt`` of ``--dump-details`` or ``--save-debug-rollout-data``, evaluations as
``eval_<rollout>.pt``.

Read from THUDM/slime, commit 624b824a898ab0ec1fcb4d373004c7f3852bf515, ``slime/observability/rollout_data_utils.py`` (``save_debug_rollout_data``)
and ``slime/utils/types.py`` (``Sample``), and radixark/miles, commit 31f1ca961a94cb860cec3b2dea34ec332bfa8f76, ``miles/ray/rollout/debug_data.py``:
a file of ``torch.save`` with ``samples``, each with ``group_index``, ``prompt``, ``response``, ``tokens``, ``response_length``, ``label``,
``reward``, ``loss_mask``, ``rollout_log_probs`` (the engine's), ``status`` and ``remove_sample``. Rollouts are numbered from 0, and so are steps
here. Messages of miles' ``metadata["messages"]`` are read where they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainers.outside.readers.base import BrokenRow, SourceFormat, SourceOpening, list_folder, read_number, read_number_list, read_text
from trainers.outside.readers.chat_text import (
    find_template_turns,
    make_completion,
    make_prompt,
    parse_prompt,
    read_messages,
    to_storable_text,
)
from trainers.outside.readers.json_lines import RawLine
from trainers.outside.readers.nemo_rl import find_mask_turns
from trainers.outside.readers.rollout_drafts import RolloutDraft, TokenColumns, collect_numbers
from trainers.outside.readers.skyrl import ENDING
from trainers.outside.readers.step_files import NotComplete, StepFile, WholeFilesReader
from trainers.outside.readers.torch_archive import load_torch_archive

NAMED = re.compile(r"(eval_)?(\d{1,9})\.pt")
ENDS = {"completed": "stop", "truncated": "length"}
REMOVED = "removed from the loss (remove_sample)"


def list_slime_files(path: Path) -> list[StepFile]:
    found = []
    for folder in (path, path / "rollout_data"):
        for file in list_folder(folder):
            if named := NAMED.fullmatch(file.name):
                found.append(StepFile(file, file.name, int(named[2]), "heldout" if named[1] else "train"))
    return sorted(found, key=lambda file: (file.step, file.phase != "train"))


def recognize_slime_dump(path: Path) -> bool:
    for file in list_slime_files(path)[:2]:
        try:
            held = load_torch_archive(file.path)
        except (BrokenRow, OSError):
            continue
        if isinstance(held, dict) and isinstance(held.get("samples"), list):
            return True
    return False


class SlimeReader(WholeFilesReader):
    def describe_opening(self) -> SourceOpening:
        return SourceOpening(config={"framework": "slime", "rollouts": str(self.path)})

    def list_files(self) -> list[StepFile]:
        return list_slime_files(self.path)

    def read_rows(self, file: StepFile, mark: dict[str, Any], final: bool) -> Iterator[tuple[RawLine, dict[str, Any]]]:
        try:
            held = load_torch_archive(file.path)
        except BrokenRow as error:
            raise NotComplete(str(error)) from None
        samples = held.get("samples") if isinstance(held, dict) else None
        if not isinstance(samples, list):
            raise NotComplete("it holds no list of samples")
        for number, row in enumerate(samples[mark["offset"] :], mark["offset"] + 1):
            yield RawLine(number, number, None), row

    def draft_rollout(self, row: dict[str, Any], file: StepFile) -> RolloutDraft:
        if not isinstance(row, dict):
            raise BrokenRow("is not a sample")
        metadata = row.get("metadata")
        messages = metadata.get("messages") if isinstance(metadata, Mapping) else None
        text, turns = draft_messages(messages) if messages else (to_storable_text(ENDING.sub("", read_text(row, "response"))), [])
        reward = row.get("reward")
        rewards = collect_numbers(reward) if isinstance(reward, Mapping) else {}
        prompt, label, group = row.get("prompt"), row.get("label"), row.get("group_index")
        try:
            asked = parse_prompt(prompt) if isinstance(prompt, str) else make_prompt(read_messages(prompt))
        except ValueError as error:
            raise BrokenRow(f"prompt {error}") from None
        return RolloutDraft(
            prompt=asked,
            completion=text,
            turns=turns or find_template_turns(text),
            reward=rewards.get("score", rewards.get("reward")) if isinstance(reward, Mapping) else read_number(row, "reward"),
            rewards=rewards,
            reference="" if label is None else str(label),
            finish_reason=ENDS.get(str(row.get("status")), ""),
            filtered=REMOVED if row.get("remove_sample") is True else "",
            group=None if group is None else str(group),
            tokens=read_sample_tokens(row),
        )


def draft_messages(messages: Any) -> tuple[str, list[Any]]:
    """What followed the first messages that are not the policy's. Raises BrokenRow."""
    try:
        every = read_messages(messages)
    except ValueError as error:
        raise BrokenRow(f"messages {error}") from None
    first = next((place for place, message in enumerate(every) if message["role"] == "assistant"), len(every))
    return make_completion(every[first:])


def read_sample_tokens(row: Mapping[str, Any]) -> TokenColumns | None:
    """Of the response; None where the sample has no token ids."""
    ids, length = row.get("tokens"), row.get("response_length")
    if not isinstance(ids, list) or not isinstance(length, int) or not 0 < length <= len(ids):
        return None
    mask = read_number_list(row, "loss_mask", length)
    found = TokenColumns(
        [int(id_) for id_ in ids[-length:]], sampler_logprobs=read_number_list(row, "rollout_log_probs", length), mask=mask, spelled=True
    )
    found.turns = find_mask_turns(mask) if mask else []
    return found


FORMAT = SourceFormat(
    name="slime",
    title="slime and miles: rollout data (--dump-details, --save-debug-rollout-data)",
    looks_for="rollout_data/<rollout>.pt with samples",
    example='rollout_data/12.pt: {"rollout_id": 12, "samples": [{"group_index": 0, "prompt": "3 + 4?", "response": "7", "tokens": […],'
    ' "response_length": 2, "label": "7", "reward": 1.0, "loss_mask": [1, 1], "rollout_log_probs": […], "status": "completed"}]}',
    recognize=recognize_slime_dump,
    open=SlimeReader,
    gives="groups, rewards, references, finish reasons, messages of miles; with --tokenizer tokens with the engine's log-probabilities",
)
