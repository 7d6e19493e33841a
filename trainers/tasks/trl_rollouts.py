"""A task that is answered in TRL's own ways of several turns: tools, environments, or a rollout function, as GRPOTrainer takes them.

    trl = TRLRollouts(tools=(multiply,))
    trl = TRLRollouts(environment_factory=Wordle)
    trl = TRLRollouts(rollout_func=play)

They are handed on to TRL as they are. Pure Python: nothing of the user's is called here, only looked at.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from trainers.contract.spec import HUMAN

if TYPE_CHECKING:
    from trainers.tasks.base import Example, Reward, Task

EnvironmentFactory = Callable[[], Any]
RESET, REWARD = "reset", "get_reward"  # TRL's names: every other public method of an environment is a tool


@dataclass(frozen=True)
class TRLRollouts:
    """``tools``, ``environment_factory`` and ``rollout_func`` of TRL's GRPOTrainer; a rollout function stands alone.

    The factory is an environment's class, or a function annotated with the class it returns, so that its methods are known before one is built; or a
    mapping of such ones by the name that the ``environment`` of an example's data says.
    """

    tools: Sequence[Callable[..., Any]] = ()
    environment_factory: EnvironmentFactory | Mapping[str, EnvironmentFactory] | None = None
    rollout_func: Callable[[list[Any], Any], Mapping[str, Any]] | None = None

    @property
    def calls_tools(self) -> bool:
        return self.rollout_func is None

    @property
    def factories(self) -> Mapping[str, EnvironmentFactory]:
        """By name; "" where there is only one."""
        factory = self.environment_factory
        if factory is None:
            return {}
        return factory if isinstance(factory, Mapping) else {"": factory}

    @property
    def argument_name(self) -> str:
        """What TRL calls it, for messages."""
        if self.rollout_func is not None:
            return "rollout_func"
        return "tools" if self.environment_factory is None else "environment_factory"


def find_environment_class(factory: EnvironmentFactory) -> type:
    """What ``factory`` makes. Raises TypeError where that cannot be seen without calling it."""
    if isinstance(factory, type):
        return factory
    if isinstance(factory, functools.partial):
        return find_environment_class(factory.func)
    made = get_type_hints(factory).get("return") if inspect.isfunction(factory) or inspect.ismethod(factory) else None
    if not isinstance(made, type) or made is type(None):
        raise TypeError("environment_factory must be a class, or a function whose return annotation is one: def make() -> MyEnvironment")
    return made


def list_environment_classes(rollouts: TRLRollouts) -> list[type]:
    """Each once, in the order of the factories."""
    return list(dict.fromkeys(find_environment_class(factory) for factory in rollouts.factories.values()))


def check_trl_rollouts(task: "Task") -> None:
    """Raises TypeError with what keeps the task's way from being TRL's."""
    rollouts = task.trl
    if rollouts is None:
        return
    if not isinstance(rollouts, TRLRollouts):
        raise TypeError(f"trl is a {type(rollouts).__name__}: make it a TRLRollouts")
    for problem in find_contradictions(rollouts, task.max_turns):
        raise TypeError(f"trl: {problem}")
    for name, factory in rollouts.factories.items():
        if not callable(factory):
            raise TypeError(f"trl: the environment_factory {name!r} cannot be called")
        kind = find_environment_class(factory)
        if not callable(getattr(kind, RESET, None)):
            raise TypeError(f"trl: {kind.__name__} has no method {RESET}")
    for tool in rollouts.tools:
        check_tool(tool)
    names = [tool.__name__ for tool in rollouts.tools]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise TypeError(f"trl: two tools are called {repeated[0]}")


def find_contradictions(rollouts: TRLRollouts, max_turns: int) -> Iterator[str]:
    tooled = bool(rollouts.tools) or rollouts.environment_factory is not None
    if rollouts.rollout_func is not None:
        if tooled:
            yield "a rollout_func generates by itself: give no tools and no environment_factory beside it"
        if not callable(rollouts.rollout_func):
            yield "rollout_func cannot be called"
        return
    if not tooled:
        yield "give tools, an environment_factory or a rollout_func"
    if rollouts.environment_factory is not None and not rollouts.factories:
        yield "environment_factory is empty"
    if max_turns < 2:
        yield f"max_turns is {max_turns}, so no tool would ever be called: set it to the most turns of the policy"


def check_tool(tool: Callable[..., Any]) -> None:
    """TRL tells the policy a tool's name, docstring and annotations. Raises TypeError where one is missing."""
    name = getattr(tool, "__name__", "")
    if not callable(tool) or not name.isidentifier():
        raise TypeError(f"trl: the tool {tool!r} has no name: write it as a function (def)")
    if not inspect.getdoc(tool):
        raise TypeError(f"trl: the tool {name} has no docstring: say what it does, and its arguments under Args:")
    bare = [one.name for one in inspect.signature(tool).parameters.values() if one.annotation is inspect.Parameter.empty]
    if bare:
        raise TypeError(f"trl: the tool {name} has no type for {', '.join(bare)}: annotate it")


def build_environment_rewards(rollouts: TRLRollouts) -> "dict[str, Reward]":
    """A column of weight 1 for every environment that says its own reward, named after its class as TRL names it."""
    from trainers.tasks.base import Reward

    kinds = [kind for kind in list_environment_classes(rollouts) if callable(getattr(kind, REWARD, None))]
    return {kind.__name__: Reward(say_nothing, f"What {kind.__name__}.{REWARD} says of the episode.", 1.0) for kind in kinds}


def say_nothing(text: str, example: "Example") -> float | None:
    """An environment speaks of the state that an episode ended in; of a text alone it has no opinion."""
    return None


def add_environment_rewards(task: "Task") -> None:
    """Gives a task the columns of its environments. Raises TypeError for a name that is taken, or where there is no reward at all."""
    if task.trl is None:
        return
    own = getattr(task, "rewards", {})
    added = build_environment_rewards(task.trl)
    if taken := sorted({*own, HUMAN} & {*added}):
        raise TypeError(f"trl: the environment {taken[0]} has the name of a reward function: rename one of them")
    task.rewards = {**own, **added}
