"""The policy that a run learns from: found, checked and loaded like the one it trains, and then left as it is."""

from pathlib import Path
from typing import Any

import torch

from trainers.attempt import cold_start
from trainers.attempt.context import Attempt
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import TinyPolicy
from trainers.policies import loading as policies
from trainers.policies import tiny
from trainers.policies.checks import move_problems_to_teacher


def load_teacher(attempt: Attempt) -> Any:
    """The teacher of the run on its device, in evaluation mode, without gradients. Raises SpecError, naming fields of ``teacher``."""
    policy = attempt.policy
    try:
        with attempt.reporter.busy("loading"):
            folder = resolve_teacher_folder(attempt)
            policies.check_policy_folder(folder)
            model = policies.load_model(folder, torch.bfloat16 if policy.bf16 else torch.float32)
            vocabulary = policies.load_tokenizer(folder).get_vocab()
    except SpecError as error:
        raise SpecError(move_problems_to_teacher(error.problems)) from error
    if vocabulary != policy.tokenizer.get_vocab():  # its distribution is compared with the policy's, token by token
        fix = "use a teacher of the same family of models as the policy"
        raise SpecError([Problem("teacher", str(folder), "its tokenizer has other tokens than the policy's", fix)])
    return model.to(policy.device).eval().requires_grad_(False)


def resolve_teacher_folder(attempt: Attempt) -> Path:
    """Fetched or built first where it is not there yet."""
    spec = attempt.spec
    assert spec.teacher is not None
    if not isinstance(spec.teacher, TinyPolicy):
        return policies.find_policy_folder(spec.teacher)
    if not spec.teacher.cold_start:
        return tiny.ensure_untrained_policy(attempt.task)
    return cold_start.ensure_cold_start_policy(attempt.task, spec.task.difficulty, attempt.reporter, attempt.stop)
