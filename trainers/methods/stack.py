"""All methods of a run, called as one: each hook in the order given by the methods' roles. Adapters call the stack, never a method directly."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from pydantic import ValidationError

from trainers.attempt.context import Attempt
from trainers.catalog.entries import entries_for
from trainers.contract import refusals, stacking
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import MethodChoice, RunSpec
from trainers.contract.stack_order import in_order
from trainers.methods import registry
from trainers.methods.base import Base, Method, hooks_of
from trainers.methods.context import RunContext
from trainers.methods.history import History

SHAPING = ("rewards", "advantages", "row_advantages", "observe", "token_weights", "log_ratios", "policy_loss", "loss", "curriculum")


class Stack:
    def __init__(self, base: Base, methods: Sequence[Method] = ()) -> None:
        self.base = base
        self.methods: list[Method] = [base, *methods]
        self.history: History | None = None
        self.run: RunContext | None = None

    @property
    def context(self) -> RunContext:
        """The run that the stack was prepared for."""
        assert self.run is not None
        return self.run

    def filling(self, hook: str) -> list[Method]:
        """The methods that implement a hook, in the order they act."""
        found = [method for method in self.methods if hook in hooks_of(type(method))]
        return in_order(found, hook, lambda method: method.roles.get(hook))

    def fills(self, *hooks: str) -> bool:
        return any(self.filling(hook) for hook in hooks)

    @cached_property
    def needs(self) -> frozenset[str]:
        return frozenset(need for method in self.methods for need in method.needs)

    @cached_property
    def shapes_rollouts(self) -> bool:
        """Whether any method uses scored completions; if none does, the work of preparing them is skipped."""
        return any(method.several_rows for method in self.methods) or self.fills(*SHAPING)

    def one(self, hook: str) -> Method | None:
        """The only method that implements ``hook``; None when there is none."""
        found = self.filling(hook)
        return found[-1] if found else None

    def prepare(self, run: RunContext) -> None:
        self.run = run
        for method in self.methods:
            method.prepare(run)

    def data(self, rows: list[Any]) -> list[Any]:
        """What the run trains on. Raises SpecError when a method leaves nothing."""
        for method in self.filling("data"):
            rows = method.data(rows, self.context)
            if not rows:
                raise SpecError([Problem("methods", method.card.name, f"{method.card.name} left no rows to train on", "relax its parameters")])
        self.context.examples = rows
        return rows

    def draw_examples(self, count: int, step: int, key: object) -> list[int] | None:
        """Numbers of the examples that the curricula draw for a batch; None where they leave the order as it is. ``key``: of its random numbers.

        The weights of several methods are multiplied. An example is drawn twice only where too few have a weight above 0.
        """
        if self.history is None:
            return None
        self.history.step = step
        weights = None
        for method in self.filling("curriculum"):
            if (found := method.curriculum(self.history)) is not None:
                weights = found.double() if weights is None else weights * found.double()
        if weights is None or not weights.sum() > 0:
            return None
        generator = torch.Generator().manual_seed(self.context.rng("curriculum", step, key).randrange(2**31))
        enough = int((weights > 0).sum()) >= count
        drawn: list[int] = torch.multinomial(weights, count, replacement=not enough, generator=generator).tolist()
        return drawn

    def collect(self) -> dict[str, float]:
        """What the methods logged since the last call, as ``<method>/<name>``."""
        return {f"{method.card.name}/{name}": value for method in self.methods for name, value in method.collect().items()}

    def state(self) -> dict[str, Any]:
        return {
            "methods": {method.card.name: state for method in self.methods if (state := method.state())},
            "history": self.history.state() if self.history else None,
            "store": self.context.store.state() if self.run is not None else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        for method in self.methods:
            if method.card.name in state["methods"]:
                method.restore(state["methods"][method.card.name])
        if self.history is not None and state["history"] is not None:
            self.history.restore(state["history"])
        if state.get("store"):  # checkpoints of earlier versions have none
            self.context.store.restore(state["store"])

    def gradients(self, model: Any) -> None:
        for method in self.filling("gradients"):
            method.gradients(model)


def build_stack(spec: RunSpec) -> Stack:
    """The stack that a spec asks for. Raises SpecError with every problem found."""
    problems = stacking.check_stack(spec, entries_for(spec)).problems
    if problems:
        raise SpecError(problems)
    base = make_method(stacking.base_choice(spec), "base")
    assert isinstance(base, Base)
    return Stack(base, [make_method(choice, f"methods.{place}") for place, choice in enumerate(spec.methods)])


def make_method(choice: MethodChoice, where: str) -> Method:
    try:
        kind = registry.load_method_class(choice.name)
        return kind(kind.Config.model_validate(choice.config))
    except registry.UnknownMethod:
        raise SpecError([Problem(f"{where}.name", choice.name, "there is no such method", "choose one from the catalogue")]) from None
    except ValidationError as error:
        problems = refusals.problems_of(error, kind.Config)
        raise SpecError([Problem(f"{where}.config.{p.field}", p.value, p.message, p.fix, p.given) for p in problems]) from None


def of_attempt(attempt: Attempt) -> Stack:
    """The prepared stack of a run. Raises SpecError."""
    stack = build_stack(attempt.spec)
    stack.prepare(RunContext(attempt))
    return stack
