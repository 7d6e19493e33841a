"""Training examples whose questions are written while training, for methods in which a policy asks itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainers.contract.events import Message
from trainers.tasks.base import Example

if TYPE_CHECKING:
    from trainers.methods.session import Session


@dataclass(eq=False)
class QuestionSlot:
    """It has what an ``Example`` has, and takes another one's place; who holds it sees the new one."""

    prompt: list[Message]
    reference: str
    data: dict[str, Any] = field(default_factory=dict)

    def take(self, question: Example) -> None:
        self.prompt, self.reference, self.data = list(question.prompt), question.reference, dict(question.data)


def make_slots(examples: Sequence[Example]) -> list[Any]:
    return [QuestionSlot(list(example.prompt), example.reference, dict(example.data)) for example in examples]


def fill_group(session: "Session", start: int, question: Example) -> None:
    """Asks a question in all rows of the group that begins in row ``start``, whose examples are one slot."""
    slot: Any = session.examples[start]
    slot.take(question)
    for row in range(start, start + session.group_size):
        session.examples[row], session.prompts[row] = slot, list(slot.prompt)
