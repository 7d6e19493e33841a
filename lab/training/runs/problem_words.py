"""A problem of a spec in words: what the trainers say, with the line of the dataset's file where that is what has to change."""

from __future__ import annotations

from typing import Any

from trainers.contract.spec import Problem
from trainers.contract.suggestions import Remedy, Suggestion

DEFAULT = "the default is "  # how the trainers begin a fix that names it


def problem_of_report(item: dict[str, Any]) -> Problem:
    """One of the problems or warnings in the report of ``preflight``."""
    given = item.get("given", True)
    if "changes" in item:
        return Remedy(item["field"], item["value"], item["message"], item["fix"], given, item["label"], item["changes"])
    if "suggestion" in item:
        return Suggestion(item["field"], item["value"], item["message"], item["fix"], given, item["suggestion"])
    return Problem(item["field"], item["value"], item["message"], item["fix"], given)


def message_of(problem: Problem) -> str:
    """The message; of a dataset with the file's name and the line, but not the folder the lab keeps it in."""
    if problem.field.startswith("dataset.") and problem.field != "dataset.sha256" and isinstance(problem.value, str):
        return f"{problem.value.rpartition('/')[2]}: {problem.message}"
    return problem.message


def format_problem_sentence(problem: Problem) -> str:
    """Message and fix, for a person."""
    text = message_of(problem)
    if text == problem.message:
        text = text[:1].upper() + text[1:]  # the name of a file stays as it is
    if problem.fix.startswith(DEFAULT):
        return f"{text} (default {problem.fix.removeprefix(DEFAULT)})."
    return f"{text}: {problem.fix.removesuffix('.')}." if problem.fix else f"{text}."
