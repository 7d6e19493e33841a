"""Training-Free GRPO: a group's advantage is a lesson in words, kept as experience that later prompts hold (Youtu-Agent, arXiv 2512.24615).

For each prompt G answers are sampled under the E. A group whose rewards do not differ (mean 0 or 1) teaches nothing. Of any other a critic
says what its right answers have and its wrong ones lack, at most m lessons; lessons of a batch are merged and become operations on E:
    E <- apply(ops, E),  ops in {ADD, UPDATE, DELETE, NONE}.
The policy is the frozen model conditioned on prompt and E; no weight changes.

The paper has a large model summarise the answers, criticise the group and write the operations. Here a rule does: it reads the unit of each right
answer in the world ``conventions``, and a lesson is a note ("rice oz"). It sees answers and rewards alone, never the hidden convention.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.base import parse_answer
from trainers.worlds.conventions import write_note, write_noted_prompt

if TYPE_CHECKING:
    from trainers.contract.events import Message
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

EXPERIENCES, EDITS = "experiences", "experience edits"  # lists of the store
Lesson = tuple[str, str]  # what it is about, and what is right there: ("rice", "oz")


@dataclass(frozen=True)
class Operation:
    """On the list of experiences. ``key``: of the one that is updated or deleted; an added one gets a key of its own."""

    kind: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    key: str = ""
    text: str = ""


def has_both_outcomes(rewards: Sequence[float]) -> bool:
    """Whether the rewards of a group, 0 to 1, differ: 0 < mean < 1."""
    return 0 < sum(rewards) / len(rewards) < 1


def apply_operations(experiences: dict[str, str], operations: Sequence[Operation], last: int = -1) -> tuple[dict[str, str], int]:
    """The experiences (key -> text) after the operations, in their order, and the number of the newest key. ``last``: the newest one before.

    Raises KeyError for an update or deletion of what is not there.
    """
    made = dict(experiences)
    for operation in operations:
        if operation.kind == "ADD":
            last += 1
            made[f"G{last}"] = operation.text
        elif operation.kind != "NONE":
            del made[operation.key]  # an updated one is the newest again
            if operation.kind == "UPDATE":
                made[operation.key] = operation.text
    return made, last


def criticise_group(about: str, texts: Sequence[str], rewards: Sequence[float]) -> Counter[Lesson]:
    """The lessons of a group, with how many of its answers speak for each: what right answers say that no wrong answer with the same number says."""
    said = [split_answer(parse_answer(text) or "") for text in texts]
    right = [pair for pair, reward in zip(said, rewards, strict=True) if reward > 0.5]
    wrong = {pair for pair, reward in zip(said, rewards, strict=True) if reward <= 0.5}
    return Counter((about, unit) for number, unit in right if unit and (number, unit) not in wrong)


def split_answer(answer: str) -> tuple[str, str]:
    """Number and unit of ``12 rice oz``; empty where one is missing."""
    number, *words = answer.split() or [""]
    return number, words[-1] if len(words) > 1 else ""


def merge_lessons(lessons: Counter[Lesson], experiences: dict[str, str]) -> list[Operation]:
    """Operations that bring a batch's lessons into the experiences: of each subject the lesson with most votes; equal ones are left for later."""
    operations = []
    for about in dict.fromkeys(subject for subject, _ in lessons):
        (best, votes), *rest = Counter({lesson: count for lesson, count in lessons.items() if lesson[0] == about}).most_common(2)
        if rest and rest[0][1] == votes:
            continue
        text = write_note(*best)
        known = [key for key, one in experiences.items() if one.startswith(f"{about} ")]
        if not known:
            operations.append(Operation("ADD", text=text))
        else:
            same = experiences[known[-1]] == text
            operations.append(Operation("NONE" if same else "UPDATE", known[-1], text))
            operations += [Operation("DELETE", key) for key in known[:-1]]
    return operations


