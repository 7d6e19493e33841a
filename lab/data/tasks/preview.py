"""The preview of a task: its first rows as a model reads them, and what its reward functions say of answers; worked out in children with limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from pydantic import TypeAdapter, ValidationError

from lab.data.tasks.building import TaskWish, read_rows
from lab.data.tasks.sources import Source
from lab.lib import bounded_process
from lab.lib.child_environment import PREFLIGHT
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team
from lab.training.catalog.catalog import load_catalog
from lab.training.runs import drafts
from lab.training.runs.form_parts import names_in
from lab.training.runs.problem_words import format_problem_sentence, problem_of_report
from lab.training.runs.references import resolve_references
from trainers.contract.problems import SpecError
from trainers.contract.spec import Policy

PREVIEW = "trainers.checks.task_preview:answer_task_preview"
SECONDS = 60  # a tokenizer of a large model takes seconds to load, the built-in one to build
LIMITS = bounded_process.ProcessLimits(seconds=SECONDS, cpu_seconds=SECONDS, memory=8 << 30, result=64 << 20, nice=5)
MEASURED, RENDERED = 100, 4  # rows whose lengths are told, and that are written out
MOST_PASTED, LONGEST_PASTED = 5, 20_000
RUN, FOLDER, HUB = "run:", "folder:", "hub"

children = bounded_process.ForkedChildren(bounded_process.ForkServer(PREFLIGHT), bounded_process.CallSlots(at_once=3, of_one=2))


@dataclass(frozen=True)
class PreviewAsk:
    """``policy``: an input's value; ``completion``: the longest completion in tokens; ``pasted``: answers to be scored too."""

    policy: str = "tiny"
    hub: str = ""
    completion: int = 40
    pasted: tuple[str, ...] = ()
    spec_policy: Mapping[str, Any] | None = None  # in place of an input's value: as a spec names it

    @classmethod
    def read(cls, params: Any) -> PreviewAsk:
        pasted = [text.replace("\0", "")[:LONGEST_PASTED] for text in params.getlist("pasted") if text.strip()]
        return cls(
            params.get("preview_policy", "tiny"),
            params.get("preview_hub", "").strip(),
            parse_whole_number(params.get("preview_completion", ""), 1_000_000, 1) or get_usual_completion(),
            tuple(pasted[:MOST_PASTED]),
        )


def get_usual_completion() -> int:
    """Tokens, as the launch form of GRPO begins with."""
    return int(load_catalog().trainer("grpo")["schema"]["properties"]["max_completion_length"]["default"])


def list_policy_choices(team: Team) -> list[tuple[str, list[tuple[str, str]]]]:
    """Groups of (value, words)."""
    runs = [(f"{RUN}{value}", words) for value, words in drafts.runs_with_policies(team)]
    folders = [(f"{FOLDER}{name}", name) for name in names_in(Path(settings.POLICIES_ROOT), folders=True)]
    groups = [("Models", [("tiny", "Built-in tiny policy"), (HUB, "Hub model in the cache")]), ("Folders", folders), ("Runs", runs)]
    return [(title, choices) for title, choices in groups if choices]


def resolve_policy(team: Team, ask: PreviewAsk) -> dict[str, Any]:
    """As a spec holds it, with paths. Raises Refusal."""
    policy: Mapping[str, Any]
    if ask.spec_policy is not None:
        policy = ask.spec_policy
    elif ask.policy.startswith(RUN):
        run, _, checkpoint = ask.policy.removeprefix(RUN).partition(":")
        step = parse_whole_number(checkpoint)
        policy = {"kind": "run", "run": run, "checkpoint": checkpoint if step is None else step}
    elif ask.policy.startswith(FOLDER):
        policy = {"kind": "folder", "folder": ask.policy.removeprefix(FOLDER)}
    elif ask.policy == HUB:
        policy = {"kind": "hub", "name": ask.hub}
    else:
        policy = {"kind": "tiny", "cold_start": False}
    try:
        resolved = resolve_references(team, {"policy": policy})["policy"]
        return dict(TypeAdapter[Any](Policy).validate_python(resolved).model_dump(mode="json"))
    except SpecError as error:
        raise Refusal(format_problem_sentence(error.problems[0]), field="preview_policy", status=422) from None
    except ValidationError:
        raise Refusal(
            "This is no model.", "Choose one, or enter a hub id as owner/name, such as Qwen/Qwen3-0.6B.", "preview_policy", status=422
        ) from None


def preview_task(team: Team, wish: TaskWish, source: Source, ask: PreviewAsk) -> dict[str, Any]:
    """What ``trainers/checks/task_preview.py`` answers, with the counts of the rows that were read. Raises Refusal."""
    policy = resolve_policy(team, ask)
    *rows, last = read_rows(source, wish.plan, MEASURED)
    asked = {"definition": wish.definition, "rows": rows, "rendered": RENDERED, "answers": list(ask.pasted), "policy": policy}
    try:
        [answer] = children.call(PREVIEW, f"{team.pk}", LIMITS, json.dumps(asked).encode())
    except bounded_process.TooSlow:
        raise Refusal(f"The preview took longer than {SECONDS} s.", "Try again, or with another model or fewer reward functions.") from None
    except bounded_process.ChildFailed as error:
        raise Refusal(f"The preview failed: {error.said}", "Change the rewards or the model.") from None
    except bounded_process.BoundedError as error:
        raise Refusal(f"The preview {error.message}.", f"{error.fix[:1].upper()}{error.fix[1:]}.", status=503) from None
    if answer["problems"]:
        words = format_problem_sentence(problem_of_report(answer["problems"][0]))
        raise Refusal(f"The model cannot be used for a preview: {words}", field="preview_policy", status=422)
    columns = [{**column, "factor": f"{column['weight']:g}"} for column in answer["columns"]]
    return {**answer, "columns": columns, "counts": last["end"]}


def summarize_preview(found: dict[str, Any], ask: PreviewAsk) -> dict[str, Any]:
    """Lengths in tokens against what the model reads and what a completion may be."""
    lengths, references, context = sorted(found["lengths"]), found["references"], found["context"]
    room = None if context is None else context - ask.completion
    return {
        "measured": len(lengths),
        "median": lengths[len(lengths) // 2] if lengths else 0,
        "longest": lengths[-1] if lengths else 0,
        "room": room,
        "too_long": 0 if room is None else sum(length > room for length in lengths),
        "longest_reference": max(references, default=0),
        "cut": sum(count > ask.completion for count in references),
        "unscored": name_unscored_accuracy(found),
    }


def name_unscored_accuracy(found: dict[str, Any]) -> str:
    """The first column, by which a run is called right, where it scores nothing that is shown above 0: no run could learn from it. Else nothing."""
    if not (found["columns"] and found["rows"]):
        return ""
    name: str = found["columns"][0]["name"]
    scores = [answer["scores"].get(name) for row in found["rows"] for answer in row["answers"]]
    return "" if any(score is not None and score > 0 for score in scores) else name
