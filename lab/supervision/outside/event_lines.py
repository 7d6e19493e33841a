"""What a script outside may send: whole lines of a spool, each an event of the kinds allowed, with token arrays that are what they say.

Runs in a child process with limits (``receiving``), without Django: a few bytes of a compressed array can stand for gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lab.lib.refusals import Refusal
from trainers.contract import arrays, spool
from trainers.contract.events import AttemptFinished, AttemptStarted, Metrics, Phase, Rollout, Warned

ALLOWED = (AttemptStarted, Phase, Metrics, Rollout, Warned, AttemptFinished)  # nothing that names a file or asks people
ARRAYS = (
    "lengths",
    "logprobs",
    "entropies",
    "mask",
    "token_advantages",
    "weights",
    "reference_logprobs",
    "ratios",
    "clipped",
    "sampler_logprobs",
    "ranks",
)
MOST_TOKENS = 1 << 18  # of a completion
TOKENS_OF_CHARACTER = 4  # a code point is at most four bytes, each a token at worst
TOKENS_WITHOUT_TEXT = 1 << 14  # special tokens add none
VALUES, VALUES_OF_BYTE = 4 << 20, 8  # in the arrays of one piece: any number so large, and so many for every byte of a larger piece
MOST_METRICS = 2000  # names in one event
MOST_NODES = 200  # of a rollout; more are not shown


def list_line_refusals(data: bytes) -> Iterator[Any]:
    """``[field, message]`` of what ``check_lines`` refuses; nothing when the piece may be stored."""
    try:
        check_lines(data)
    except Refusal as error:
        yield [error.field, str(error)]


def check_lines(data: bytes) -> None:
    """Raises Refusal for the first line that is no event, or one a script may not send."""
    if data and not data.endswith(b"\n"):
        raise Refusal("the last line is not complete: send whole lines, each ended by a newline", field="body", status=422)
    left = VALUES + VALUES_OF_BYTE * len(data)
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        parsed = spool.parse_spool_line(line, 0)
        if parsed.event is None:
            raise Refusal(f"line {number} is not an event: {parsed.error[:200]}", field=f"body.{number}", status=422)
        if not isinstance(parsed.event, ALLOWED):
            name = parsed.event.__struct_config__.tag
            raise Refusal(f"line {number} is an event that a script outside may not send: {name}", field=f"body.{number}", status=422)
        if isinstance(parsed.event, Metrics) and len(parsed.event.values) + len(parsed.event.nonfinite) > MOST_METRICS:
            raise Refusal(f"line {number} names more than {MOST_METRICS:,} metrics", field=f"body.{number}", status=422)
        if isinstance(parsed.event, Rollout) and len(parsed.event.nodes) > MOST_NODES:
            raise Refusal(f"line {number} has a rollout of more than {MOST_NODES:,} nodes", field=f"body.{number}.nodes", status=422)
        if isinstance(parsed.event, Rollout):
            left -= count_array_values(parsed.event, number, left)


def count_array_values(event: Rollout, number: int, most: int) -> int:
    """How many values its arrays hold. Raises Refusal unless each is empty or as long as its token ids, alternatives a few times as long."""
    location, total = f"body.{number}", 0
    longest = min(MOST_TOKENS, TOKENS_OF_CHARACTER * len(event.completion) + TOKENS_WITHOUT_TEXT)
    tokens = count_packed_values(event, "ids", location, longest)
    for name in ARRAYS:
        count = count_packed_values(event, name, location, longest)
        if count != tokens and (count or name == "lengths"):
            raise Refusal(
                f"holds {count:,} values for {tokens:,} token ids: send one for each token, or leave it empty", field=f"{location}.{name}", status=422
            )
        total += count
        if total > most:
            raise Refusal("the token arrays of these lines unpack to far more than was sent: send fewer lines at once", field="body", status=422)
    total += count_alternatives(event, location, tokens)
    if total > most:
        raise Refusal("the token arrays of these lines unpack to far more than was sent: send fewer lines at once", field="body", status=422)
    return total + tokens


def count_alternatives(event: Rollout, location: str, tokens: int) -> int:
    """How many values they hold. Raises Refusal unless there are k ids, k log-probabilities for each token and a text for each different id."""
    most = min(tokens * arrays.MOST_ALTERNATIVES, arrays.MOST_VALUES)
    ids, logprobs = (count_packed_values(event, name, location, most) for name in ("alternative_ids", "alternative_logprobs"))
    if ids != logprobs or (ids and ids % tokens):
        fix = f"send k ids and k log-probabilities for each token, k at most {arrays.MOST_ALTERNATIVES}, or leave both empty"
        raise Refusal(
            f"{ids:,} alternatives with {logprobs:,} log-probabilities for {tokens:,} tokens: {fix}", field=f"{location}.alternative_ids", status=422
        )
    try:
        texts = arrays.unpack_texts(event.alternative_texts)
        different = len(np.unique(arrays.unpack_array(event.alternative_ids)))
    except arrays.PackError as error:
        raise Refusal(str(error), field=f"{location}.alternative_texts", status=422) from None
    if len(texts) not in (0, different):
        raise Refusal(f"{len(texts):,} texts for {different:,} different ids", field=f"{location}.alternative_texts", status=422)
    return ids + logprobs + sum(map(len, texts))


def count_packed_values(event: Rollout, name: str, location: str, most: int) -> int:
    try:
        return arrays.count_packed_values(getattr(event, name), most)
    except arrays.PackError as error:
        fix = f"a completion of {len(event.completion):,} characters may come with up to {most:,} tokens"
        raise Refusal(f"{error}; {fix}", field=f"{location}.{name}", status=422) from None
