"""What a labelling page sends, read strictly, and the way back.

A page speaks of places as they were shown; the database of places as they are stored. ``order`` leads from one to the other: order[shown] = stored.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from lab.labelling.labels.models import Item, Kind, Queue, Rationale, SkipHandling, Verdict
from lab.lib.numbers import MAX_INTEGER
from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.rollouts.annotations.token_stretches import find_stretch
from lab.rollouts.annotations.verbs import normalize_typed_text

TEXT = {"rationale": 10_000, "correction": 100_000, "reason": 1_000}  # characters
MARKED = 2_000  # steps or spans of one answer
SCALE = range(1, 6)  # of a rubric question without choices of its own
FIELDS = ("choice", "strength", "tiers", "rubric", "rationale", "correction", "steps", "spans", "reason")
CHOICES = {
    Kind.PAIR: ("1", "2", "tie", "bad", "skip"),
    Kind.RANKING: ("ranked", "skip"),
    Kind.SINGLE: ("good", "bad", "neutral", "skip"),
    Kind.CLEARER: ("1", "2", "tie", "skip"),
}
MARKS = {"steps": ("good", "bad", "neutral"), "spans": ("good", "bad")}


class AnswerError(InputRefusal):
    """The answer cannot be taken as it is."""

    location = "answer"


@dataclass(frozen=True)
class LabelAnswer:
    """In stored places. Of a skip only ``reason`` is kept."""

    verdict: str
    strength: int | None = None
    tiers: list[list[int]] | None = None
    rubric: dict[str, Any] = field(default_factory=dict)
    rationale: str = ""
    correction: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""


def read_answer(queue: Queue, item: Item, order: list[int], data: dict[str, Any], deciding: bool = False) -> LabelAnswer:
    """``data`` in the places of ``order``. ``deciding``: by who settles an item, who may not skip and need not answer every question.

    Raises AnswerError with every problem there is.
    """
    reader = AnswerReader(queue, item, order, deciding)
    answer = reader.read(data)
    if answer is None or reader.problems:
        raise AnswerError(reader.problems)
    return answer


class AnswerReader:
    """Collects the problems of one answer."""

    def __init__(self, queue: Queue, item: Item, order: list[int], deciding: bool) -> None:
        self.queue, self.item, self.order, self.deciding = queue, item, order, deciding
        self.problems: list[Problem] = []

    def wrong(self, name: str, message: str, fix: str = "") -> None:
        self.problems.append(Problem(name, message, fix))

    def read(self, data: Any) -> LabelAnswer | None:
        if not isinstance(data, dict):
            self.wrong("answer", "An answer is an object with the fields of the page.", "Reload the page; your draft is kept.")
            return None
        if sorted(self.order) != list(range(len(self.item.rollouts if self.item.texts is None else self.item.texts))):
            self.wrong("order", "The order does not name every answer of this item once.", "Reload the page.")
            return None
        for name in [name for name in data if name not in FIELDS][:5]:
            self.wrong(str(name)[:50], "An answer has no such field.", f"It may have {', '.join(FIELDS)}.")
        choice = self.choice(data)
        if choice is None:
            return None
        if choice == "skip":
            return self.skipped(data)
        verdict = self.verdict(choice)
        return LabelAnswer(
            verdict=verdict,
            strength=self.strength(data, verdict),
            tiers=self.tiers(data),
            rubric=self.rubric(data),
            rationale=self.words(data, "rationale", self.queue.rationale != Rationale.NONE or self.deciding, self.required),
            correction=self.words(data, "correction", self.queue.correction),
            steps=self.marks(data, "steps"),
            spans=self.marks(data, "spans"),
        )

    @property
    def required(self) -> bool:
        return self.queue.rationale == Rationale.REQUIRED and not self.deciding

    def choice(self, data: dict[str, Any]) -> str | None:
        offered = CHOICES[Kind(self.queue.kind)]
        choice = data.get("choice")
        if self.queue.kind == Kind.RANKING and choice in (None, ""):
            choice = "ranked"
        if not isinstance(choice, str) or choice not in offered:
            message = "Choose an answer first." if choice in (None, "") else "This is not one of the choices."
            self.wrong("choice", message, f"Choose {join_with_or(offered)}.")
            return None
        return choice

    def skipped(self, data: dict[str, Any]) -> LabelAnswer | None:
        if self.deciding:
            self.wrong("choice", "A decision cannot be a skip.", "Choose an answer, or go to the next item.")
            return None
        if self.queue.skipping == SkipHandling.NEVER:
            self.wrong("choice", "Skipping is not allowed in this queue.", "Choose the least bad answer, or a tie.")
            return None
        reason = self.words(data, "reason", True)
        if not reason and not self.problems:
            self.wrong("reason", "Give a reason for skipping.", "A few words are enough.")
            return None
        return LabelAnswer(Verdict.SKIP, reason=reason)

    def verdict(self, choice: str) -> str:
        """Of a side the verdict on the stored order."""
        if choice not in ("1", "2"):
            return choice
        if self.queue.kind == Kind.PAIR:
            return Verdict.A if self.order[int(choice) - 1] == 0 else Verdict.B
        first = self.order[0] in (0, 1)
        return Verdict.FIRST if first == (choice == "1") else Verdict.SECOND

    def strength(self, data: dict[str, Any], verdict: str) -> int | None:
        value = data.get("strength")
        if value is None or verdict in (Verdict.TIE, Verdict.BAD):
            return None
        if not self.queue.strength or self.queue.kind not in (Kind.PAIR, Kind.CLEARER):
            self.wrong("strength", "This queue does not ask for a strength.", "Remove it.")
            return None
        if to_strict_integer(value) is None or value not in (1, 2, 3):
            self.wrong("strength", "The strength is 1, 2 or 3.", "Choose one, or none.")
            return None
        return int(value)

    def tiers(self, data: dict[str, Any]) -> list[list[int]] | None:
        value = data.get("tiers")
        if self.queue.kind != Kind.RANKING:
            if value:
                self.wrong("tiers", "Only a ranking has tiers.", "Remove them.")
            return None
        if not isinstance(value, list) or not all(
            isinstance(tier, list) and all(to_strict_integer(position) is not None for position in tier) for tier in value
        ):
            self.wrong("tiers", "A ranking is a list of tiers, best first, each a list of answers.", "Rank every answer.")
            return None
        places = [position for tier in value for position in tier]
        count = len(self.order)
        if any(not 0 <= position < count for position in places) or len(set(places)) < len(places) or not all(value):
            self.wrong("tiers", "Every answer must be in exactly one tier, and no tier may be empty.", "Reload the page; your draft is kept.")
            return None
        if missing := sorted(set(range(count)) - set(places)):
            self.wrong("tiers", f"Not ranked yet: {', '.join(chr(65 + position) for position in missing)}.", "Rank every answer; ties are allowed.")
            return None
        return [sorted(self.order[position] for position in tier) for tier in value]

    def rubric(self, data: dict[str, Any]) -> dict[str, Any]:
        given = data.get("rubric") or {}
        if not isinstance(given, dict):
            self.wrong("rubric", "The answers to the questions are an object.", "Reload the page; your draft is kept.")
            return {}
        questions = {str(question.get("name")): question for question in self.queue.rubric}
        for name in [name for name in given if name not in questions][:5]:
            self.wrong(f"rubric.{name[:50]}", "This queue asks no such question.", "Reload the page: the questions may have changed.")
        answers = {}
        for name, question in questions.items():
            value = given.get(name)
            if value in (None, ""):
                if question.get("required") and not self.deciding:
                    self.wrong(f"rubric.{name}", f"“{question.get('label') or name}” has no answer yet.", "Answer it.")
                continue
            offered = offered_by(question)
            if isinstance(value, (dict, list, float)) or as_offered(value) not in offered:
                self.wrong(f"rubric.{name}", "This is not one of the answers.", f"Choose {join_with_or([str(value) for value in offered])}.")
                continue
            answers[name] = as_offered(value)
        return answers

    def words(self, data: dict[str, Any], name: str, allowed: bool, required: bool = False) -> str:
        value = data.get(name)
        if value is None:
            value = ""
        if not isinstance(value, str):
            self.wrong(name, "This must be text.", "Enter text.")
            return ""
        text = normalize_typed_text(value)
        if len(text) > TEXT[name]:
            self.wrong(name, f"At most {TEXT[name]:,} characters; this has {len(text):,}.", "Shorten it.")
        elif text and not allowed:
            self.wrong(name, f"This queue does not ask for a {name}.", "Remove it.")
        elif required and not text:
            self.wrong(name, f"This queue requires a {name}.", "Enter a short text.")
        return text

    def marks(self, data: dict[str, Any], name: str) -> list[dict[str, Any]]:
        """[{"start", "end", "mark", "text"}] by start; steps are the reasoning steps of the answer, spans are widened to whole characters."""
        given = data.get(name) or []
        if not given:
            return []
        if self.queue.kind != Kind.SINGLE or not getattr(self.queue, name) or self.item.texts is not None:
            self.wrong(name, f"This queue does not ask for {name}.", "Remove them.")
            return []
        if not isinstance(given, list) or len(given) > MARKED:
            self.wrong(name, f"These are a list of at most {MARKED:,} {name}.", "Remove some.")
            return []
        good = [mark for mark in given if is_mark(mark, MARKS[name])]
        if len(good) < len(given):
            self.wrong(name, f"Each of the {name} has a start and an end in tokens and is {join_with_or(MARKS[name])}.", "Mark them again.")
            return []
        return self.placed(name, sorted(good, key=lambda mark: mark["start"]))

    def placed(self, name: str, marks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        from lab.labelling.labels.claim_view import steps_and_units

        steps, units = steps_and_units(self.item.queue.team_id, self.item.rollouts[0])
        known = {(step.start, step.end): step.text for step in steps}
        placed: list[dict[str, Any]] = []
        for mark in marks:
            start, end = mark["start"], mark["end"]
            if name == "steps":
                if (start, end) not in known:
                    self.wrong(name, f"No step of this answer goes from token {start} to {end}.", "Reload the page.")
                    return []
                text = known[start, end]
            else:
                try:
                    covered = find_stretch(units, start, end)
                except Refusal as error:
                    self.wrong(name, str(error), "Mark it again.")
                    return []
                start, end, text = covered.start, covered.end, covered.text
            if placed and start < placed[-1]["end"]:
                self.wrong(name, f"Two of the {name} cover token {start}.", "Remove one of them.")
                return []
            placed.append({"start": start, "end": end, "mark": mark["mark"], "text": text})
        return placed


def to_strict_integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_mark(mark: Any, marks: tuple[str, ...]) -> bool:
    if not isinstance(mark, dict) or set(mark) - {"start", "end", "mark", "text"} or mark.get("mark") not in marks:
        return False
    start, end = to_strict_integer(mark.get("start")), to_strict_integer(mark.get("end"))
    return start is not None and end is not None and 0 <= start < end <= MAX_INTEGER


def offered_by(question: dict[str, Any]) -> list[Any]:
    """What may be answered: of a scale whole numbers 1 to 5 (or as many as it has choices), of yes-no "yes" and "no", else the choices."""
    kind, choices = question.get("kind"), list(question.get("choices") or [])
    if kind == "yesno":
        return ["yes", "no"]
    if kind == "scale":
        return list(range(1, len(choices) + 1)) if choices else list(SCALE)
    return [str(choice) for choice in choices]


def as_offered(value: Any) -> Any:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def join_with_or(names: Any) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else str(last)


def seconds_of(value: Any) -> float:
    """Seconds from being shown to being submitted, at most a day. Raises AnswerError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise AnswerError([Problem("seconds", "The time must be a number of seconds from 0.", "Reload the page; your draft is kept.")])
    return min(float(value), 86_400.0)


