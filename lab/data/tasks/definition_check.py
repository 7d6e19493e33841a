"""What the trainers say of a task's reward functions before a version of it is made, asked in a child as a preflight is."""

from __future__ import annotations

import json
from typing import Any

from lab.data.tasks.task_form import TaskForm
from lab.lib import bounded_process
from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.teams.accounts.models import Team
from lab.training.runs import preflight
from lab.training.runs.problem_words import format_problem_sentence, problem_of_report

CHECK = "trainers.checks.task_definition:answer_definition_check"
CONFIG = "definition.config."


def find_definition_problems(team: Team, definition: dict[str, Any]) -> list[dict[str, Any]]:
    """As a preflight reports them. Raises Refusal where nobody could say."""
    try:
        [problems] = preflight.children.call(CHECK, f"{team.pk}", preflight.LIMITS, json.dumps(definition).encode())
    except bounded_process.BoundedError as error:
        raise Refusal(f"The reward functions could not be checked: the check {error.message}.", f"{error.fix[:1].upper()}{error.fix[1:]}.") from None
    return list(problems)


def check_form_definition(form: TaskForm, definition: dict[str, Any]) -> bool:
    """Whether nothing is wrong; else each problem is shown at its input. Raises Refusal."""
    problems = find_definition_problems(form.team, definition)
    for item in problems:
        _, number, field = item["field"].split(".", 2)
        reward = form.rewards[int(number)]
        name, words = field.removeprefix(CONFIG).partition(".")[0], format_problem_sentence(problem_of_report(item))
        if field.startswith(CONFIG) and name in reward.form.fields:
            reward.form.add_error(name, words)
            reward.errors["config"] = words
        else:
            reward.errors["choice"] = words
    return not problems


def refuse_wrong_definition(team: Team, definition: dict[str, Any]) -> None:
    """For those who send a whole definition. Raises InputRefusal and Refusal."""
    if problems := find_definition_problems(team, definition):
        raise InputRefusal([Problem(item["field"], item["message"], item["fix"]) for item in problems])
