"""NeMo-RL's rollouts: ``train_data_step<step>.jsonl`` and ``val_data_step<step>.jsonl`` in the folder of its logger.

Read from NVIDIA-NeMo/RL, commit 7ea279abfbeb698b092856d0dab61e7cf39bc909, ``nemo_rl/utils/logger.py`` (``log_batched_dict_as_jsonl``) and
``nemo_rl/algorithms/grpo.py``: each value of a line is a list of one. Of training ``content`` (the texts of the messages, without roles; in the
synchronous trainer one text of the policy), ``rewards``, ``input_lengths`` and, padded to the batch, ``token_ids``, ``token_loss_mask``,
``advantages``, ``generation_logprobs`` (the sampler's) and ``prev_logprobs`` (the policy's before the update); ``sample_loss_mask`` 0 leaves a
sample out. Of validation messages with roles, and ``rewards``. Who wrote which message of a training row follows from the mask: the policy's tokens
are in the loss.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from trainers.contract.events import Message, Turn
from trainers.outside.readers.base import BrokenRow, SourceFormat, SourceOpening, list_folder, read_number, read_number_list
from trainers.outside.readers.chat_text import join_content, make_completion, make_prompt, read_messages, to_storable_text
from trainers.outside.readers.json_lines import is_row_with
from trainers.outside.readers.rollout_drafts import RolloutDraft, TokenColumns
from trainers.outside.readers.step_files import StepFile, StepFilesReader

NAMED = re.compile(r"(train|val)_data_step(\d{1,9})\.jsonl")
LEFT_OUT = "left out of the loss by NeMo-RL (sample_loss_mask is 0)"


def list_nemo_files(path: Path) -> list[StepFile]:
    """In the folder itself and in those below it (``logs/exp_001``)."""
    found = []
    for folder in (path, *(one for one in list_folder(path) if one.is_dir())):
        prefix = "" if folder == path else f"{folder.name}/"
        for file in list_folder(folder):
            if named := NAMED.fullmatch(file.name):
                found.append(StepFile(file, prefix + file.name, int(named[2]), "train" if named[1] == "train" else "heldout"))
    return sorted(found, key=lambda file: (file.step, file.phase != "train", file.key))


def recognize_nemo_rl_logs(path: Path) -> bool:
    return any(is_row_with(file.path, ("rewards", "idx")) for file in list_nemo_files(path)[:3])


class NemoRlReader(StepFilesReader):
    def describe_opening(self) -> SourceOpening:
        return SourceOpening(config={"framework": "nemo-rl", "rollouts": str(self.path)})

    def list_files(self) -> list[StepFile]:
        return list_nemo_files(self.path)

    def draft_rollout(self, row: dict[str, Any], file: StepFile) -> RolloutDraft:
        row = {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in row.items()}
        content = row.get("content")
        if isinstance(content, list) and content and isinstance(content[0], dict):
            return self.draft_messages(row, content)
        mask, columns, prompt_ids = read_nemo_tokens(row)
        texts = [join_content(one) for one in content] if isinstance(content, list) else [join_content(content)]
        prompt, completion, turns = split_written_texts(texts, mask)
        advantages = (
            [value for value, inside in zip(columns.advantages or [], columns.mask or [], strict=False) if inside and value is not None]
            if columns
            else []
        )
        return RolloutDraft(
            prompt=[Message("user", to_storable_text(text)) for text in prompt],
            completion=completion,
            turns=turns,
            reward=read_number(row, "rewards"),
            advantage=sum(advantages) / len(advantages) if advantages else None,
            filtered=LEFT_OUT if row.get("sample_loss_mask") == 0 else "",
            group=blake2b(repr(prompt_ids).encode(), digest_size=16).digest() if prompt_ids else None,
            tokens=columns,
        )

    def draft_messages(self, row: dict[str, Any], content: list[Any]) -> RolloutDraft:
        try:
            messages = read_messages(content)
        except ValueError as error:
            raise BrokenRow(f"content {error}") from None
        first = next((place for place, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
        text, turns = make_completion(messages[first:])
        return RolloutDraft(prompt=make_prompt(messages[:first]), completion=text, turns=turns, reward=read_number(row, "rewards"))


def read_nemo_tokens(row: dict[str, Any]) -> tuple[list[float | None], TokenColumns | None, list[int]]:
    """(the loss mask without padding, the completion's tokens, the prompt's ids). Raises BrokenRow where their lengths disagree."""
    ids = row.get("token_ids")
    mask = row.get("token_loss_mask")
    width = len(ids) if isinstance(ids, list) else len(mask) if isinstance(mask, list) else 0
    length = row.get("input_lengths")
    length = length if isinstance(length, int) and 0 <= length <= width else width
    columns = {name: read_number_list(row, name, width) for name in ("token_loss_mask", "advantages", "generation_logprobs", "prev_logprobs")}
    inside = (columns["token_loss_mask"] or [])[:length]
    first = next((place for place, one in enumerate(inside) if one), length)
    if not isinstance(ids, list) or not inside:
        return inside, None, []

    def cut(name: str) -> list[float | None] | None:
        values = columns[name]
        return None if values is None else values[first:length]

    numbers = [int(id_) for id_ in ids[:length]]
    found = TokenColumns(
        numbers[first:], cut("prev_logprobs"), cut("generation_logprobs"), mask=inside[first:], advantages=cut("advantages"), spelled=True
    )
    found.turns = find_mask_turns(inside[first:])
    return inside, found, numbers[:first]


def find_mask_turns(mask: Sequence[float | None]) -> list[Turn]:
    """Turns in tokens: what is not in the loss was written by the environment. No turns where the policy wrote everything."""
    turns: list[Turn] = []
    for place, inside in enumerate(mask):
        role = "assistant" if inside else "tool"
        if turns and turns[-1].role == role:
            turns[-1] = Turn(role, turns[-1].start, place + 1)
        else:
            turns.append(Turn(role, place, place + 1))
    return turns if len(turns) > 1 else []


def split_written_texts(texts: Sequence[str], mask: Sequence[float | None]) -> tuple[list[str], str, list[Turn]]:
    """(prompt, completion, its turns) of messages without roles. The policy's and the environment's alternate from the first of the policy's on, and
    the mask says how many that are and who wrote the last; one text alone is the policy's.
    """
    if len(texts) == 1:
        return [], texts[0], []
    turns = find_mask_turns(mask) or [Turn("assistant", 0, 1)]
    roles = [turn.role for turn in turns]
    begin = roles.index("assistant") if "assistant" in roles else 0
    count = min(len(roles) - begin, len(texts) - 1)
    roles = roles[len(roles) - count :]
    written = [{"role": role, "content": text} for role, text in zip(roles, texts[-count:], strict=True)]
    text, found = make_completion(written)
    return [*texts[:-count]], text, found


FORMAT = SourceFormat(
    name="nemo-rl",
    title="NeMo-RL: training and validation data of its logger",
    looks_for="train_data_step<step>.jsonl or val_data_step<step>.jsonl with rewards and idx",
    example='train_data_step12.jsonl: {"content": [["What is 3 + 4?", "7"]], "rewards": [1.0], "input_lengths": [9], "token_ids": [[…]],'
    ' "token_loss_mask": [[…]], "advantages": [[…]], "generation_logprobs": [[…]], "idx": 0}',
    recognize=recognize_nemo_rl_logs,
    open=NemoRlReader,
    gives="messages, rewards, advantages; with --tokenizer tokens with the policy's and the sampler's log-probabilities",
)
