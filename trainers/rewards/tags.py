"""Whether a completion has certain tags, each once and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from trainers.contract.hyperparameters import Strict, param
from trainers.rewards.base import RewardFunction

if TYPE_CHECKING:
    from trainers.tasks.base import Example

Tag = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")]


class TagsParameters(Strict):
    tags: list[Tag] = param(["think", "answer"], "Names of tags in their order, without brackets.", title="Tags", min_length=1, max_length=20)
    only: bool = param(True, "Nothing but space may stand outside the tags.", title="Nothing outside")
    filled: bool = param(True, "A tag with nothing inside does not count.", title="None empty")
    partial: bool = param(False, "A share for the tags that are right, in place of 0 unless all are.", title="Partial score")


class Tags(RewardFunction):
    name = "tags"
    title = "Tags"
    summary = "1 where the completion has each tag once, opened and closed, in order: <think>…</think><answer>…</answer>."
    Parameters = TagsParameters

    def score(self, text: str, example: Example) -> float | None:
        chosen: TagsParameters = self.parameters
        right, place, outside = 0, 0, ""
        for tag in chosen.tags:
            opening, closing = f"<{tag}>", f"</{tag}>"
            start, end = text.find(opening), text.find(closing)
            once = text.count(opening) == text.count(closing) == 1
            if not once or start < place or end < start or (chosen.filled and not text[start + len(opening) : end].strip()):
                continue
            right += 1
            outside += text[place:start]
            place = end + len(closing)
        outside += text[place:]
        if chosen.only and right == len(chosen.tags) and outside.strip():
            return 0.0 if not chosen.partial else (right - 1) / len(chosen.tags)
        return right / len(chosen.tags) if chosen.partial or right == len(chosen.tags) else 0.0
