"""Episodes of searching that are one text: the policy writes the queries, and what the search engine would find, itself.

Such a text is a row of blocks: ``<think>``, ``<search>``, ``<information>`` and ``<answer>``, with nothing between them and no tags inside.
"""

from collections.abc import Sequence

from trainers.tasks.answers import ANSWER, END_ANSWER
from trainers.worlds.base import MAX_TURN_CHARACTERS
from trainers.worlds.facts import Fact

BLOCKS = ("think", "search", "information", "answer")
INFORMATION, END_INFORMATION = "<information>", "</information>"
Block = tuple[str, str]  # the name of its tag, and what stands in it


def split_blocks(text: str) -> list[Block] | None:
    """The blocks of a text, in order; None for a text that is anything else."""
    blocks, rest = list[Block](), text.strip()
    if len(rest) > MAX_TURN_CHARACTERS:
        return None
    while rest:
        name = next((one for one in BLOCKS if rest.startswith(f"<{one}>")), "")
        inside, closed, rest = rest[len(name) + 2 :].partition(f"</{name}>")
        if not (name and closed) or "<" in inside:
            return None
        blocks.append((name, inside.strip()))
        rest = rest.lstrip()
    return blocks


def read_last_answer(text: str) -> str | None:
    """What stands between the last tags of an answer, whatever surrounds them; None without any."""
    _, opened, rest = text.rpartition(ANSWER)
    answer, closed, _ = rest.partition(END_ANSWER)
    return answer.strip() if opened and closed and "<" not in answer else None


def find_information(text: str) -> list[tuple[int, int]]:
    """Where the closed information blocks of a text begin and end, tags included, in characters."""
    spans, end = list[tuple[int, int]](), 0
    while (start := text.find(INFORMATION, end)) >= 0 and (close := text.find(END_INFORMATION, start)) >= 0:
        end = close + len(END_INFORMATION)
        spans.append((start, end))
    return spans


def list_told_evidence(blocks: Sequence[Block], facts: Sequence[Fact], evidence: Sequence[int]) -> list[list[int]]:
    """For each information block the numbers of the sentences the answer needs that it says word for word and that no earlier one has said."""
    told, found = list[list[int]](), set[int]()
    for name, inside in blocks:
        if name == "information":
            fresh = [number for number in evidence if number not in found and facts[number].sentence in inside]
            told.append(fresh)
            found |= set(fresh)
    return told
