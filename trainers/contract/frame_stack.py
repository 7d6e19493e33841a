"""Room for the frames of deep calls. CPython keeps the frames of Python functions in chunks of 16 KiB. Where calls go to and fro over the end of a
chunk, each of them maps one and gives it back: up to a fifth of the processor time of a page, on which line depends on how deep its caller is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
SLOTS = 70_000  # of 8 bytes: the next power of two is a chunk of 1 MiB, half of it free; of memory it takes what is written to


def call_with_frame_room(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What ``function`` returns. It and all that it calls in this thread share what the frame of this function leaves free: some 2,000 frames."""
    return function(*args, **kwargs)


call_with_frame_room.__code__ = call_with_frame_room.__code__.replace(co_stacksize=SLOTS)
