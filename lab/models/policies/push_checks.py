"""What must not leave the lab under the team's name, or be loaded by anybody: weights that are no plain data, and configurations that name code.

The same words a folder is refused with before training (trainers.contract.policy_folder); here also for what is pushed to a hub.
"""

from __future__ import annotations

import os

from lab.models.policies.checkpoint_paths import files_of, open_checkpoint
from lab.training.runs.models import Checkpoint
from trainers.contract import policy_folder


def find_push_problems(checkpoint: Checkpoint) -> list[str]:
    """Why a checkpoint is not pushed; empty when it may be. Raises FilesMissing."""
    files, folder = files_of(checkpoint), open_checkpoint(checkpoint)
    problems = [
        f"{file.name} {reason}"
        for file in files
        if file.of_policy and file.name.endswith(".safetensors") and (reason := policy_folder.find_safetensors_damage(folder / file.name))
    ]
    problems += policy_folder.code_in(folder)
    code = sorted(name for name in os.listdir(folder) if name.endswith((".py", ".so", ".sh")))
    problems += [f"{name} is code; only data can be pushed" for name in code[:3]]
    return problems
