"""The arguments that every TRL trainer of ours gets."""

from typing import Any

from trainers.attempt import ranks
from trainers.attempt.context import Attempt
from trainers.contract.hyperparameters import Optimised
from trainers.contract.spec import ACCELERATE, NO_SHARDING


def build_common_arguments(attempt: Attempt) -> dict[str, Any]:
    """From the spec's hyperparameters; TRL's defaults that hurt here (bf16 on CPU, gradient checkpointing, own saving) are set explicitly."""
    training, policy = attempt.spec.training, attempt.policy
    assert isinstance(training, Optimised)
    on_cpu = policy.device.type == "cpu"
    return {
        "output_dir": str(attempt.checkpoints),
        "max_steps": training.max_steps,
        "learning_rate": training.learning_rate,
        "warmup_steps": training.warmup_steps,
        "lr_scheduler_type": training.lr_scheduler_type,
        "per_device_train_batch_size": training.per_device_train_batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation_steps,
        "max_grad_norm": training.max_grad_norm,
        "weight_decay": training.weight_decay,
        "adam_beta2": training.adam_beta2,
        "gradient_checkpointing": training.gradient_checkpointing,
        "use_liger_kernel": attempt.spec.use_liger_kernel,
        "bf16": policy.bf16,
        "fp16": False,
        "use_cpu": on_cpu,
        "seed": attempt.spec.seed,
        "data_seed": attempt.spec.seed,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": not on_cpu,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # a loss that is not a number is news, not noise
        "save_strategy": "no",  # callbacks.BetweenSteps decides, Resumable saves
        "report_to": "none",
        "disable_tqdm": True,
        **build_rank_arguments(attempt),
    }


def build_rank_arguments(attempt: Attempt) -> dict[str, Any]:
    """Of a run in several processes: one that does not answer ends it, and every parameter has a gradient in each step."""
    if ranks.count() == 1:
        return {}
    waiting = {"ddp_timeout": int(ranks.SILENCE_SECONDS)}
    if attempt.spec.resources.sharding == NO_SHARDING:
        return {**waiting, "ddp_find_unused_parameters": False}
    if attempt.spec.resources.sharding == ACCELERATE:
        return waiting
    return {**waiting, "fsdp": True, "fsdp_config": {"version": 2, "state_dict_type": "FULL_STATE_DICT", "reshard_after_forward": True}}
