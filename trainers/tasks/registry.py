"""Which tasks there are: the built-in ones and those that installed packages add in the entry-point group ``policy_lab.tasks``.

A plugin that cannot be loaded never takes the lab down: it is left out, logged, and named with its reason when somebody asks for it.
"""

import importlib
import logging
import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from trainers import worlds
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import TaskChoice
from trainers.tasks.base import Task
from trainers.tasks.calendar_days import CalendarDays
from trainers.tasks.kb import Kb
from trainers.tasks.mini_gsm import MiniGsm
from trainers.tasks.trl_rollouts import add_environment_rewards, check_trl_rollouts
from trainers.worlds.base import World

log = logging.getLogger(__name__)

GROUP = "policy_lab.tasks"
BUILT_IN: tuple[type[Task], ...] = (MiniGsm, Kb, CalendarDays)  # one family: a further one would change every cached policy and measured effect


def find_worlds() -> tuple[type[World], ...]:
    """The classes in the modules of ``trainers/worlds`` that have a name, by that name: one file is one world."""
    found = dict[str, type[World]]()
    for module in pkgutil.iter_modules(worlds.__path__):
        for kind in vars(importlib.import_module(f"{worlds.__name__}.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, World) and "name" in vars(kind):
                found[kind.name] = kind
    return tuple(found[name] for name in sorted(found))


WORLDS = find_worlds()  # each is a family of its own


class UnknownTask(LookupError):
    """There is no such task; the message lists those there are."""


@dataclass(frozen=True)
class Registry:
    tasks: dict[str, Task]
    broken: dict[str, str]  # name of the entry point -> why it could not be used


@cache
def load_task_registry() -> Registry:
    """All tasks, loaded once in a process."""
    tasks: dict[str, Task] = {kind.name: kind() for kind in (*BUILT_IN, *WORLDS)}
    broken: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            task = load_task_plugin(entry)
            if task.name in tasks:
                raise TypeError(f"a task named {task.name!r} exists already")
            tasks[task.name] = task
        except Exception as error:  # foreign code at import time: anything can happen in it
            broken[entry.name] = f"{type(error).__name__}: {error}"
            log.warning("task plugin %s (%s) is left out: %s", entry.name, entry.value, broken[entry.name])
    return Registry(tasks, broken)


def load_task_plugin(entry: EntryPoint) -> Task:
    kind = entry.load()
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise TypeError(f"{entry.value} is not a subclass of trainers.tasks.base.Task")
    return make_usable_task(kind, entry.value)


def make_usable_task(kind: type[Task], called: str) -> Task:
    """The task of a class of another package, ``called`` so in messages. Raises TypeError with what it lacks."""
    needed = ("name", "title", "summary", "difficulties", "demonstrations", *(() if kind.trl else ("rewards",)))
    missing = [name for name in needed if not hasattr(kind, name)]
    if missing:
        raise TypeError(f"{called} does not define {', '.join(missing)}")
    if kind.trl is not None and issubclass(kind, World):
        raise TypeError(f"{called} is a world, which the lab plays itself: subclass Task to use trl")
    task = kind()
    check_trl_rollouts(task)
    add_environment_rewards(task)
    if not task.rewards or not task.difficulties:
        raise TypeError(f"{called} needs at least one reward function and one difficulty")
    return task


def all_tasks() -> dict[str, Task]:
    """Every usable task by name, built-in ones first."""
    return dict(load_task_registry().tasks)


def get_task(name: str) -> Task:
    """The task called ``name``. Raises UnknownTask, whose message lists the names there are."""
    found = load_task_registry()
    if name in found.tasks:
        return found.tasks[name]
    reason = f" (its plugin cannot be loaded: {found.broken[name]})" if name in found.broken else ""
    raise UnknownTask(f"there is no task {name!r}{reason}: use one of {', '.join(found.tasks)}")


def find_task_distribution(task: Task) -> Distribution | None:
    """The distribution whose entry point the task is; None for built-in tasks."""
    for entry in entry_points(group=GROUP):
        package = entry.value.partition(":")[0].partition(".")[0]
        if type(task).__module__.partition(".")[0] == package and entry.dist is not None and entry.load() is type(task):
            return entry.dist
    return None


def load_chosen_task(choice: TaskChoice, seed: int = 0) -> Task:
    """The task that a spec chooses: of the file that it names, else the one called so; a world with its options, drawing by the run's ``seed``.

    Raises UnknownTask, and SpecError for a file that is not the one the spec means and for options that the task does not have.
    """
    if choice.file is None:
        return configure_task(get_task(choice.name), choice, seed)
    from trainers.tasks.file_task import load_file_task  # only who trains on a file needs the reward library

    return load_file_task(choice)


def configure_task(task: Task, choice: TaskChoice, seed: int) -> Task:
    if isinstance(task, World):
        try:
            return type(task)(choice.options, seed)
        except ValidationError as error:
            raise SpecError([name_wrong_option(task, problem) for problem in error.errors(include_url=False)]) from None
    if choice.options:
        raise SpecError([Problem("task.options", choice.options, f"{task.name} has no options", "leave them out, or choose a world")])
    return task


def name_wrong_option(task: World, problem: Any) -> Problem:
    name = ".".join(map(str, problem["loc"]))
    fix = f"{task.name} has {', '.join(task.Config.model_fields) or 'none'}"
    return Problem(f"task.options.{name}", problem["input"], problem["msg"], fix)
