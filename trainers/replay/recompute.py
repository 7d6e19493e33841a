"""What-if replay: the hooks of a recipe on the tensors that a run stored. No model is loaded.

A request is a spec (with the base and the methods to replay) and stored rollouts of whole generation batches; the answer says for each rollout the
reward and the advantage after every method and, token by token, advantages and weights. What training would do with them inside the loss (its ratio,
its clip, its KL penalty) is not replayed. Deterministic: the same request gives the same answer.

Advantages equal those of training to float32. Token weights are worked out from log-probabilities and entropies as they are stored, in float16: a
method's weight is off by what 5e-4 of them (relative) makes of it, and a token on the edge of a threshold may fall on its other side.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

import msgspec
import torch
from torch import Tensor

from trainers.adapters.micro_batch import weights_of
from trainers.adapters.rollouts import GenerationBatch
from trainers.adapters.scoring import advantages_of
from trainers.contract import arrays
from trainers.contract.hyperparameters import GRPO
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import parse_spec
from trainers.methods import stack as stacks
from trainers.methods.base import Method, hooks_of
from trainers.methods.batch import RolloutBatch
from trainers.methods.stack import Stack
from trainers.replay.stored_batch import StoredRecipe, StoredRollout, batch_of, plain_advantages, slice_of, split_loss_slices
from trainers.replay.stored_run import MissingDataError, StoredExamples, StoredRun
from trainers.rewards.columns import compose_task
from trainers.tasks import registry

REPLAYED = ("rewards", "advantages", "token_weights")
LEFT_OUT = {
    "data": "it prepares the training data; the stored prompts stay as they are",
    "curriculum": "it chooses prompts; the stored ones stay",
    "prompts": "it rewrites prompts; the stored ones stay",
    "rollout": "it decides how completions are sampled; the stored ones stay, and what it noted about them is not stored",
    "row_advantages": "it gives turns and branches their own advantages; the tree of an episode is not replayed",
    "observe": "it remembers for later steps and changes nothing in this one",
    "log_ratios": "it defines the importance ratio inside the loss, which needs the policy",
    "policy_loss": "it replaces the policy gradient inside the loss, which needs the policy: the advantages are only part of what it does",
    "loss": "it adds a term to the loss, which needs the policy",
    "gradients": "it changes gradients, which needs the policy",
    "reference": "it moves the reference policy",
}
HIDDEN = "needs hidden states of the policy, which are not stored"
NO_REFERENCE = "needs log-probabilities of the reference policy; this run stored none"
LOGITS = "needs the policy's whole distribution at every token, which is not stored"


class ReplayRequest(msgspec.Struct, frozen=True):
    spec: dict[str, Any]
    rollouts: list[StoredRollout]


@dataclass
class ReplayedBatch:
    """A generation batch: G rollouts of each of its groups, one group after the other."""

    stored: list[StoredRollout]
    batch: RolloutBatch
    reported: GenerationBatch
    weights: Tensor | None = None  # (B, T)


def answer_replay_request(request: ReplayRequest) -> dict[str, Any]:
    """The answer as JSON. Raises SpecError with the reason for every method that cannot be replayed on these rollouts."""
    recipe = prepare_recipe(request.spec)
    torch.manual_seed(recipe.spec.seed)
    found = [replay_batch(recipe, rows) for rows in group_stored_batches(recipe, request.rollouts)]
    if not found:
        raise SpecError([Problem("rollouts", len(request.rollouts), "no group is stored with all its members", "choose another step or group")])
    return {
        "ok": True,
        "notes": recipe.notes,
        "scale": recipe.scale,
        "methods": [said_of(method) for method in recipe.stack.methods],
        "rollouts": [build_rollout_outcome(one, row) for one in found for row in range(len(one.stored))],
    }


def prepare_recipe(data: dict[str, Any]) -> StoredRecipe:
    """Raises SpecError."""
    spec = parse_spec(data)
    if not isinstance(spec.training, GRPO):
        raise SpecError([Problem("training.trainer", spec.training.trainer, "only GRPO's advantages can be replayed", "choose a GRPO run")])
    try:
        task = compose_task(registry.load_chosen_task(spec.task, spec.seed), spec)
    except registry.UnknownTask as error:
        raise SpecError([Problem("task.name", spec.task.name, str(error), "install it where this runs")]) from None
    stack = stacks.build_stack(spec)
    stack.run = StoredRun(spec, task)
    for method in stack.methods:
        replays = set(REPLAYED) & set(hooks_of(type(method)))
        if replays and "hidden" in method.needs:
            raise make_replay_error(stack, method, HIDDEN)
        try:
            method.prepare(stack.context)
        except Exception as error:
            if replays:
                raise error_from_hook_failure(stack, error) from error
    settings: dict[str, Any] = {"scale_rewards": "group", "epsilon": spec.training.epsilon} | stack.base.arguments()
    epsilon = (settings["epsilon"], settings.get("epsilon_high") or settings["epsilon"])
    return StoredRecipe(spec, spec.training, stack, StoredExamples(spec, task), settings["scale_rewards"], epsilon)


def error_from_hook_failure(stack: Stack, error: Exception) -> SpecError:
    """Names the method in whose hook the error was raised, and what it lacks."""
    frames = [frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__)]
    guilty = next((method for method in frames if isinstance(method, Method) and method in stack.methods), None)
    if guilty is None:
        return SpecError([Problem("methods", "", str(error), "choose other parameters", given=False)])
    if isinstance(error, MissingDataError):
        return make_replay_error(stack, guilty, str(error))
    # A hook that met None where training has tensors.
    lacking = [why for need, why in (("logits", LOGITS), ("reference", NO_REFERENCE)) if need in guilty.needs]
    return make_replay_error(stack, guilty, lacking[0] if lacking else f"fails there ({type(error).__name__}: {str(error)[:200]})")


def make_replay_error(stack: Stack, method: Method, why: str) -> SpecError:
    place = stack.methods.index(method)
    where = f"methods.{place - 1}.name" if place else "base.name"
    return SpecError([Problem(where, method.card.name, f"cannot be replayed on stored rollouts: it {why}", "take it out, or train with it")])


def group_stored_batches(recipe: StoredRecipe, stored: Sequence[StoredRollout]) -> list[list[StoredRollout]]:
    """The generation batches among the rollouts, each G members of group after group; what is not complete is left out and noted."""
    size, count = recipe.training.num_generations, recipe.training.prompts_per_batch()
    members: dict[int, dict[int, StoredRollout]] = defaultdict(dict)
    for one in stored:
        members[one.group][one.sample] = one
    found: dict[int, list[StoredRollout]] = defaultdict(list)
    for group in sorted(members):
        own = members[group]
        if set(own) == set(range(size)):
            found[group // count] += [own[sample] for sample in range(size)]
        else:
            recipe.notes.append(f"group {group} is left out: {len(own)} of its {size} members are stored")
    for number, rows in found.items():
        if len(rows) != size * count and (recipe.scale == "batch" or recipe.stack.fills("token_weights")):
            recipe.notes.append(f"batch {number + 1} is not whole: what is worked out over a whole batch may differ from training")
    return [found[number] for number in sorted(found)]


def replay_batch(recipe: StoredRecipe, rows: list[StoredRollout]) -> ReplayedBatch:
    """Raises SpecError when stored rollouts are not enough for a hook."""
    batch, stack = batch_of(recipe, rows), recipe.stack
    reported = GenerationBatch(batch.examples, batch.prompts, batch.texts, [], {})
    made = ReplayedBatch(rows, batch, reported)
    try:
        advantages = advantages_of(stack, batch, plain_advantages(batch, recipe.scale), recipe.scale, reported)
        if methods := stack.filling("token_weights"):
            made.weights = torch.ones_like(batch.mask)
            for chosen in split_loss_slices(rows, recipe.training.per_device_train_batch_size):
                made.weights[chosen] = weights_of(methods, slice_of(recipe, batch, advantages, torch.tensor(chosen), rows[chosen[0]].step))
    except SpecError:
        raise
    except Exception as error:
        raise error_from_hook_failure(stack, error) from error
    return made


def said_of(method: Method) -> dict[str, Any]:
    """Which hooks of a method were replayed, and which were not and why."""
    hooks = hooks_of(type(method))
    done = [hook for hook in hooks if hook in REPLAYED]
    return {
        "name": method.card.name,
        "replayed": done,
        "skipped": [{"hook": hook, "why": LEFT_OUT[hook]} for hook in hooks if hook in LEFT_OUT],
        "state": "it remembers across steps; here its memory starts empty" if type(method).state is not Method.state and done else "",
    }


def build_rollout_outcome(one: ReplayedBatch, row: int) -> dict[str, Any]:
    """Advantage (its mean over tokens) after every method, rewards after those that shape them, arrays (T,) as they are stored (empty: all alike)."""
    count = len(arrays.unpack_array(one.stored[row].ids))
    own = one.reported.token_advantages
    return {
        "id": one.stored[row].id,
        "advantage": one.reported.advantages[row],
        "contributions": {name: values[row] for name, values in one.reported.contributions.items()},
        "shaped": {name: values[row] for name, values in one.reported.shaped.items()},
        "token_advantages": b"" if own is None else arrays.pack_array(own[row, :count], "e"),
        "weights": b"" if one.weights is None else arrays.pack_array(one.weights[row, :count].numpy(), "e"),
    }
