"""Turns what JSON and pydantic say about a bad spec into problems a person can act on: the key as written, what is allowed, what was meant."""

import difflib
import json
import math
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trainers.contract.problems import Contradiction, Problem, SpecError

# Fields that hold one of several models, chosen by a key of theirs; pydantic puts the choice into the location of an error.
UNIONS = {"policy": "kind", "teacher": "kind", "training": "trainer"}
DEEPEST = 40  # nested lists and objects; a spec has five


def decode_strict_json(text: bytes, source: str) -> Any:
    """The JSON value in ``text``. Raises SpecError for what is not JSON, for NaN and Infinity, and for a key given twice."""
    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=without_repeats)
    except RecursionError:
        raise SpecError([Problem("", "", f"{source} is nested too deeply", given=False)]) from None
    except ValueError as error:
        raise SpecError([Problem("", "", f"{source} is not JSON: {error}", given=False)]) from None


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is given twice")
        found[key] = value
    return found


def find_unclean_values(value: Any, path: str = "", depth: int = 0) -> list[Problem]:
    """Problems with what no spec may hold anywhere: NUL, lone surrogates, numbers that are not finite, bottomless nesting."""
    if depth > DEEPEST:
        return [Problem(path, "", "nested too deeply", given=False)]
    if isinstance(value, float) and not math.isfinite(value):
        return [Problem(path, str(value), "is not a finite number", "write a number")]
    if isinstance(value, str):
        return [Problem(path, ascii(value), reason, "remove it") for reason in bad_text(value)]
    if isinstance(value, dict):
        keys = [Problem(path, ascii(key), f"a key {reason}", "remove it") for key in value for reason in bad_text(str(key))]
        return keys + [problem for key, item in value.items() for problem in find_unclean_values(item, join_field_path(path, str(key)), depth + 1)]
    if isinstance(value, list):
        return [problem for number, item in enumerate(value) for problem in find_unclean_values(item, join_field_path(path, str(number)), depth + 1)]
    return []


def bad_text(text: str) -> Iterator[str]:
    if "\0" in text:
        yield "holds a NUL character"
    if any("\ud800" <= char <= "\udfff" for char in text):
        yield "holds a lone surrogate"


def join_field_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def problems_of(error: ValidationError, root: type[BaseModel]) -> list[Problem]:
    """One problem for each field pydantic complains about, in its order."""
    found: dict[str, Problem] = {}
    for item in error.errors(include_url=False):
        for problem in problems_from_detail(item, root):
            earlier = found.get(problem.field)
            if earlier is None:
                found[problem.field] = problem
            elif earlier.message != problem.message:  # every member of a union has its own complaint about the same value
                both = f"{earlier.message}, or {problem.message[:1].lower()}{problem.message[1:]}"
                found[problem.field] = Problem(problem.field, problem.value, both, earlier.fix, problem.given)
    return list(found.values())


def problems_from_detail(item: ErrorDetails, root: type[BaseModel]) -> list[Problem]:
    keys, owner = follow_location(item["loc"], root)
    field, context = ".".join(keys), item.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, Contradiction):
        return [Problem(join_field_path(field, p.field), p.value, p.message, p.fix, p.given) for p in cause.problems]
    if item["type"] in ("union_tag_not_found", "union_tag_invalid"):
        return [wrong_tag(field, item, root)]
    if item["type"] == "missing":
        return [Problem(field, None, "is missing", f"add it: {describe_setting(keys[-1], owner)}".removesuffix(": "), given=False)]
    if item["type"] == "extra_forbidden":
        return [Problem(field, abbreviate_value(item["input"]), "unknown setting", suggest_setting(keys, owner, root))]
    if item["type"] in ("model_type", "model_attributes_type", "dict_type") or not keys:
        return [Problem(field, abbreviate_value(item["input"]), "must be a JSON object", "write {…}")]
    return [Problem(field, abbreviate_value(item["input"]), describe_refusal(item), fix_of(item, keys[-1], owner))]


BOUNDS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "finite_number": "must be a finite number",
    "literal_error": "must be one of {expected}",
}
TYPES = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "list": "must be a list",
}


def describe_refusal(item: ErrorDetails) -> str:
    """What pydantic refused, in a form's words; its own words where it says something else."""
    kind, context = item["type"], item.get("ctx", {})
    if kind in BOUNDS:
        whole = {key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in context.items()}
        return BOUNDS[kind].format(**whole)
    named, _, rest = kind.partition("_")
    if rest in ("type", "parsing", "from_float") and named in TYPES:
        return TYPES[named]
    return item["msg"].removeprefix("Value error, ")


