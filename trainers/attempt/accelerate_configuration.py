"""An accelerate configuration of the worker (LAB_ACCELERATE_CONFIG): how processes of a run share its weights where neither DDP nor FSDP2 as the lab
sets it up is wanted, DeepSpeed for example."""

import os
from pathlib import Path

from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import ACCELERATE

VARIABLE = "LAB_ACCELERATE_CONFIG"
FIELD = "resources.sharding"
PREFIXES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")
DECIDED_BY_SPEC = frozenset({"ACCELERATE_MIXED_PRECISION", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"})


def find_accelerate_file() -> Path:
    """The worker's file. Raises SpecError where it has none."""
    if not (named := os.environ.get(VARIABLE, "")):
        raise SpecError([Problem(FIELD, ACCELERATE, f"this worker has no {VARIABLE}", "name the file that accelerate config wrote, or use fsdp2")])
    if not (file := Path(named)).is_file():
        raise SpecError([Problem(FIELD, ACCELERATE, f"{VARIABLE} of this worker names {named}, where no file is", "write it with accelerate config")])
    return file


def read_accelerate_environment(file: Path, processes: int) -> dict[str, str]:
    """Environment variables that ``accelerate launch --config_file`` gives each of its processes, without what the run's spec decides.

    Raises SpecError for a file that accelerate refuses, and for ZeRO stage 3: rollouts and held-out answers are sampled by each process alone, with
    whole weights.
    """
    parser = launch_command_parser()
    arguments = parser.parse_args(
        ["--config_file", str(file), "--num_processes", str(processes), "--num_machines", "1", "--main_process_port", "0", "rank"]
    )
    try:
        arguments, settings, _ = _validate_launch_command(arguments)
        arguments.deepspeed_fields_from_accelerate_config = ",".join(settings.deepspeed_config)
        environment = prepare_deepspeed_cmd_env(arguments)[1] if arguments.use_deepspeed else prepare_multi_gpu_env(arguments)
    except Exception as error:  # whatever a library makes of somebody's file
        message = f"accelerate cannot use {file}: {error}"
        raise SpecError([Problem(FIELD, ACCELERATE, message, "write the file anew with accelerate config")]) from error
    if environment.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3":
        fix = "use stage 1 or 2 there, or sharding fsdp2"
        raise SpecError([Problem(FIELD, ACCELERATE, f"{file} asks for ZeRO stage 3, which keeps no whole weights to sample with", fix)])
    return {name: value for name, value in environment.items() if name.startswith(PREFIXES) and name not in DECIDED_BY_SPEC}
