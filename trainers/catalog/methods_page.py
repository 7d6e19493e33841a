"""The methods as text: a table and one in full for the terminal, and docs/methods.md. From the catalogue's entries, so without torch."""

from collections.abc import Iterator
from typing import Any

from trainers.contract.stacking import DEFAULT_BASES

Entry = dict[str, Any]

GROUPS = {
    "bases": "Bases of recipes",
    "group": "Groups of completions",
    "tokens": "Tokens",
    "prompts": "Prompts and curriculum",
    "pairs": "Pairs",
    "worlds": "Multi-turn environments",
    "analysis": "Analysis",
    "installed": "From other packages",
}

INTRODUCTION = """# Methods

Generated from the catalogue by `python -m trainers methods --markdown`; do not edit. Each method is one file under `trainers/methods/`, and each
has a page in the lab with the team's runs that used it and its measured effects.

A recipe has one base and any number of methods:

```
.venv/bin/python manage.py launch grpo --base gspo --method rs-grpo:risk=3 --method siren
```

Where the order of methods affects the result, their roles decide it, not the recipe: a method *makes* a new value (advantages, rewards, training
data, the margin of a pair), *maps* the value it receives, or *gates* it. Makers run first, then maps, then gates; what a gate excludes gets no
gradient in any pass. Only methods with the same role run in the recipe's order. Two methods that decide or make the same thing cannot be stacked; the
preflight says which and why."""


def describe_provenance(entry: Entry) -> str:
    """As published in code or in the paper, published with departures, or our reading of an abstract."""
    if entry["provenance"] == "abstract":
        return "our interpretation"
    return f"with departures ({entry['provenance']})" if entry["departures"] else f"as published ({entry['provenance']})"


def format_trainers(entry: Entry) -> str:
    return ", ".join([entry["trainer"]] if entry["trainer"] else entry["trains"])


# For the terminal.


def format_methods_table(entries: list[Entry]) -> str:
    """name, group, trainers and title of each, in columns."""
    rows = [("NAME", "GROUP", "TRAINERS", "TITLE"), *((entry["name"], entry["group"], format_trainers(entry), entry["title"]) for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*(row[column].ljust(width) for column, width in enumerate(widths)), row[3]]) for row in rows)


def in_full(entry: Entry) -> str:
    """Everything the catalogue says about one method."""
    lines = [f"{entry['title']} ({entry['name']})", entry["idea"], ""]
    facts = [("system", entry["system"]), ("trainers", format_trainers(entry)), ("builds on", entry["base"]), ("paper", build_paper_url(entry))]
    facts += [
        ("source", entry["source"]),
        ("formula", describe_provenance(entry)),
        ("our interpretation", entry["reading"]),
        ("hooks", ", ".join(entry["hooks"])),
    ]
    facts += [("departures", text) for text in entry["departures"]]
    facts += [("decides", ", ".join(entry["owns"])), ("acts", format_roles(entry)), ("needs", ", ".join(entry["needs"]))]
    facts += [("conflicts with", f"{name}{f': {why}' if why else ''}") for name, why in entry["excludes"].items()]
    facts += [("with", f"{name}: {why}") for name, why in entry["cautions"].items()]
    facts += [("requires", "; ".join(format_requirement(need) for need in entry["requires"]))]
    facts += [("worlds", " or ".join(entry["worlds"]))]
    facts += [
        ("claim", f"{entry['claim']['metric']} {entry['claim']['direction']}"),
        ("draws", ", ".join(panel["title"] for panel in entry["panels"])),
    ]
    lines += [f"{name:<12} {value}" for name, value in facts if value]
    lines += ["", *(f"    {latex}" for latex in entry["formula"])]
    parameters = list(parameters_of(entry))
    if parameters:
        lines += ["", "parameters"]
        lines += [f"    {name} = {default}{f'  ({bounds})' if bounds else ''}\n        {text}" for name, default, bounds, text in parameters]
    lines += ["", entry["summary"]]
    return "\n".join(lines)


