"""A definition checked and tried in a child of its own: with limits on time and memory, never in the web process.

The children are the preflight's, with shorter limits. Python that people wrote is run by the child's sandbox (``trainers/sandbox``).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from lab.lib import bounded_process
from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.teams.accounts.models import Team
from lab.training.runs import preflight
from lab.training.runs.problem_words import format_problem_sentence, problem_of_report
from trainers.contract.refusals import problems_of
from trainers.contract.reward_definitions import RewardColumn, has_code

CHECK, TRIAL = "trainers.rewards.trials:answer_definition_check", "trainers.rewards.trials:answer_trial"
SECONDS = 10
LIMITS = replace(preflight.LIMITS, seconds=SECONDS, cpu_seconds=SECONDS, memory=4 << 30, result=4 << 20)
MOST_ROWS, LONGEST = 8, 20_000  # rows of a try, characters of each text
ROOT = "definition"


def parse_definition(given: Any) -> Any:
    """The definition as the contract's model. Raises InputRefusal with the path of each problem below ``definition``."""
    try:
        return RewardColumn.model_validate({"name": "reward", "definition": given}).definition
    except ValidationError as error:
        problems = [Problem(drop_kinds(problem.field, given), format_problem_sentence(problem)) for problem in problems_of(error, RewardColumn)]
        raise InputRefusal(problems) from None


def drop_kinds(path: str, given: Any) -> str:
    """The path without the kinds that pydantic puts between keys: ``definition.sum.parts.0`` is ``definition.parts.0``."""
    found: list[str] = []
    part: Any = {ROOT: given}
    dropped = False
    for word in path.split("."):
        if not dropped and isinstance(part, dict) and part.get("kind") == word:
            dropped = True
            continue
        found.append(word)
        dropped = False
        if isinstance(part, list):
            part = part[int(word)] if word.isdigit() and int(word) < len(part) else None
        else:
            part = part.get(word) if isinstance(part, dict) else None
    return ".".join(found)


def refuse_wrong_definition(team: Team, given: Any) -> dict[str, Any]:
    """The complete definition. Raises InputRefusal for what is wrong with it, and Refusal where nobody could say."""
    definition = parse_definition(given).model_dump(mode="json")
    report = ask_child(team, CHECK, definition, "check")
    if report:
        raise InputRefusal([Problem(item["field"], format_problem_sentence(problem_of_report(item))) for item in report])
    return dict(definition)


def contains_code(definition: dict[str, Any]) -> bool:
    return has_code(parse_definition(definition))


def try_definition(team: Team, definition: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """``{"scores": [{"value", "error", "seconds"}], "seconds"}`` of at most MOST_ROWS rows (completion, reference, data).

    Raises InputRefusal and Refusal.
    """
    answer = ask_child(team, TRIAL, {"definition": definition, "rows": rows[:MOST_ROWS], "seconds": SECONDS - 1}, "try")
    if not answer["ok"]:
        raise InputRefusal([Problem(item["field"], format_problem_sentence(problem_of_report(item))) for item in answer["problems"]])
    return dict(answer)


def ask_child(team: Team, function: str, data: Any, noun: str) -> Any:
    try:
        [answer] = preflight.children.call(function, f"{team.pk}", LIMITS, json.dumps(data).encode())
        return answer
    except bounded_process.TooSlow:
        raise Refusal(
            f"The {noun} took longer than {SECONDS} s.", "Try fewer or shorter completions, or make the function faster.", status=422
        ) from None
    except bounded_process.TooMuchMemory:
        raise Refusal(f"The {noun} needs more than {LIMITS.memory >> 30} GiB of memory.", "Make the function need less.", status=422) from None
    except bounded_process.ChildFailed as error:
        raise Refusal(f"The {noun} failed: {error.said[:300]}", status=422) from None
    except bounded_process.BoundedError as error:
        raise Refusal(f"The {noun} {error.message}.", f"{error.fix[:1].upper()}{error.fix[1:]}.", status=503) from None
