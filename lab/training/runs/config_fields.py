"""Settings of runs by name: what a table shows of a spec, and what runs are sorted and grouped by.

A name is the path in the spec with dots between its parts: ``training.learning_rate``, ``base.beta``, ``methods.gtpo.alpha``. A dot or colon inside
of a part is percent-encoded, so that a name leads to one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from django.db.models import F, Func, JSONField, Value
from django.db.models.expressions import Combinable

from lab.training.runs.models import Run
from lab.training.runs.spec_reading import LOCAL, format_spec_value

LONGEST_NAME = 200
READ_RUNS = 300  # the newest runs of a team whose settings are offered
OWN_COLUMNS = (*LOCAL, "recipe")  # not offered twice
SEPARATE = ("base", "methods")  # their parameters lie in a ``config``


@dataclass(frozen=True)
class ConfigField:
    """``path``: the parts of the name."""

    name: str
    path: tuple[str, ...]

    @property
    def label(self) -> str:
        """As people say it: the parameter, and whose it is."""
        part, *rest = self.path
        if part == "methods":
            return f"{rest[0]}: {'.'.join(rest[1:])}"
        return ".".join(rest) if part == "training" else ".".join(self.path)

    @property
    def expression(self) -> Func:
        """The value as JSON; NULL where a spec has none."""
        part, *rest = self.path
        if part == "methods":
            found = "$.methods[*] ? (@.name == $name).config"
            names = Func(Value("name"), Value(rest[0]), function="jsonb_build_object")
            inside: Combinable = Func(F("spec"), Value(found), names, function="jsonb_path_query_first")
            rest = rest[1:]
        else:
            inside, rest = F("spec"), [part, *(["config"] if part in SEPARATE else []), *rest]
        value = Func(inside, *(Value(name) for name in rest), function="jsonb_extract_path")
        return Func(value, Value("null"), function="NULLIF", template="NULLIF(%(expressions)s::jsonb)", output_field=JSONField())


def read_config_field(name: str) -> ConfigField | None:
    """The field of that name; None for what can be no name."""
    path = tuple(unquote(part) for part in name.split("."))
    if not name or len(name) > LONGEST_NAME or "\0" in unquote(name) or not all(path):
        return None
    if path[0] in SEPARATE and len(path) < (3 if path[0] == "methods" else 2):
        return None
    return ConfigField(name, path)


def read_config_values(spec: Any) -> dict[str, Any]:
    """Name → value of everything in a spec; what is empty or null is left out."""
    return dict(_walk_spec(spec, ())) if isinstance(spec, Mapping) else {}


def _walk_spec(part: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in part.items():
        if not path and key == "methods":
            for choice in value if isinstance(value, list) else ():
                if isinstance(choice, Mapping) and isinstance(choice.get("config"), Mapping):
                    yield from _walk_spec(choice["config"], ("methods", str(choice.get("name", ""))))
        elif not path and key == "base":
            if isinstance(value, Mapping) and isinstance(value.get("config"), Mapping):
                yield from _walk_spec(value["config"], ("base",))
        elif isinstance(value, Mapping):
            yield from _walk_spec(value, (*path, key))
        elif value is not None:
            yield write_config_name((*path, key)), value


def write_config_name(path: tuple[str, ...]) -> str:
    return ".".join(part.replace("%", "%25").replace(".", "%2E").replace(":", "%3A") for part in path)


def format_config_value(value: Any) -> str:
    return "" if value is None else format_spec_value(value)


@lru_cache(64)
def list_config_fields(team: int, newest: int) -> tuple[ConfigField, ...]:
    """What the newest runs of the team were launched with, by name. Specs do not change, so that ``newest``, the number of the team's newest
    run, says how long the answer holds.
    """
    names: set[str] = set()
    for spec in Run.objects.of(team).filter(number__lte=newest).order_by("-number").values_list("spec", flat=True)[:READ_RUNS]:
        names |= read_config_values(spec).keys()
    known = (read_config_field(name) for name in sorted(names) if name not in OWN_COLUMNS)
    return tuple(field for field in known if field)
