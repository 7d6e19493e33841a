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

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.training.catalog.card_words import TRAINERS
from lab.training.catalog.catalog import Catalog
from lab.training.catalog.methods import Method
from lab.training.runs.schema_form import Field, as_text, build_schema_fields, from_text
from trainers.contract.stacking import DEFAULT_BASES, has_default_conflict

Values = Mapping[str, str]
Spec = dict[str, Any]
LONGEST_STACK = 40  # methods in a recipe


@dataclass(frozen=True)
class Card:
    """One method of the stack with its inputs. ``place`` names the card where problems are shown; ``method`` is None when the catalogue has none."""

    name: str
    place: str
    method: Method | None
    fields: list[Field]
    error: str


@dataclass(frozen=True)
class Stack:
    """The section as it is shown. ``addable``: what can still be added, and what of the stack it does not go with; ``adding``: what is typed."""

    number: int
    bases: list[Method]
    base: Card
    base_error: str
    cards: list[Card]
    addable: list[tuple[Method, str]]
    adding: str
    adding_error: str


def make_stage_prefix(number: int) -> str:
    return f"stages.{number}"


def base_place(number: int, name: str) -> str:
    return f"{make_stage_prefix(number)}.base.{name}"


def method_place(number: int, name: str) -> str:
    return f"{make_stage_prefix(number)}.method.{name}"


def fields_at(catalog: Catalog, name: str, place: str) -> list[Field]:
    """The inputs of a method's parameters; none for a method that the catalogue has not."""
    entry = catalog.methods_by_name.get(name)
    return build_schema_fields(entry["parameters"], f"{place}.") if entry else []


def format_field_texts(fields: list[Field], config: Mapping[str, Any]) -> dict[str, str]:
    return {made.name: as_text(config.get(made.key, made.default)) for made in fields}


def names_of(values: Values, number: int) -> list[str]:
    """The methods of a stage in their order, each once."""
    return list(dict.fromkeys(values.get(f"{make_stage_prefix(number)}.methods", "").split()))[:LONGEST_STACK]


def base_of(values: Values, number: int, trainer: str) -> str:
    return values.get(f"{make_stage_prefix(number)}.base", "") or DEFAULT_BASES.get(trainer, "")


def configs_of(spec: Spec) -> dict[str, dict[str, Any]]:
    """Method → its parameters in a stage's spec."""
    return {choice["name"]: dict(choice.get("config") or {}) for choice in spec.get("methods") or ()}


# From a spec to inputs, and back.


def build_stack_values(catalog: Catalog, number: int, spec: Spec) -> dict[str, str]:
    """The text of every input of the section for a stage's spec."""
    chosen = spec.get("base") or {}
    base = chosen.get("name") or DEFAULT_BASES.get(spec["training"]["trainer"], "")
    configs = configs_of(spec)
    values = {
        f"{make_stage_prefix(number)}.base": base,
        f"{make_stage_prefix(number)}.base.shown": base,
        f"{make_stage_prefix(number)}.methods": " ".join(configs),
        f"{make_stage_prefix(number)}.add": "",
    }
    values |= format_field_texts(fields_at(catalog, base, base_place(number, base)), chosen.get("config") or {})
    for name, config in configs.items():
        values |= format_field_texts(fields_at(catalog, name, method_place(number, name)), config)
    return values


def fill_base_defaults(catalog: Catalog, number: int, trainer: str, values: Values) -> dict[str, str]:
    """What to add to the values of a browser that held another base's parameters than the chosen one's: their defaults."""
    base = base_of(values, number, trainer)
    if values.get(f"{make_stage_prefix(number)}.base.shown") == base:
        return {}
    return {f"{make_stage_prefix(number)}.base": base, f"{make_stage_prefix(number)}.base.shown": base} | format_field_texts(
        fields_at(catalog, base, base_place(number, base)), {}
    )


def parse_stack_inputs(catalog: Catalog, number: int, values: Values, spec: Spec) -> Spec:
    """``base`` and ``methods`` of the spec that the inputs stand for. ``spec``: what the form started with, whose parameters without input stay."""
    trainer, old = spec["training"]["trainer"], spec.get("base") or {}
    base, before = base_of(values, number, trainer), configs_of(spec)
    config = config_of(fields_at(catalog, base, base_place(number, base)), values, old.get("config") or {} if old.get("name") == base else {})
    is_usual = base == DEFAULT_BASES.get(trainer) and not config and not old
    methods = []
    for name in names_of(values, number):
        methods.append({"name": name, "config": config_of(fields_at(catalog, name, method_place(number, name)), values, before.get(name, {}))})
    return {"base": None if is_usual else {"name": base, "config": config}, "methods": methods}


