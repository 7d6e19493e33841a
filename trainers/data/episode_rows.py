"""Step pairs of worlds whose episode is one assistant message: what was said before the shared state goes in front of both sides.

A row of the lab says ``prompt`` = question, turn, observation, …, and on each side one turn. Rendered as messages that is not what the policy has
seen or written, so each side becomes the episode up to its turn. Both sides then begin alike after the same prompt: what DPO compares, the
difference of the sides' summed log-ratios, and its gradient are those of the turns alone. Losses that divide by length see the beginning in it.
"""

from collections.abc import Sequence
from typing import Any

from trainers.contract.spans import SIDES, span_column

Row = dict[str, Any]
PAIR = ("chosen", "rejected")


def join_episode_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows whose prompt goes on after its last question, each with one message on each side; other rows as they are."""
    return [join_episode_row(row) for row in rows]


def join_episode_row(row: Row) -> Row:
    asked, said = split_prompt(row["prompt"])
    marked = any(row.get(span_column(side)) for side in SIDES)  # places of spans count from the side's own beginning
    if not said or not asked or marked or not all(isinstance(row.get(side), list) for side in PAIR):
        return row
    begun = "".join(message["content"] for message in said)
    sides = {side: [{"role": "assistant", "content": begun + "".join(message["content"] for message in row[side])}] for side in PAIR}
    return {**row, "prompt": asked, **sides}


def split_prompt(prompt: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Up to the last message of a user or the system, and after it."""
    asked = max((place + 1 for place, message in enumerate(prompt) if message["role"] in ("user", "system")), default=0)
    return list(prompt[:asked]), list(prompt[asked:])