class Config(Strict):
    experiences_per_query: int = param(1, "Lessons that a group may teach (m).", title="Lessons per prompt", ge=1, le=10)
    most: int = param(12, "Experiences kept; the oldest go first.", title="Experiences at most", ge=1, le=100)


class TrainingFreeGRPO(Method):
    card = Card(
        name="youtu-training-free-grpo",
        title="Training-free GRPO",
        arxiv="2512.24615",
        system="Youtu-Agent (Agent Practice)",
        base="procedure",
        provenance="paper",
        source="arXiv 2512.24615, Agent Practice; the published code (TencentCloudADP/youtu-agent) was not read",
        fit="core",
        idea="Compare the good answers of a group with the bad ones in words, and keep what follows as experiences that later prompts hold.",
        formula=(
            r"E \leftarrow \mathrm{apply}(\mathrm{ops}, E), \quad \mathrm{ops} \in \{\mathrm{ADD}, \mathrm{UPDATE}, \mathrm{DELETE}, \mathrm{NONE}\}",
            r"y \sim \pi_0(\cdot \mid x, E)",
        ),
        departures=(
            "Summary, critique and merge are a rule in place of a large model: a lesson is the unit that right answers of a group have.",
            "Of equally supported lessons about one thing none is taken.",
        ),
        claim=("procedure/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"prompt"})
    worlds = frozenset({"conventions"})
    requires = (Requirement("training.num_generations", "at least", 2, "it compares the answers of a group"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    @property
    def experiences(self) -> dict[str, str]:
        return dict(self.run.store.items(EXPERIENCES))

    def prompts(self, example: "Example", members: int, step: int) -> "list[list[Message]] | None":
        """Under the notes that the prompt has already and the experiences, which come last."""
        notes = [write_note(*note) for note in example.data["notes"].items()]
        return [write_noted_prompt(example.data, [*notes, *self.experiences.values()]) for _ in range(members)]

    def observe(self, batch: "RolloutBatch") -> None:
        group, lessons, skipped = batch.group_size, Counter[Lesson](), 0
        sources: dict[str, list[int]] = {}
        for start in range(0, len(batch.texts), group):
            rows = slice(start, start + group)
            rewards = batch.correct[rows].float().tolist()
            if not has_both_outcomes(rewards):
                skipped += 1
                continue
            about = batch.examples[start].data["good"]
            found = criticise_group(about, batch.texts[rows], rewards).most_common(self.config.experiences_per_query)
            lessons.update(dict(found))
            sources.setdefault(about, []).append(start // group)
        self.revise(merge_lessons(lessons, self.experiences), batch.step, sources)
        self.log("skipped", skipped / (len(batch.texts) // group))

    def revise(self, operations: Sequence[Operation], step: int, sources: dict[str, list[int]]) -> None:
        """Applies the operations and keeps them, with the groups each came from, so that it can be read how an experience came about."""
        store = self.run.store
        last = max((int(key[1:]) for key in [*self.experiences, *(edit["key"] for edit in store.items(EDITS))] if key), default=-1)
        made, _ = apply_operations(self.experiences, operations, last)
        store.replace(EXPERIENCES, [list(item) for item in made.items()][-self.config.most :])
        for operation in operations:
            if operation.kind == "ADD":
                last += 1
            if operation.kind != "NONE":
                key = f"G{last}" if operation.kind == "ADD" else operation.key
                edit: dict[str, Any] = {"step": step, "kind": operation.kind, "key": key, "text": operation.text}
                store.add(EDITS, {**edit, "groups": sources.get(operation.text.partition(" ")[0], [])})
        self.log("experiences", len(self.experiences))
        self.log("edits", sum(operation.kind != "NONE" for operation in operations))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Experiences", (Series(f"{name}/experiences", "kept"), Series(f"{name}/edits", "changed in the round", dashed=True))),
            Panel("Groups without a lesson", (Series(f"{name}/skipped", "share whose rewards do not differ"),)),
        )
