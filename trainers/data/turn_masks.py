"""Pairs of episodes: only what the policy wrote counts, not the world's words and not the end of a message that stops in the middle of an episode."""

from typing import Any

import torch
from torch import Tensor

from trainers.contract.spans import GOOD, Row, answer_text, span_column
from trainers.data.token_spans import TokenSpans, mark_tokens
from trainers.worlds.base import Replay

OWN = "own"  # column of a row: text of a side -> (start, end) of the policy's turns in it, so that sides can be swapped


def list_own_spans(replay: Replay, first_turn: int = 0) -> list[tuple[int, int]]:
    """Where the policy's turns stand in the text that was played again, from ``first_turn`` on."""
    spans, at = list[tuple[int, int]](), 0
    for number, turn in enumerate(replay.turns):
        end = at + len(turn.text)
        if number >= first_turn and end > at:
            spans.append((at, end))
        at = end + len(turn.step.text)
    return spans


class TurnMasks:
    """Masks of the sides of rows that have the column ``own``; a side that it does not know counts whole. The tokenizer must know offsets (a fast
    one).
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.found: dict[tuple[int, str], tuple[Row, TokenSpans]] = {}  # the row is kept with it, so that its identity stays its own

    def mask_side(self, rows: list[Row], side: str, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T) token ids and mask of the side's tokens -> (B, T): 1 on the policy's own, else 0."""
        made = mask.clone()
        for place, row in enumerate(rows):
            if answer_text(row.get(side, ())) not in row.get(OWN, {}):
                continue
            positions = mask[place].nonzero()[:, 0].tolist()
            marked = self.mark_row(row, side)
            start = find_start([int(ids[place, position]) for position in positions], marked)
            shares = marked.good[start : start + len(positions)]
            made[place, positions] = torch.tensor([float(share >= 0.5) for share in shares], dtype=mask.dtype, device=mask.device)
        return made

    def mark_row(self, row: Row, side: str) -> TokenSpans:
        key = (id(row), side)
        if key not in self.found:
            text = answer_text(row[side])
            spans = [{"start": start, "end": end, "label": GOOD, "text": text[start:end]} for start, end in row[OWN][text]]
            self.found[key] = (row, mark_tokens(self.tokenizer, {**row, span_column(side): spans}, side))
        return self.found[key][1]


def find_start(ids: list[int], marked: TokenSpans) -> int:
    """Where a side's tokens begin in the row's: where the answer does, or one before or after, as the trainer cuts. Raises ValueError."""
    for start in (marked.start, marked.start + 1, marked.start - 1):
        if start >= 0 and marked.ids[start : start + len(ids)] == ids:
            return start
    raise ValueError("the tokens of a pair are others than those of its text")
