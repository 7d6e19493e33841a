"""The form of a reward function: what its inputs show, and the definition that they stand for. Nothing that was typed is lost.

Inputs: ``name``, ``note``, ``kind`` (library, sum, product, gate, code, json) and ``was`` (the kind before); ``library.choice`` and
``library.config.<parameter>``; ``parts`` (how many) and of each ``part.0.choice``, ``.weight``, ``.config.<parameter>``, ``.definition`` (JSON of
one that no choice stands for); ``at_least`` and ``otherwise`` of a gate; ``source``; ``definition`` (JSON).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import InputRefusal, Problem
from lab.teams.accounts.models import Team
from lab.training.rewards.models import RewardFunction
from lab.training.runs.reward_choices import LIBRARY, RewardChoice, group_choices, list_reward_choices
from lab.training.runs.reward_words import describe_stored_definition
from lab.training.runs.spec_form import SpecForm
from trainers.contract.reward_definitions import LONGEST_SOURCE, MOST_PARTS

SUM, PRODUCT, GATE, CODE, JSON = "sum", "product", "gate", "code", "json"
KINDS = {
    LIBRARY: ("Library function", "One function of the library with its parameters."),
    SUM: ("Sum", "Weighted sum of parts."),
    PRODUCT: ("Product", "Product of parts: 0 in one is 0 in all."),
    GATE: ("Gate", "One part counts only where another passes."),
    CODE: ("Python", "A function score(completion, reference, data), run in the sandbox."),
    JSON: ("JSON", "Any definition, with compositions inside compositions."),
}
MOST_WEIGHT = 1000
KEPT = "kept"  # choice of a part that no choice of the list stands for
EXAMPLE = '''def score(completion, reference, data):
    """A number, or None for "no opinion". reference is text; data holds the row's other fields."""
    answer = completion.strip().splitlines()[-1] if completion.strip() else ""
    return 1.0 if answer == reference.strip() else 0.0