def config_of(fields: list[Field], values: Values, old: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that are not at their default, and those that were written out before."""
    keys = {made.key for made in fields}
    config = {key: value for key, value in old.items() if key not in keys}
    for made in fields:
        value = from_text(made, values.get(made.name, ""))
        if made.key in old or value != made.default:
            config[made.key] = value
    return config


# What the page shows, and where.


def build_stack_section(catalog: Catalog, number: int, trainer: str, values: Values, errors: Values) -> Stack:
    names, base = names_of(values, number), base_of(values, number, trainer)
    cards = [build_method_card(catalog, name, method_place(number, name), values, errors) for name in names]
    return Stack(
        number=number,
        bases=[Method(entry) for entry in catalog.bases(trainer)],
        base=build_method_card(catalog, base, base_place(number, base), values, errors),
        base_error=errors.get(f"{make_stage_prefix(number)}.base", ""),
        cards=cards,
        addable=[
            (Method(entry), find_opposed_method(catalog, [base, *names], entry)) for entry in catalog.stackable(trainer) if entry["name"] not in names
        ],
        adding=values.get(f"{make_stage_prefix(number)}.add", ""),
        adding_error=errors.get(f"{make_stage_prefix(number)}.add", ""),
    )


def find_opposed_method(catalog: Catalog, names: list[str], entry: Mapping[str, Any]) -> str:
    """The first of the stack's methods that this one cannot be stacked on; empty when it goes with all."""
    known = [catalog.methods_by_name[name] for name in names if name in catalog.methods_by_name]
    return next((str(one["name"]) for one in known if has_default_conflict(one, dict(entry))), "")


def build_method_card(catalog: Catalog, name: str, place: str, values: Values, errors: Values) -> Card:
    entry = catalog.methods_by_name.get(name)
    fields = [made.bound(values, errors) for made in fields_at(catalog, name, place)]
    return Card(name, place, Method(entry) if entry else None, fields, errors.get(place, ""))


def input_of(catalog: Catalog, number: int, trainer: str, values: Values, field: str) -> str:
    """The input or card for a field of the spec: ``base.config.low``, ``methods.2.name``. Empty when the section has none."""
    part, _, rest = field.partition(".")
    if part == "base":
        name, select = base_of(values, number, trainer), f"{make_stage_prefix(number)}.base"
        fields = fields_at(catalog, name, base_place(number, name))
        return next((made.name for made in fields if rest.startswith("config.") and made.key == rest.split(".")[1]), select)
    place, _, rest = rest.partition(".")
    names = names_of(values, number)
    at_place = parse_whole_number(place, len(names) - 1)
    if at_place is None:
        return ""
    where = method_place(number, names[at_place])
    return next((made.name for made in fields_at(catalog, names[at_place], where) if rest == f"config.{made.key}"), where)


def number_fields(catalog: Catalog, number: int, trainer: str, values: Values) -> list[tuple[str, Field]]:
    """(path of its part in the spec, input) of every parameter."""
    base = base_of(values, number, trainer)
    found = [("base.config", made) for made in fields_at(catalog, base, base_place(number, base))]
    for place, name in enumerate(names_of(values, number)):
        found += [(f"methods.{place}.config", made) for made in fields_at(catalog, name, method_place(number, name))]
    return [(part, made.bound(values, {})) for part, made in found]


# What a person does to the stack: each gives the values to change.


def add_stack_method(catalog: Catalog, number: int, trainer: str, values: Values, text: str) -> dict[str, str]:
    """The method that ``text`` names, last in the stack with its defaults; a base takes the place of the base. Raises Refusal."""
    names, method = names_of(values, number), find_named_method(catalog, text)
    if method.is_base and trainer in method.trainers:
        changed = {**values, f"{make_stage_prefix(number)}.base": method.name}
        return {f"{make_stage_prefix(number)}.add": "", f"{make_stage_prefix(number)}.base": method.name} | fill_base_defaults(
            catalog, number, trainer, changed
        )
    if trainer not in method.trainers:
        raise Refusal(f"{method.name} works on {' or '.join(method.trainer_titles)}, not on {TRAINERS.get(trainer, trainer)}.", status=422)
    if method.name in names:
        raise Refusal(f"{method.name} is already in the recipe.", status=422)
    fields = fields_at(catalog, method.name, method_place(number, method.name))
    return {f"{make_stage_prefix(number)}.add": "", f"{make_stage_prefix(number)}.methods": " ".join([*names, method.name])} | format_field_texts(
        fields, {}
    )


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


def move_stack_method(number: int, values: Values, name: str, by: int) -> dict[str, str]:
    """The stack with one method ``by`` places further down, as far as there are places; with ``by`` 0 without it."""
    names = names_of(values, number)
    if name in names:
        place = names.index(name)
        names.remove(name)
        if by:
            names.insert(max(0, place + by), name)
    return {f"{make_stage_prefix(number)}.methods": " ".join(names)}