def format_roles(entry: Entry) -> str:
    """What it does with what comes in, which decides when it acts in a stack: ``maps rewards, gates advantages``."""
    return ", ".join(f"{role} {hook.replace('_', ' ')}" for hook, role in entry["roles"].items())


def build_paper_url(entry: Entry) -> str:
    return f"https://arxiv.org/abs/{entry['arxiv']}" if entry["arxiv"] else ""


def format_requirement(need: Entry) -> str:
    return f"{need['field']} {need['holds']} {need['value']} ({need['why']})"


def parameters_of(entry: Entry) -> Iterator[tuple[str, str, str, str]]:
    """(name, default, bounds in words, help) of each parameter."""
    for name, part in entry["parameters"].get("properties", {}).items():
        inner = next((option for option in part.get("anyOf", [part]) if option.get("type") != "null"), part)
        inner = {**inner, **part}
        words = [f"{sign} {inner[key]}" for key, sign in BOUNDS if key in inner]
        words += [" or ".join(str(value) for value in inner["enum"])] if "enum" in inner else []
        default = "required" if "default" not in part else "none" if part["default"] is None else str(part["default"])
        yield name, default, ", ".join(words), part.get("description", "")


BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))


# docs/methods.md


def render_methods_markdown(entries: list[Entry]) -> str:
    parts = [INTRODUCTION, summary_table(entries)]
    for group, title in GROUPS.items():
        chosen = [entry for entry in entries if entry["group"] == group]
        if chosen:
            parts += [f"## {title}", *(render_method_section(entry) for entry in chosen)]
    return "\n\n".join(parts) + "\n"


def summary_table(entries: list[Entry]) -> str:
    rows = []
    for entry in entries:
        hooks = ", ".join(entry["hooks"]) or "–"
        rows.append(
            f"| [{entry['name']}](#{make_heading_anchor(entry)}) | {escape_table_cell(entry['title'])} | "
            f"{format_trainers(entry)} | {hooks} | {describe_provenance(entry)} |"
        )
    return "\n".join(["| method | title | trainers | hooks | formula |", "|---|---|---|---|---|", *rows])


def make_heading_anchor(entry: Entry) -> str:
    """As GitHub makes it of the heading, which is the name."""
    return "".join(letter for letter in entry["name"].lower() if letter.isalnum() or letter in "-_")


def render_method_section(entry: Entry) -> str:
    head = f"### {entry['name']}\n**{entry['title']}**" + (f" ({entry['system']})" if entry["system"] else "")
    by_default = [trainer for trainer, base in DEFAULT_BASES.items() if base == entry["name"]]
    facts = [f"{format_trainers(entry)}", describe_provenance(entry)]
    facts += [f"[arXiv {entry['arxiv']}]({build_paper_url(entry)})"] if entry["arxiv"] else []
    facts += [f"builds on {entry['base']}"] if entry["base"] and entry["base"] != entry["name"] else []
    facts += [f"decides the {', the '.join(entry['owns'])}"] if entry["owns"] else []
    facts += [format_roles(entry)] if entry["roles"] else []
    facts += [f"conflicts with {', '.join(entry['excludes'])}"] if entry["excludes"] else []
    facts += [f"in the world {' or '.join(entry['worlds'])}"] if entry["worlds"] else []
    facts += [f"the default base of {trainer}" for trainer in by_default]
    parts = [head, entry["idea"], " · ".join(facts)]
    if entry["formula"]:
        parts.append("\n\n".join(f"```math\n{latex}\n```" for latex in entry["formula"]))
    if entry["reading"]:
        parts.append(f"Our interpretation: {entry['reading']}")
    if entry["departures"]:
        parts.append("\n".join(["Departures:", *(f"- {text}" for text in entry["departures"])]))
    rows = [
        f"| `{name}` | {escape_table_cell(default)} | {escape_table_cell(bounds) or '–'} | {escape_table_cell(text)} |"
        for name, default, bounds, text in parameters_of(entry)
    ]
    if rows:
        parts.append("\n".join(["| parameter | default | bounds | what it does |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def escape_table_cell(text: str) -> str:
    """Text that does not end a cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
