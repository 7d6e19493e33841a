"""Where the parts of an answer lie in a completion's text. Linear in its length: the text is whatever a policy wrote."""

from trainers.tasks.answers import ANSWER, END_ANSWER, END_THINK, THINK

Span = tuple[int, int]  # characters [start, end)


def answer_span(text: str) -> Span | None:
    """The inside of the last ``<answer>…</answer>``; None where none is closed."""
    end = text.rfind(END_ANSWER)
    start = text.rfind(ANSWER, 0, max(end, 0))
    return (start + len(ANSWER), end) if end >= 0 and start >= 0 else None


def extract_answer(text: str) -> str | None:
    """What stands in the last ``<answer>…</answer>``, without space around it."""
    span = answer_span(text)
    return None if span is None else text[slice(*span)].strip()


def thought_span(text: str) -> Span | None:
    """The inside of the first ``<think>…</think>``; to the end of the text where it is not closed, None where none begins."""
    start = text.find(THINK)
    if start < 0:
        return None
    start += len(THINK)
    end = text.find(END_THINK, start)
    return start, len(text) if end < 0 else end
