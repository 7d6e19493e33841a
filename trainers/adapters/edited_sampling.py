"""What an edit changes between two generation batches of sampled groups: the sampling temperature, the weights of rewards, and the mix of prompts."""

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from trainers.contract.edits import MIX
from trainers.contract.hyperparameters import GroupRollouts
from trainers.policies.sampling import as_rows

if TYPE_CHECKING:
    from trainers.adapters.groups import GroupAdapter

HELD = "temperature"  # name under which TRL's fused head keeps it


def find_fused_heads(trainer: "GroupAdapter") -> list[FunctionType]:
    """TRL's forward passes that divide logits by the temperature: of the policy and, where there is one, of the reference."""
    policy = trainer.model.get_base_model() if hasattr(trainer.model, "peft_config") else trainer.model
    models = [model for model in (policy, trainer.ref_model) if model is not None]
    forwards = [getattr(model, "_original_forward", model.forward) for model in models]  # accelerate may have wrapped it
    return [getattr(forward, "__func__", forward) for forward in forwards]


def change_temperature(trainer: "GroupAdapter", temperature: float) -> None:
    """From the next generation batch; the ratios of a batch are formed at the temperature it was sampled with."""
    trainer.temperature = temperature
    for head in trainer.fused_heads:  # the temperature is a variable of the function that made it, and nothing else holds it
        assert head.__closure__ is not None
        head.__closure__[head.__code__.co_freevars.index(HELD)].cell_contents = temperature
    if trainer.use_vllm:
        trainer.vllm_generation.temperature = temperature
    else:
        trainer.generation_config.temperature = temperature
        trainer.generation_kwargs["temperature"] = temperature


class PromptMix:
    """How often a group's prompt is of which difficulty. Until an edit says otherwise all are of the run's, in the order of its data."""

    def __init__(self, trainer: "GroupAdapter") -> None:
        self.trainer = trainer
        self.own: str = trainer.attempt.spec.task.difficulty
        self.weights = {name: float(name == self.own) for name in trainer.task.difficulties}
        self.pools: dict[str, range] = {}  # difficulty -> numbers of its examples; the run's own are drawn in their order

    def change(self, changes: Mapping[str, float]) -> None:
        if found := {name.removeprefix(MIX): value for name, value in changes.items() if name.startswith(MIX)}:
            self.weights = {**self.weights, **found}
            self.load_pools()

    def load_pools(self) -> None:
        """Examples of every other difficulty, in the task's order, so that they have the same numbers after a resume."""
        if self.pools:
            return
        trainer, spec = self.trainer, self.trainer.attempt.spec
        assert isinstance(spec.training, GroupRollouts)
        for name in self.weights:
            if name != self.own:
                more = trainer.task.examples("train", spec.training.prompts, spec.seed, name)
                self.pools[name] = range(len(trainer.examples), len(trainer.examples) + len(more))
                trainer.examples += more
        trainer.stack.context.examples = trainer.examples  # where methods look examples up by their numbers

    def draw(self, rows: Sequence[dict[str, Any]], group: int, step: int) -> None:
        """Gives groups examples of other difficulties, by the weights; which ones depends only on the seed and the batch."""
        if not self.pools:
            return
        trainer, names = self.trainer, list(self.weights)
        rng = trainer.scoring.run.rng("mix", step, trainer._step)
        taken: set[int] = set()
        for start in range(0, len(rows), group):
            [name] = rng.choices(names, [self.weights[one] for one in names])
            if name == self.own:
                continue
            pool = self.pools[name]
            free = [number for number in pool if number not in taken] if len(taken) < len(pool) else list(pool)
            number = rng.choice(free)
            taken.add(number)
            for row in rows[start : start + group]:
                row["example"] = number
                row["prompt"] = as_rows(trainer.examples[number].prompt)
