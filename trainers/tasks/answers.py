"""How the built-in tasks read an answer: strict about the form, linear in its length, safe on any text a policy can write."""

from trainers.tasks.base import Example, RewardFunction

THINK, END_THINK, ANSWER, END_ANSWER = "<think>", "</think>", "<answer>", "</answer>"


def worked_answer(text: str) -> tuple[str, str] | None:
    """(working, answer) of exactly ``<think>working</think><answer>answer</answer>``, surrounding space aside; None for any other form."""
    text = text.strip()
    if not (text.startswith(THINK) and text.endswith(END_ANSWER)):
        return None
    if any(text.count(tag) != 1 for tag in (THINK, END_THINK, ANSWER, END_ANSWER)):
        return None
    working, joint, answer = text[len(THINK) : -len(END_ANSWER)].partition(END_THINK + ANSWER)
    return (working, answer.strip()) if joint else None


def write_answer(working: list[str], answer: str) -> str:
    return f"{THINK}{' '.join(working)}{END_THINK}{ANSWER}{answer}{END_ANSWER}"


def score_correctness(text: str, example: Example) -> float:
    parts = worked_answer(text)
    return float(parts is not None and parts[1] == example.reference)


def well_formed(text: str, example: Example) -> float:
    return float(worked_answer(text) is not None)


def score_relative_brevity(text: str, gold: str, is_correct: RewardFunction, example: Example) -> float | None:
    """1 up to the length of the gold completion, falling to 0 at twice that; no opinion on a wrong answer, so silence earns nothing."""
    if not is_correct(text, example):
        return None
    return min(1.0, max(0.0, 2.0 - len(text.strip()) / len(gold)))
