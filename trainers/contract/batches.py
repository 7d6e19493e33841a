"""Batch arithmetic: what a spec's numbers mean in sequences, prompts and tokens, on the devices of all its processes together."""

import math
from collections.abc import Mapping

from trainers.contract.hyperparameters import GKD, KTO, Demonstrated, GroupRollouts, OnlineDPO, Preferences, Procedure, Rollouts
from trainers.contract.spec import RunSpec

Figures = dict[str, int | float]
ALTERNATIVE_BYTES, RANK_BYTES = 8, 2  # stored at each token: id, log-probability and text of an alternative, deflated; the rank of the sampled token


def compute_batch_figures(spec: RunSpec, rows: int | None = None, available: Mapping[str, int] | None = None) -> Figures:
    """Named numbers in reading order; ``rows`` is the size of the run's own dataset, None when the task supplies the data. ``available``: how many
    prompts the task has, by split; None where it makes as many as are wanted.
    """
    available, batch = available or {}, spec.training.per_device_train_batch_size * spec.resources.processes
    training = spec.training.model_copy(update={"per_device_train_batch_size": batch})
    if rows is None and isinstance(training, GroupRollouts | OnlineDPO | Procedure) and "train" in available:
        rows = min(training.prompts, available["train"])  # beyond these they are the same ones again
    if isinstance(training, GroupRollouts):
        found = compute_group_figures(training, rows)
    elif isinstance(training, OnlineDPO):
        found = compute_online_figures(training, rows)
    elif isinstance(training, Procedure):
        found = compute_procedure_figures(training, rows)
    elif isinstance(training, Preferences):
        found = compute_preference_figures(training, rows)
    else:
        found = compute_sft_figures(training, rows)
    found = {"steps": training.max_steps} | found | compute_heldout_figures(spec, available.get("heldout"))
    return found | compute_alternatives_figures(spec, found)


def compute_sft_figures(training: Demonstrated, rows: int | None) -> Figures:
    sequences = training.per_device_train_batch_size * training.gradient_accumulation_steps
    count = training.demonstrations if rows is None else rows
    return {
        "demonstrations": count,
        "sequences_per_step": sequences,
        "tokens_per_step_at_most": sequences * training.max_length,
        "epochs": round(training.max_steps * sequences / max(count, 1), 2),
    }


def compute_group_figures(training: GroupRollouts, rows: int | None) -> Figures:
    completions = training.per_device_train_batch_size * training.gradient_accumulation_steps
    size, group = training.generation_batch_size(), training.num_generations
    micro_batches = training.max_steps * training.gradient_accumulation_steps
    # A generation batch is used up after its micro-batches have been passed over num_iterations times.
    batches = math.ceil(micro_batches * training.per_device_train_batch_size / (size * training.num_iterations))
    count = training.prompts if rows is None else rows
    return {
        "prompts": count,
        "prompts_per_step": round(completions / group, 2),
        "completions_per_step": completions,
        "generation_batch": size,
        "prompts_per_generation_batch": size // group,
        "tokens_per_step_at_most": completions * training.max_completion_length,
        "total_rollouts": batches * size,
        "epochs": round(batches * (size // group) / max(count, 1), 2),
    }


def compute_procedure_figures(training: Procedure, rows: int | None) -> Figures:
    size, prompts = training.generation_batch_size(), training.prompts_per_batch()
    count = training.prompts if rows is None else rows
    return {
        "prompts": count,
        "prompts_per_step": prompts,
        "completions_per_step": size,
        "tokens_per_step_at_most": size * training.max_completion_length,
        "total_rollouts": training.max_steps * size,
        "epochs": round(training.max_steps * prompts / max(count, 1), 2),
    }


def compute_online_figures(training: OnlineDPO, rows: int | None) -> Figures:
    pairs = training.per_device_train_batch_size * training.gradient_accumulation_steps
    count = training.prompts if rows is None else rows
    return {
        "prompts": count,
        "pairs_per_step": pairs,
        "completions_per_step": 2 * pairs,
        "tokens_per_step_at_most": 2 * pairs * training.max_completion_length,
        "total_rollouts": 2 * pairs * training.max_steps,
        "epochs": round(training.max_steps * pairs / max(count, 1), 2),
    }


def compute_preference_figures(training: Preferences, rows: int | None) -> Figures:
    pairs = training.per_device_train_batch_size * training.gradient_accumulation_steps
    if isinstance(training, KTO):
        return single_answers(training, pairs, rows)
    found: Figures = {"pairs_per_step": pairs, "sequences_per_step": 2 * pairs, "tokens_per_step_at_most": 2 * pairs * training.max_length}
    if rows is None:
        return found | {"sampled_prompts": training.sampled_prompts, "sampled_answers": training.sampled_prompts * training.samples_per_prompt}
    return found | {"pairs": rows, "epochs": round(training.max_steps * pairs / max(rows, 1), 2)}


def single_answers(training: KTO, answers: int, rows: int | None) -> Figures:
    found: Figures = {"answers_per_step": answers, "tokens_per_step_at_most": answers * training.max_length}
    if rows is None:
        return found | {"sampled_prompts": training.sampled_prompts, "sampled_answers": training.sampled_prompts * training.samples_per_prompt}
    return found | {"answers": rows, "epochs": round(training.max_steps * answers / max(rows, 1), 2)}


def compute_heldout_figures(spec: RunSpec, available: int | None = None) -> Figures:
    """Measurements before, every so many steps, and after."""
    every, steps = spec.evaluation.every, spec.training.max_steps
    between = (steps - 1) // every if every else 0
    prompts = spec.evaluation.prompts if available is None else min(spec.evaluation.prompts, available)
    times = between + 2 if prompts else 0
    return {"heldout_measurements": times, "heldout_rollouts": times * prompts}


def compute_alternatives_figures(spec: RunSpec, found: Figures) -> Figures:
    """What the alternatives take in the database; nothing where no rollout keeps any."""
    share, training = spec.telemetry.alternatives_share, spec.training
    if not share:
        return {}
    longest = training.max_completion_length if isinstance(training, Rollouts | Preferences | GKD) else training.max_length
    each = longest * (spec.telemetry.alternatives * ALTERNATIVE_BYTES + RANK_BYTES)
    rollouts = round(share * sum(found.get(name, 0) for name in ("total_rollouts", "sampled_answers", "heldout_rollouts")))
    return {"rollouts_with_alternatives": rollouts, "alternatives_bytes_per_rollout_at_most": each, "alternatives_bytes_at_most": rollouts * each}
