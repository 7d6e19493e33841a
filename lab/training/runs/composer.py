"""The method section of a stage in the launch form: a base, and methods stacked on it in order, each with the inputs of its parameters.

Names of the inputs of stage 0: ``stages.0.base`` and ``stages.0.methods`` (the order, names apart by spaces) say what is stacked,
``stages.0.base.gspo.low`` and ``stages.0.method.rs-grpo.risk`` hold parameters, ``stages.0.base.shown`` says whose parameters the page held, and
``stages.0.add`` is what somebody is about to add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from django.forms import HiddenInput
from django.urls import reverse_lazy

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.training.catalog.card_words import TRAINERS
from lab.training.catalog.catalog import Catalog
from lab.training.catalog.methods import Method
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_fields import ChoiceField, Select, TextField
from lab.training.runs.spec_form import Input, SpecForm
from trainers.contract.stacking import DEFAULT_BASES, has_default_conflict

Spec = dict[str, Any]
LONGEST_STACK = 40  # methods in a recipe
SHOWN = "base.shown"
MOVES = {"up": -1, "down": 1}


@dataclass(frozen=True)
class Card:
    """One method of the stack. ``method`` is None when the catalogue has none; ``old``: its parameters in the spec that the form started with."""

    name: str
    method: Method | None
    old: Mapping[str, Any]
    form: SpecForm

    def read_config(self) -> dict[str, Any]:
        """Parameters that are not at their default, those that were written out before, and those without an input."""
        config = {key: value for key, value in self.old.items() if key not in self.form.fields}
        for key, value in self.form.values.items():
            if key in self.old or value != self.form.fields[key].initial:
                config[key] = value
        return config


class StackForm(SpecForm):
    """The section of stage ``number``. ``spec``: what its form started with."""

    def __init__(self, catalog: Catalog, number: int, trainer: str, data: Mapping[str, Any] | None, spec: Spec) -> None:
        self.catalog, self.number, self.trainer = catalog, number, trainer
        self.old_base: Spec = spec.get("base") or {}
        self.old = {choice["name"]: dict(choice.get("config") or {}) for choice in spec.get("methods") or ()}
        base = self.old_base.get("name") or DEFAULT_BASES.get(trainer, "")
        initial = {"base": base, SHOWN: base, "methods": " ".join(self.old)}
        fields = {name: TextField(widget=HiddenInput) for name in ("methods", SHOWN)}
        super().__init__(data, f"stages.{number}", initial, {"base": self._build_base_field(), **fields, "add": TextField()})
        chosen, shown = self.read_text("base") or DEFAULT_BASES.get(trainer, ""), self.read_text(SHOWN)
        self._choose_base(chosen, data if chosen == shown else None, is_old=chosen == shown)
        self._cards = {name: self._build_card(name, "method", data, self.old.get(name, {}), is_old=True) for name in self.names}

    def _build_base_field(self) -> ChoiceField:
        """Another base is shown with its own settings at once."""
        place = f"stages.{self.number}.base"
        on_change = {"hx-post": reverse_lazy("launch-compose"), "hx-trigger": "change", "hx-vals": f'{{"act": "{self.number}:base"}}'}
        return ChoiceField(label="", choices=self._list_bases, widget=Select({**on_change, "aria-describedby": f"help-{place} error-{place}"}))

    def _list_bases(self) -> list[tuple[str, str]]:
        return [(entry["name"], f"{entry['title']} ({entry['name']})") for entry in self.catalog.bases(self.trainer)]

    def read_text(self, name: str) -> str:
        return str(self[name].value())

    def _change_texts(self, texts: Mapping[str, str]) -> None:
        self.data = {**self.data, **{self.add_prefix(name): text for name, text in texts.items()}}

    def _build_card(self, name: str, kind: str, data: Mapping[str, Any] | None, old: Mapping[str, Any], *, is_old: bool) -> Card:
        """``is_old``: with its parameters as in the old spec, where nobody sent any; else with its defaults."""
        entry = self.catalog.methods_by_name.get(name)
        form = SpecForm(data, f"{self.prefix}.{kind}.{name}", old if is_old else None, build_schema_fields(entry["parameters"] if entry else {}))
        return Card(name, Method(entry) if entry else None, old, form)

    def _choose_base(self, name: str, data: Mapping[str, Any] | None = None, *, is_old: bool = False) -> None:
        """The base, with its defaults unless the page held its parameters."""
        self._change_texts({"base": name, SHOWN: name})
        old = self.old_base.get("config") or {} if self.old_base.get("name") == name else {}
        self.base_card = self._build_card(name, "base", data, old, is_old=is_old)

    @property
    def names(self) -> list[str]:
        """The methods in their order, each once."""
        return list(dict.fromkeys(self.read_text("methods").split()))[:LONGEST_STACK]

    @property
    def cards(self) -> list[Card]:
        return [self._cards[name] for name in self.names]

    @property
    def nested(self) -> list[SpecForm]:
        return [self.base_card.form, *(card.form for card in self.cards)]

    @property
    def addable(self) -> list[tuple[Method, str]]:
        """What can still be added, and what of the stack it does not go with."""
        names = self.names
        stack = [self.base_card.name, *names]
        return [
            (Method(entry), self._find_opposed_method(stack, entry)) for entry in self.catalog.stackable(self.trainer) if entry["name"] not in names
        ]

    def _find_opposed_method(self, names: list[str], entry: Mapping[str, Any]) -> str:
        """The first of the stack's methods that this one cannot be stacked on; empty when it goes with all."""
        known = [self.catalog.methods_by_name[name] for name in names if name in self.catalog.methods_by_name]
        return next((str(one["name"]) for one in known if has_default_conflict(one, dict(entry))), "")

    # What it stands for, and where what is wrong is shown.

    def read_stack(self) -> Spec:
        """``base`` and ``methods`` of the spec. The trainer's usual base is not written out unless it was before."""
        base = {"name": self.base_card.name, "config": self.base_card.read_config()}
        is_usual = base == {"name": DEFAULT_BASES.get(self.trainer), "config": {}} and not self.old_base
        return {"base": None if is_usual else base, "methods": [{"name": card.name, "config": card.read_config()} for card in self.cards]}

    def list_parts(self) -> list[tuple[str, SpecForm]]:
        """(path of its parameters in the spec, form) of the base and each method."""
        return [("base.config", self.base_card.form), *((f"methods.{place}.config", card.form) for place, card in enumerate(self.cards))]

    def find_input(self, field: str) -> Input | None:
        """The input or card for a field of the spec: ``base.config.low``, ``methods.2.name``. None when the section has none."""
        part, _, rest = field.partition(".")
        if part == "base":
            keys = [key for key in self.base_card.form.fields if rest.startswith("config.") and key == rest.split(".")[1]]
            return Input(self.base_card.form, keys[0]) if keys else Input(self, "base")
        place, _, rest = rest.partition(".")
        at_place = parse_whole_number(place, len(self.names) - 1)
        if at_place is None:
            return None
        form = self.cards[at_place].form
        return Input(form, next((key for key in form.fields if rest == f"config.{key}"), ""))

    def refuse_unfinished(self) -> bool:
        """Refuses what was typed to be added and was not; True when there is such text."""
        typed = bool(self.read_text("add").strip())
        if typed:
            self.add_error("add", "This method has not been added yet: press Add, or clear the field.")
        return typed

    # What a person does to the stack.

    def edit(self, verb: str, name: str) -> None:
        """Does what a button of the section says. Raises ValueError for what no button says."""
        if verb == "add":
            self.add_or_refuse(self.read_text("add"))
        elif verb in MOVES:
            self._move(name, MOVES[verb])
        elif verb == "remove":
            self._change_texts({"methods": " ".join(other for other in self.names if other != name)})
        elif verb != "base":  # a form is always shown with the settings of the base it was sent with
            raise ValueError(verb)

    def add_or_refuse(self, text: str) -> None:
        """Adds the method that ``text`` names, or says beside the input for it why it cannot."""
        try:
            self.add(text)
        except Refusal as error:
            self.add_error("add", str(error))

    def add(self, text: str) -> None:
        """The method that ``text`` names, last in the stack with its defaults; a base takes the place of the base. Raises Refusal."""
        names, method = self.names, find_named_method(self.catalog, text)
        if method.is_base and self.trainer in method.trainers:
            if method.name != self.base_card.name:
                self._choose_base(method.name)
            self._change_texts({"add": ""})
            return
        if self.trainer not in method.trainers:
            raise Refusal(
                f"{method.name} works on {' or '.join(method.trainer_titles)}, not on {TRAINERS.get(self.trainer, self.trainer)}.", status=422
            )
        if method.name in names:
            raise Refusal(f"{method.name} is already in the recipe.", status=422)
        self._cards[method.name] = self._build_card(method.name, "method", None, self.old.get(method.name, {}), is_old=False)
        self._change_texts({"add": "", "methods": " ".join([*names, method.name])})

    def _move(self, name: str, by: int) -> None:
        """One method ``by`` places further down, as far as there are places."""
        names = self.names
        if name in names:
            place = names.index(name)
            names.remove(name)
            names.insert(max(0, place + by), name)
        self._change_texts({"methods": " ".join(names)})


def find_named_method(catalog: Catalog, text: str) -> Method:
    """The method whose name, title or system the text is. Raises Refusal with what is near."""
    wanted = text.strip().casefold()
    if not wanted:
        raise Refusal("Choose a method from the list.", status=422)
    for key in ("name", "title", "system"):
        for entry in catalog.methods:
            if str(entry[key]).casefold() == wanted:
                return Method(entry)
    near = get_close_matches(wanted, list(catalog.methods_by_name), n=1, cutoff=0.5)
    raise Refusal(f"There is no method “{text.strip()[:40]}”." + (f" Did you mean {near[0]}?" if near else " Choose one from the list."), status=422)
