"""Questions a labeller answers beside the verdict: how a form sends them and what a queue stores."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

KINDS = {"scale": "Scale 1 to 5", "choice": "One of several", "yesno": "Yes or no"}
MOST_QUESTIONS, MOST_CHOICES = 12, 12
LABEL_LENGTH, CHOICE_LENGTH = 200, 60


@dataclass
class RubricQuestion:
    """As it stands in the form; ``choices`` separated by commas. ``problems`` by field: label, kind, choices."""

    label: str = ""
    kind: str = "scale"
    choices: str = ""
    required: bool = False
    name: str = ""  # what answers are stored under; kept when the words change
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> list[str]:
        return list(dict.fromkeys(choice.strip() for choice in self.choices.split(",") if choice.strip()))

    def check(self) -> None:
        if len(self.label) > LABEL_LENGTH:
            self.problems["label"] = f"At most {LABEL_LENGTH} characters."
        if self.kind not in KINDS:
            self.problems["kind"] = "Choose one from the list."
        if self.kind == "choice":
            if not 2 <= len(self.options) <= MOST_CHOICES:
                self.problems["choices"] = f"Enter 2 to {MOST_CHOICES} choices, separated by commas."
            elif any(len(choice) > CHOICE_LENGTH for choice in self.options):
                self.problems["choices"] = f"A choice has at most {CHOICE_LENGTH} characters."


def read_questions(data: QueryDict) -> list[RubricQuestion]:
    """The form's questions; those without words are left out. Each brings its problems with it."""
    columns = [data.getlist(f"rubric_{name}") for name in ("label", "kind", "choices", "required", "name")]
    questions = []
    for at, label in enumerate(columns[0][: MOST_QUESTIONS + 1]):
        rest = [column[at] if at < len(column) else "" for column in columns[1:]]
        text = " ".join(label.replace("\0", "").split())
        if text:
            questions.append(RubricQuestion(text, rest[0], rest[1].replace("\0", ""), rest[2] == "yes", rest[3]))
    for question in questions:
        question.check()
    if len(questions) > MOST_QUESTIONS:
        questions[-1].problems["label"] = f"A queue has at most {MOST_QUESTIONS} questions. Remove one."
    return questions


def to_stored_questions(questions: list[RubricQuestion]) -> list[dict[str, Any]]:
    """As Queue.rubric. Names are made of the words, once, and are different."""
    names: set[str] = set()
    rows = []
    for at, question in enumerate(questions):
        name = question.name if re.fullmatch(r"[a-z0-9_]{1,40}", question.name) else make_question_slug(question.label) or f"question_{at + 1}"
        while name in names:
            name = f"{name[:36]}_{at + 1}"
        names.add(name)
        choices = question.options if question.kind == "choice" else []
        rows.append({"name": name, "label": question.label, "kind": question.kind, "choices": choices, "required": question.required})
    return rows


def make_question_slug(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")[:40]


def questions_of(rubric: list[dict[str, Any]]) -> list[RubricQuestion]:
    return [
        RubricQuestion(question["label"], question["kind"], ", ".join(question.get("choices", [])), bool(question.get("required")), question["name"])
        for question in rubric
    ]