'''


@dataclass
class PartInputs:
    """One part of a composition, or the library function. ``definition``: JSON text of a part that is kept as it is."""

    prefix: str
    choice: str
    weight: str
    form: SpecForm
    chosen: RewardChoice | None
    definition: str = ""
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def kept_words(self) -> str:
        try:
            return describe_stored_definition(json.loads(self.definition))
        except ValueError:
            return ""

    def define(self) -> Any:
        """The part's definition. Raises InputRefusal."""
        if self.chosen is not None:
            return self.chosen.define(self.form.values)
        if self.choice == KEPT:
            return decode_json(self.definition)
        raise InputRefusal([Problem("", "Choose a reward function." if not self.choice else "This reward function is gone. Remove the part.")])


class DefinitionForm:
    """``data``: what a browser sent. ``errors``: input or path of the JSON → words."""

    def __init__(self, team: Team, data: Mapping[str, Any]) -> None:
        self.team, self.data = team, dict(data.items())
        self.choices = list_reward_choices(team)
        self.errors: dict[str, str] = {}
        self.name, self.note = self.read_text("name").strip(), self.read_text("note").strip()
        kind = self.data.get("kind", LIBRARY)
        self.kind = kind if kind in KINDS else LIBRARY
        self.source = self.read_text("source") or EXAMPLE
        self.json = self.read_text("definition")
        self.at_least, self.otherwise = self.data.get("at_least", "1"), self.data.get("otherwise", "0")
        self._read_parts()

    def read_text(self, name: str) -> str:
        return str(self.data.get(name, "")).replace("\0", "").replace("\r\n", "\n")

    def _read_parts(self) -> None:
        self.library = self._read_part("library")
        count = parse_whole_number(str(self.data.get("parts", "0")), MOST_PARTS) or 0
        self.parts = [self._read_part(f"part.{number}") for number in range(count)]

    def _read_part(self, prefix: str) -> PartInputs:
        key = self.data.get(f"{prefix}.choice", "")
        chosen = self.choices.get(key)
        form = chosen.build_form(self.data, prefix) if chosen else SpecForm(None, f"{prefix}.config")
        return PartInputs(prefix, key, self.data.get(f"{prefix}.weight", "1"), form, chosen, self.data.get(f"{prefix}.definition", ""))

    # What the page shows.

    @property
    def library_choices(self) -> list[RewardChoice]:
        return [choice for choice in self.choices.values() if choice.origin is None]

    @property
    def grouped_choices(self) -> list[tuple[str, list[RewardChoice]]]:
        return group_choices(self.choices)

    @property
    def is_composition(self) -> bool:
        return self.kind in (SUM, PRODUCT, GATE)

    @property
    def error_count(self) -> int:
        return len(self.errors) + sum(len(part.errors) + len(part.form.errors) for part in (self.library, *self.parts))

    # What a person does to it.

    def edit(self, act: str) -> None:
        """Does what a button says: shows another kind, adds or removes a part. Anything else changes nothing."""
        verb, _, rest = act.partition(":")
        if verb == "kind":
            self._follow_kind()
        elif verb == "part-add":
            self._add_part(self.data.get("add", ""))
        elif verb == "part-remove":
            self._renumber([part for part in self.parts if part.prefix != f"part.{rest}"])

    def _follow_kind(self) -> None:
        """The JSON begins with what the form stood for, where that is something."""
        was = self.data.get("was", "")
        if self.kind == JSON and was in KINDS and was != JSON:
            other = DefinitionForm(self.team, self.data | {"kind": was})
            definition = other.read_definition()
            if definition is not None:
                self.json = json.dumps(definition, indent=2, ensure_ascii=False)

    def _add_part(self, key: str) -> None:
        most = 2 if self.kind == GATE else MOST_PARTS
        if key not in self.choices:
            self.errors["add"] = "Choose a reward function from the list."
        elif len(self.parts) >= most:
            self.errors["add"] = f"A {KINDS[self.kind][0].lower()} has at most {most} parts. Nest further ones in the JSON view."
        else:
            self.data |= {f"part.{len(self.parts)}.choice": key, "parts": str(len(self.parts) + 1)}
            self._read_parts()

    def _renumber(self, kept: list[PartInputs]) -> None:
        before = self.data
        self.data = {name: value for name, value in before.items() if not name.startswith("part.")} | {"parts": str(len(kept))}
        for number, part in enumerate(kept):
            for name, value in before.items():
                if name.startswith(f"{part.prefix}."):
                    self.data[f"part.{number}{name.removeprefix(part.prefix)}"] = value
        self._read_parts()

    # What it stands for.

    def read_definition(self) -> Any:
        """As JSON holds it, not yet checked; None where something is wrong already, which ``errors`` then say."""
        try:
            if self.kind == LIBRARY:
                return self.library.define()
            if self.kind == CODE:
                if len(self.source) > LONGEST_SOURCE:
                    raise InputRefusal([Problem("source", f"The source has {len(self.source):,} characters. Use at most {LONGEST_SOURCE:,}.")])
                return {"kind": CODE, "source": self.source}
            return decode_json(self.json) if self.kind == JSON else self._read_composition()
        except InputRefusal as refusal:
            self.show(refusal)
            return None

    def _read_composition(self) -> Any:
        parts = []
        for part in self.parts:
            try:
                parts.append(part.define())
            except InputRefusal as refusal:
                part.errors["choice"] = refusal.problems[0].message
        if self.kind == GATE:
            if len(self.parts) != 2:
                self.errors["parts"] = "A gate has two parts: first the gate, then what it lets through."
            numbers = {name: self._read_number(name, text) for name, text in (("at_least", self.at_least), ("otherwise", self.otherwise))}
            made: Any = {"kind": GATE, "gate": parts[0], "reward": parts[1], **numbers} if len(parts) == 2 else None
        elif not self.parts:
            self.errors["parts"] = "Add a part."
            made = None
        elif self.kind == SUM:
            weights = [self._read_weight(part) for part in self.parts]
            made = {"kind": SUM, "parts": [{"reward": one, "weight": weight} for one, weight in zip(parts, weights, strict=False)]}
        else:
            made = {"kind": PRODUCT, "parts": parts}
        return None if self.errors or any(part.errors for part in self.parts) else made

    def _read_number(self, name: str, text: str) -> float | None:
        value = parse_number(text)
        if value is None:
            self.errors[name] = "Enter a number."
        return value

    def _read_weight(self, part: PartInputs) -> float | None:
        value = parse_number(part.weight)
        if value is None or abs(value) > MOST_WEIGHT:
            part.errors["weight"] = f"Enter a number from −{MOST_WEIGHT} to {MOST_WEIGHT}."
        return value

    # What is wrong with it.

    def show(self, refusal: InputRefusal) -> None:
        """Puts each problem at its input; what has none stands above the form with its path."""
        for problem in refusal.problems:
            words = f"{problem.message} {problem.fix}".strip()
            if not self._place(problem.field.removeprefix("definition").removeprefix("."), words):
                path = problem.field.removeprefix("definition.")
                name = "definition" if self.kind == JSON else "source" if self.kind == CODE else "form"
                said = f"{path}: {words}" if self.kind == JSON and path not in ("", "definition") else words
                self.errors[name] = f"{self.errors[name]} {said}" if name in self.errors else said

    def _place(self, path: str, words: str) -> bool:
        if self.kind == LIBRARY:
            return place_problem(self.library, path, words)
        if not self.is_composition:
            return False
        for number, part in enumerate(self.parts):
            own = {SUM: f"parts.{number}.reward", PRODUCT: f"parts.{number}", GATE: ("gate", "reward")[min(number, 1)]}[self.kind]
            if path == f"parts.{number}.weight":
                part.errors["weight"] = words
                return True
            if path == own or path.startswith(f"{own}."):
                return place_problem(part, path.removeprefix(own).removeprefix("."), words)
        return False


def place_problem(part: PartInputs, path: str, words: str) -> bool:
    name = path.removeprefix("config.").partition(".")[0]
    if path.startswith("config.") and name in part.form.fields:
        part.form.add_error(name, words)
    else:
        said = f"{path}: {words}" if path and part.choice == KEPT else words
        part.errors["choice"] = said
    return True


def parse_number(text: str) -> float | None:
    try:
        value = float(text.strip().replace(",", ".").replace("−", "-"))
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None


def decode_json(text: str) -> Any:
    """Raises InputRefusal."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InputRefusal([Problem("definition", "The JSON is nested too deeply.")]) from None
    except ValueError as error:
        raise InputRefusal([Problem("definition", f"This is not JSON: {error}.")]) from None


def build_definition_inputs(team: Team, definition: Any, function: RewardFunction | None = None) -> dict[str, str]:
    """What the inputs hold for a stored definition, as DefinitionForm reads it."""
    choices = list_reward_choices(team)
    inputs = {"name": function.name if function else "", "kind": str(definition.get("kind", JSON))}
    if function is not None:
        choices.pop(f"team:{function.pk}", None)  # a part that is equal to the function itself is none
    kind = inputs["kind"]
    if kind == LIBRARY and f"{LIBRARY}:{definition['function']}" in choices:
        return inputs | choices[f"{LIBRARY}:{definition['function']}"].write_inputs(definition["config"], "library")
    if kind == CODE:
        return inputs | {"source": definition["source"]}
    if kind == GATE:
        inputs |= {"at_least": f"{definition['at_least']:g}", "otherwise": f"{definition['otherwise']:g}"}
        parts = [(definition["gate"], 1.0), (definition["reward"], 1.0)]
    elif kind == SUM:
        parts = [(part["reward"], part["weight"]) for part in definition["parts"]]
    elif kind == PRODUCT:
        parts = [(part, 1.0) for part in definition["parts"]]
    else:
        return inputs | {"kind": JSON, "definition": json.dumps(definition, indent=2, ensure_ascii=False)}
    for number, (part, weight) in enumerate(parts):
        inputs |= write_part_inputs(choices, part, f"part.{number}") | {f"part.{number}.weight": f"{weight:g}"}
    return inputs | {"parts": str(len(parts))}


def write_part_inputs(choices: Mapping[str, RewardChoice], part: Any, prefix: str) -> dict[str, str]:
    own = next((choice for choice in choices.values() if choice.origin and choice.definition == part), None)
    library = choices.get(f"{LIBRARY}:{part['function']}") if part["kind"] == LIBRARY else None
    if own is not None:
        return own.write_inputs({}, prefix)
    if library is not None:
        return library.write_inputs(part["config"], prefix)
    return {f"{prefix}.choice": KEPT, f"{prefix}.definition": json.dumps(part, ensure_ascii=False)}