def follow_location(location: tuple[int | str, ...], root: type[BaseModel]) -> tuple[list[str], type[BaseModel]]:
    """The keys of a location as they are in the file, and the model that owns the last one."""
    keys, owner, value_of = list[str](), root, None
    for index, part in enumerate(location):
        if index == 1 and keys[0] in UNIONS and part in list_union_models(root, keys[0]):
            owner = list_union_models(root, keys[0])[str(part)]
            continue
        if value_of is not None and not models_in(value_of) and not isinstance(part, int) and "dict" not in str(value_of):
            break  # the name of a union member (``int``), not a key
        if value_of is not None and models_in(value_of) and not isinstance(part, int) and keys[-1] not in UNIONS:
            owner = models_in(value_of)[0]
        keys.append(str(part))
        if not isinstance(part, int):
            known = owner.model_fields.get(str(part))
            value_of = known.annotation if known else dict
    return keys, owner


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models named in a type, in order: ``list[MethodChoice]`` holds MethodChoice."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def list_union_models(root: type[BaseModel], field: str) -> dict[str, type[BaseModel]]:
    """The models a discriminated field may hold, by the value of their discriminator."""
    models = models_in(root.model_fields[field].annotation)
    return {model.model_fields[UNIONS[field]].default: model for model in models}


def wrong_tag(field: str, item: ErrorDetails, root: type[BaseModel]) -> Problem:
    value = item["input"]
    if field in UNIONS:
        key, allowed = UNIONS[field], list(list_union_models(root, field))
    else:  # a union somewhere inside, such as a definition of a reward: pydantic tells its key, and its tags where one was given
        context = item.get("ctx", {})
        key = str(context["discriminator"]).strip("'")
        allowed = [tag.strip("' ") for tag in str(context.get("expected_tags", "")).split(",") if tag]
    listed = f"use one of {', '.join(allowed)}" if allowed else "add it"
    if not isinstance(value, dict) or key not in value:
        return Problem(join_field_path(field, key), None, "is missing", listed, given=False)
    return Problem(join_field_path(field, key), abbreviate_value(value[key]), "is not known", listed + suggest_closest(str(value[key]), allowed))


def suggest_setting(keys: list[str], owner: type[BaseModel], root: type[BaseModel]) -> str:
    """What a person who wrote an unknown key probably wanted."""
    key, field = keys[-1], keys[0]
    if field in UNIONS and len(keys) == 2:
        others = [tag for tag, model in list_union_models(root, field).items() if key in model.model_fields]
        if others:
            return f"only for {UNIONS[field]} {' or '.join(others)}; remove it"
    near = difflib.get_close_matches(key, owner.model_fields, n=1)
    if near:
        return f"did you mean {'.'.join([*keys[:-1], near[0]])}?"
    elsewhere = [path for path in list_setting_paths(root) if path.rpartition(".")[2] == key]
    if elsewhere:
        return f"it belongs to {' or '.join(elsewhere)}"
    return f"remove it; known here: {', '.join(owner.model_fields)}"


def list_setting_paths(root: type[BaseModel]) -> list[str]:
    """The dotted path of every setting of a spec, each once."""
    found = dict[str, None]()
    for name, field in root.model_fields.items():
        found[name] = None
        for model in models_in(field.annotation):
            found.update({f"{name}.{inner}": None for inner in model.model_fields})
    return list(found)


def suggest_closest(value: str, allowed: list[str]) -> str:
    near = difflib.get_close_matches(value, allowed, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def fix_of(item: ErrorDetails, key: str, owner: type[BaseModel]) -> str:
    field = owner.model_fields.get(key)
    if item["type"] == "literal_error":
        allowed = [str(value) for value in get_args(field.annotation)] if field else []
        return "use one of these" + suggest_closest(str(item["input"]), allowed)
    if item["type"] in ("string_pattern_mismatch", "string_too_short"):
        return describe_setting(key, owner)
    if field is None or field.is_required() or field.default is None or isinstance(field.default, dict | list | BaseModel):
        return ""
    return f"the default is {field.default!r}"


def describe_setting(key: str, owner: type[BaseModel]) -> str:
    field = owner.model_fields.get(key)
    return (field.description or "") if field else ""


def abbreviate_value(value: Any) -> Any:
    """A value as a problem carries it: short, and only what JSON can hold."""
    if isinstance(value, str):
        return value if len(value) <= 200 else value[:199] + "…"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    return f"[{len(value)} values]" if isinstance(value, list) else str(type(value).__name__)