def as_shown(answer: Any, order: list[int]) -> dict[str, Any]:
    """The reverse of ``read_answer``: a judgement or a LabelAnswer as the page sends it, in the places of ``order``."""
    positions = {stored: index for index, stored in enumerate(order)}
    choice = str(answer.verdict)
    if answer.verdict == Verdict.SKIP:
        return {"choice": "skip", "reason": getattr(answer, "reason", "") or answer.rationale}
    if answer.verdict in (Verdict.A, Verdict.B):
        choice = str(positions[0 if answer.verdict == Verdict.A else 1] + 1)
    elif answer.verdict in (Verdict.FIRST, Verdict.SECOND):
        choice = "1" if (order[0] in (0, 1)) == (answer.verdict == Verdict.FIRST) else "2"
    form: dict[str, Any] = {"choice": choice, "strength": answer.strength, "rubric": answer.rubric}
    if answer.tiers is not None:
        form["tiers"] = [sorted(positions[index] for index in tier) for tier in answer.tiers]
    form |= {"rationale": answer.rationale, "correction": answer.correction, "steps": answer.steps, "spans": answer.spans}
    return {name: value for name, value in form.items() if value not in (None, "", [], {})}


def to_judgement_fields(answer: LabelAnswer) -> dict[str, Any]:
    """The fields of a judgement. The reason of a skip is its rationale."""
    fields = asdict(answer)
    reason = fields.pop("reason")
    return {**fields, "rationale": reason or fields["rationale"]}
