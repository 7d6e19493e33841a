"""An OpenAPI document in words: what the page of the API shows for each operation."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.utils.text import slugify

DEEPEST = 4  # levels of an object that are shown as fields


@dataclass(frozen=True)
class FieldLine:
    """A field or parameter; ``name`` is its path: ``team.slug``, ``errors[].field``."""

    name: str
    type: str
    required: bool
    text: str
    location: str = ""

    @property
    def about(self) -> list[tuple[str, bool]]:
        return split_code_spans(self.text)


@dataclass(frozen=True)
class OperationEntry:
    id: str
    method: str
    path: str
    summary: str
    paragraphs: list[list[tuple[str, bool]]]  # in pieces: text, and whether it is code
    permission: str
    parameters: list[FieldLine]
    body: list[FieldLine]
    example: str
    answers: list[FieldLine]
    answer_type: str


@dataclass(frozen=True)
class OperationGroup:
    name: str
    operations: list[OperationEntry] = field(default_factory=list)

    @property
    def slug(self) -> str:
        """Of the group in the address of its page."""
        return slugify(self.name)


def group_operations(document: dict[str, Any]) -> list[OperationGroup]:
    nouns: dict[str, OperationGroup] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            [tag] = operation["tags"]
            nouns.setdefault(tag, OperationGroup(tag)).operations.append(describe_operation(document, method.upper(), path, operation))
    return list(nouns.values())


def describe_operation(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> OperationEntry:
    body = schema_of(operation.get("requestBody", {}))
    good: dict[str, Any] = next((answer for status, answer in operation["responses"].items() if str(status).startswith("2")), {})
    answer = schema_of(good)
    return OperationEntry(
        id=operation["operationId"],
        method=method,
        path=path,
        summary=operation["summary"],
        paragraphs=[split_code_spans(text) for text in operation["description"].split("\n\n")],
        permission=operation["x-permission"],
        parameters=[describe_parameter(document, given) for given in operation.get("parameters", [])],
        body=list_schema_fields(document, body, "", 0),
        example=json.dumps(build_example_body(document, body, 0), indent=2, ensure_ascii=False) if body else "",
        answers=list_schema_fields(document, answer, "", 0),
        answer_type=", ".join(good.get("content", {})),
    )


def split_code_spans(text: str) -> list[tuple[str, bool]]:
    """Text in which backticks stand around code."""
    return [(piece, number % 2 == 1) for number, piece in enumerate(text.split("`")) if piece]


def schema_of(part: dict[str, Any]) -> dict[str, Any]:
    return next((dict(content.get("schema", {})) for content in part.get("content", {}).values()), {})


def describe_parameter(document: dict[str, Any], given: dict[str, Any]) -> FieldLine:
    schema = given["schema"]
    return FieldLine(given["name"], type_of(document, schema), given.get("required", False), given.get("description", ""), given["in"])


def list_schema_fields(document: dict[str, Any], schema: dict[str, Any], before: str, depth: int) -> list[FieldLine]:
    schema = resolve_schema(document, schema)
    if schema.get("type") == "array":
        return list_schema_fields(document, schema.get("items", {}), f"{before}[]", depth)
    lines: list[FieldLine] = []
    for name, inner in schema.get("properties", {}).items():
        path = f"{before}.{name}".lstrip(".")
        whole = resolve_schema(document, inner)
        text = inner.get("description") or whole.get("description", "")
        lines.append(FieldLine(path, type_of(document, inner), name in schema.get("required", []), text))
        if depth < DEEPEST:
            lines += list_schema_fields(document, whole, path, depth + 1)
    return lines


def resolve_schema(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follows a reference, and the one branch of a choice that is not null."""
    while True:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
        elif real := [option for option in schema.get("anyOf", []) if option.get("type") != "null"]:
            if len(real) != 1:
                return schema
            schema = real[0]
        else:
            return schema


def type_of(document: dict[str, Any], schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(type_of(document, option) for option in schema["anyOf"])
    schema = resolve_schema(document, schema)
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {type_of(document, schema.get('items', {}))}"
    if schema.get("type") == "object" and schema.get("title") and "properties" in schema:
        return "object"
    return str(schema.get("format") or schema.get("type") or "any")


def build_example_body(document: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    """A body that could be sent: the examples of the fields, defaults left out."""
    given = schema.get("examples") or resolve_schema(document, schema).get("examples")
    if given:
        return given[0]
    schema = resolve_schema(document, schema)
    if "properties" in schema and depth < DEEPEST:
        required = schema.get("required", [])
        properties = {name: inner for name, inner in schema["properties"].items() if name in required or "examples" in inner}
        return {name: build_example_body(document, inner, depth + 1) for name, inner in properties.items()}
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [build_example_body(document, schema.get("items", {}), depth + 1)]
    return {"string": "…", "integer": 1, "number": 1.0, "boolean": True, "object": {}}.get(str(schema.get("type")))
