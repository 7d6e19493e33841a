"""The process in which math-verify compares answers: sympy can hang, and take all memory. Run by ``math_verify.py``.

A line is ``{"gold": text, "answer": text, "seconds": s, "places": n, "strict": bool}``, its answer ``{"verdict": true}``, ``{"verdict": null}`` where
no mathematics is found in the gold answer, ``{"late": true}`` or ``{"error": text}``.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys
from typing import Any

MEMORY = 4 << 30  # bytes of address space
LARGEST_INTEGER = 5000  # digits: sympy prints and reads integers as text


class OutOfTime(BaseException):
    """No handler in sympy or math-verify catches it."""


def raise_out_of_time(number: int, frame: Any) -> None:
    raise OutOfTime


def compare_answers(request: dict[str, Any]) -> dict[str, Any]:
    from math_verify import parse, verify

    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    try:
        gold = parse(request["gold"], parsing_timeout=None)  # type: ignore[arg-type]  # the limits are ours
        if not gold:
            return {"verdict": None}
        answer = parse(request["answer"], parsing_timeout=None)  # type: ignore[arg-type]
        same = verify(gold, answer, float_rounding=request["places"], strict=request["strict"], timeout_seconds=None)
        return {"verdict": bool(same)}
    except OutOfTime:
        return {"late": True}
    except (Exception, MemoryError) as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it writes answers, and no files
    sys.set_int_max_str_digits(LARGEST_INTEGER)
    logging.disable(logging.WARNING)  # that time limits are off
    signal.signal(signal.SIGALRM, raise_out_of_time)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the run, which ends this process by itself
    import math_verify  # noqa: F401  # before the first limit runs

    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    answers.write(b"ready\n")
    answers.flush()
    for line in sys.stdin.buffer:
        answers.write(json.dumps(compare_answers(json.loads(line))).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
