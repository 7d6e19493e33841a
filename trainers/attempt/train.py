"""One attempt at a run, from the spec to the exported policy; reads top to bottom.

Of a run in several processes each reads it (``rank_processes.py`` starts them); what stands in ``ranks`` they do together, or the first one alone.
Left out on purpose: anything about databases or web pages: whoever wants to know reads the spool.
"""

import fcntl
import logging
import os
import platform
import shutil
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Protocol

# Before anything of Hugging Face is imported: nothing about a run is told to anybody, and tokenizers do not fork.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import datasets as hf_datasets
import torch
import transformers
from trl.chat_template_utils import supports_tool_calling

from trainers.adapters.dpo import DPOAdapter
from trainers.adapters.gkd import GKDAdapter
from trainers.adapters.grpo import GRPOAdapter
from trainers.adapters.kto import KTOAdapter
from trainers.adapters.masked import MaskedAdapter
from trainers.adapters.online_dpo import OnlineDPOAdapter
from trainers.adapters.procedure import ProcedureRun
from trainers.adapters.reference_free import CPOAdapter, ORPOAdapter
from trainers.adapters.resumable import clear_partial, list_whole_checkpoints, step_of
from trainers.adapters.reward import RewardAdapter
from trainers.adapters.rloo import RLOOAdapter
from trainers.adapters.sft import SFTAdapter, build_demonstrations
from trainers.attempt import cold_start, ranks
from trainers.attempt.code_version import find_code_version
from trainers.attempt.context import CHECKPOINTS, Attempt
from trainers.attempt.edits import Edits
from trainers.attempt.environment import describe_environment
from trainers.attempt.evaluate import HeldOut, measured_before_training
from trainers.attempt.generation_server import run_generation_server
from trainers.attempt.inputs import describe_inputs
from trainers.attempt.memory import report_memory
from trainers.attempt.report import Reporter
from trainers.attempt.stop import Stopped, StopRequest
from trainers.checks.machine_needs import find_machine_problems
from trainers.checks.preflight import find_turn_problem
from trainers.checks.trl_needs import find_trl_problems
from trainers.contract.events import AttemptFinished, AttemptStarted, Inputs, Saved
from trainers.contract.hyperparameters import DPO, KTO, Demonstrated, GroupRollouts, OnlineDPO, Pairs, Preferences, Reward, Rollouts
from trainers.contract.machine import HERE, Machine, list_optional_packages
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import FINAL, RunSpec, TinyPolicy
from trainers.contract.spool import SPOOL, SpoolError, SpoolWriter, last_attempt
from trainers.data import datasets, identity, pairs
from trainers.data.episode_rows import join_episode_rows
from trainers.masked import launching as masked
from trainers.methods import stack as stacks
from trainers.policies import loading as policies
from trainers.policies import tiny
from trainers.rewards.columns import compose_task, find_weight_problems
from trainers.tasks import registry
from trainers.worlds.base import World

log = logging.getLogger(__name__)

FINISHED, FAILED, REFUSED, STOPPED, LOCKED = range(5)  # exit codes
LOCK = "lock"
START = "start"  # the policy a run starts from, where that had to be put together first
MOST_THREADS = 16
RunAttempt = Callable[[RunSpec, Path, Reporter, StopRequest], tuple[int, int]]  # returns and raises what ``attempt_run`` does
REPORTED_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


class Trainer(Protocol):
    """What an attempt asks of a trainer, whatever it does in its steps."""

    edits: Edits | None

    @property
    def steps_done(self) -> int: ...

    def measure_heldout(self, step: int) -> None: ...

    def train_to_end(self, resume: Path | None) -> None: ...

    def collect_shared_weights(self) -> dict[str, Any] | None: ...

    def export(self, folder: Path, weights: dict[str, Any] | None) -> None: ...


def run_training(spec: RunSpec, folder: Path) -> int:
    """Trains until finished or asked to stop; goes on from the newest checkpoint in ``folder``. Returns the exit code of the command line."""
    return run_attempt_alone(spec, folder, attempt_run)


def run_attempt_alone(spec: RunSpec, folder: Path, run: RunAttempt) -> int:
    """Runs an attempt as the only trainer of the folder. Returns the exit code of the command line."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        message = "start it without accelerate or torchrun, and say in resources.processes how many processes train it"
        print(f"WORLD_SIZE = {os.environ['WORLD_SIZE']}: a run starts its processes itself ({message})", file=sys.stderr)
        return REFUSED
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with hold_run_lock(folder / LOCK) as free:
        if not free:
            print(f"{folder} is in use by another trainer", file=sys.stderr)
            return LOCKED
        set_up()
        number = last_attempt(folder / SPOOL) + 1
        try:
            with SpoolWriter(folder / SPOOL) as writer:
                return report_outcome(spec, folder, Reporter(writer, number), run)
        except SpoolError as error:  # nothing can be said in the spool; the last line of the log and the exit code say it
            print(error.strerror, file=sys.stderr)
            return FAILED


def report_outcome(spec: RunSpec, folder: Path, reporter: Reporter, run: RunAttempt) -> int:
    """Runs the attempt; whatever ends it becomes its last event and the exit code."""
    stop = StopRequest(folder, spec.limits.minutes)
    done = steps_done(folder)
    try:
        with stop.listening():
            code, done = run(spec, folder, reporter, stop)
        reporter.event(AttemptFinished, outcome="finished" if code == FINISHED else "stopped", step=done)
        return code
    except Stopped as request:
        log.info("stopped before the first step by %s", request)
        reporter.event(AttemptFinished, outcome="stopped", step=done)
        return STOPPED
    except SpecError as error:
        print(error, file=sys.stderr)
        reporter.event(AttemptFinished, outcome="failed", step=done, error=policies.one_line(error))
        return REFUSED
    except (Exception, KeyboardInterrupt) as error:
        if not isinstance(error, ranks.RanksFailed):  # they have said it themselves
            traceback.print_exc()
        reporter.event(AttemptFinished, outcome="failed", step=steps_done(folder), error=explain_failure(error))
        return FAILED


def attempt_run(spec: RunSpec, folder: Path, reporter: Reporter, stop: StopRequest) -> tuple[int, int]:
    """The attempt itself. Returns the exit code and how many steps are done. Raises Stopped, SpecError or what went wrong."""
    task = find_task(spec)
    refuse_missing(spec)
    clear_partial(folder / CHECKPOINTS)
    resume = next(iter(list_whole_checkpoints(folder / CHECKPOINTS)[::-1]), None)
    policy_folder = resolve_policy_folder(spec, folder, task, reporter, stop, resume)
    with run_generation_server(spec, policy_folder, reporter, stop) as server:
        with reporter.busy("loading"):
            policy = policies.load_policy(policy_folder, spec)
        return train_policy(Attempt(spec, folder, task, policy, reporter, stop, generation_server=server.ports if server else None), resume)


def train_policy(attempt: Attempt, resume: Path | None) -> tuple[int, int]:
    """From the loaded policy on. Returns and raises what ``attempt_run`` does."""
    edits = Edits(attempt.folder, attempt.spec, attempt.task, attempt.reporter) if ranks.is_first() else None
    report_attempt_start(attempt, step_of(resume) if resume else 0)
    with closing(attempt.columns):
        return train_attempt(attempt, edits, resume)


def train_attempt(attempt: Attempt, edits: Edits | None, resume: Path | None) -> tuple[int, int]:
    """From the loaded policy to the exported one. Returns and raises what ``attempt_run`` does."""
    spec, folder, reporter, stop = attempt.spec, attempt.folder, attempt.reporter, attempt.stop
    measured = spec.evaluation.prompts and not isinstance(spec.training, Reward)  # a reward model answers nothing
    heldout = HeldOut(attempt) if measured and attempt.task.examples("heldout", 1, spec.seed, spec.task.difficulty) else None
    with reporter.busy("preparing"):
        stack = stacks.of_attempt(attempt)
    rows = read_data(attempt)
    with reporter.busy("preparing data"):
        rows = stack.data(rows)
        if spec.dataset and not isinstance(spec.training, Rollouts) and ranks.is_first():
            identity.write_dataset_identity(folder, spec.dataset, rows, spec.training.trainer)
        reporter.event(Inputs, **describe_inputs(attempt, rows, heldout))
    stop.check_anywhere()
    with reporter.busy("preparing"):
        trainer = build_trainer_adapter(attempt, rows, heldout, stack)
    if attempt.generation_server is not None and ranks.is_first():
        attempt.generation_server.limit_waiting(trainer)
    trainer.edits = edits
    if heldout and not resume and not ranks.done_by_first(lambda: reporter.attempt > 1 and measured_before_training(folder / SPOOL)):
        trainer.measure_heldout(0)
        stop.check_anywhere()
    with report_memory(attempt, rows):
        trainer.train_to_end(resume)

    done = trainer.steps_done
    if done < spec.training.max_steps:
        log.info("stopped after step %d by %s", done, stop.why)
        return STOPPED, done
    weights = trainer.collect_shared_weights()
    ranks.done_by_first(lambda: save_final(attempt, trainer, done, weights))
    return FINISHED, done


@contextmanager
def hold_run_lock(path: Path) -> Iterator[bool]:
    """Whether this process is the only trainer of the folder, for as long as it is inside."""
    with path.open("a+") as file:
        if not try_lock(file):
            yield False
            return
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield True


def try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def set_up() -> None:
    """Logging to standard error, no progress bars, one thread a core (``OMP_NUM_THREADS`` says otherwise), one GPU for each process."""
    # Read when CUDA is first used. With several GPUs in sight transformers would split every batch over them (DataParallel).
    os.environ.setdefault("LAB_WORKER_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", "0"))  # a generation server takes others of them
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(os.environ["LAB_WORKER_GPUS"].split(",")[: ranks.count()])
    logging.basicConfig(
        level=logging.INFO if ranks.is_first() else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    for chatty in ("httpx", "accelerate", "filelock", "fsspec", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)  # TRL 1.16 uses the older name
    transformers.logging.set_verbosity_warning()
    transformers.logging.disable_progress_bar()
    hf_datasets.disable_progress_bars()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(max(1, len(os.sched_getaffinity(0)) // ranks.count()), MOST_THREADS))


def find_task(spec: RunSpec) -> Any:
    try:
        task = registry.load_chosen_task(spec.task, spec.seed)
    except registry.UnknownTask as error:
        raise policies.make_policy_error(spec.task.name, str(error), "", "task.name") from None
    if spec.task.difficulty not in task.difficulties:
        raise policies.make_policy_error(
            spec.task.difficulty, f"{task.name} has no such difficulty", f"use {', '.join(task.difficulties)}", "task.difficulty"
        )
    composed = compose_task(task, spec)
    if problems := find_weight_problems(composed, spec):
        raise SpecError(problems)
    if problem := find_turn_problem(spec, composed):
        raise SpecError([problem])
    if problems := find_trl_problems(spec, composed):
        raise SpecError(problems)
    return composed


def refuse_missing(spec: RunSpec) -> None:
    """Raises SpecError where the spec needs a package or a GPU that is not here."""
    machine = Machine(HERE, torch.cuda.is_available(), packages=list_optional_packages())
    if problems := list(find_machine_problems(spec, machine)):
        raise SpecError(problems)


def resolve_policy_folder(spec: RunSpec, folder: Path, task: Any, reporter: Reporter, stop: StopRequest, resume: Path | None) -> Path:
    """Folder of the policy to start from; built or fetched first where it is not there yet. Raises SpecError and Stopped."""
    if not isinstance(spec.policy, TinyPolicy):
        try:
            with reporter.busy("loading"):
                return policies.merge_adapters(policies.find_policy_folder(spec.policy), folder / START)
        except SpecError:
            if resume is None or needs_start(spec):
                raise
            return resume  # it holds all the weights, and nobody asks for those the run began with
    if masked.trains_masked_policy(spec):
        return masked.ensure_masked_start(spec, task, reporter, stop)
    if not spec.policy.cold_start:
        with reporter.busy("loading"):
            return tiny.ensure_untrained_policy(task)
    return cold_start.ensure_cold_start_policy(task, spec.task.difficulty, reporter, stop)


def needs_start(spec: RunSpec) -> bool:
    """Whether training compares with the policy that the run began with: as a reference, or as what its adapters are added to."""
    return (
        isinstance(spec.training, DPO | KTO | OnlineDPO)
        or spec.lora is not None
        or (isinstance(spec.training, GroupRollouts) and spec.training.beta > 0)
    )


def report_attempt_start(attempt: Attempt, from_step: int) -> None:
    policy = attempt.policy
    name = torch.cuda.get_device_name(policy.device) if policy.device.type == "cuda" else f"{platform.machine()}, {torch.get_num_threads()} threads"
    several = f"{ranks.count()} × " if ranks.count() > 1 else ""
    attempt.reporter.event(
        AttemptStarted,
        from_step=from_step,
        total_steps=attempt.spec.training.max_steps,
        pid=ranks.find_parent_pid(),
        host=socket.gethostname(),
        device=f"{several}{policy.device.type} ({name}), {'bf16' if policy.bf16 else 'fp32'}",
        command=sys.argv,
        versions={"python": platform.python_version(), **{package: version(package) for package in REPORTED_PACKAGES}},
        special_tokens=policy.special_tokens(),
        parameters=policy.parameters,
        environment=describe_environment(find_code_version(), registry.find_task_distribution(attempt.task)),
    )


def read_data(attempt: Attempt) -> list[Any]:
    """What the trainer trains on: examples where it samples, else rows; of the dataset if the spec has one, else of the task. Raises SpecError."""
    spec, task = attempt.spec, attempt.task
    training, difficulty = spec.training, spec.task.difficulty
    if spec.dataset:
        with attempt.reporter.busy("loading"):
            identity.check_dataset_digest(spec.dataset)
            rows = datasets.read_rows(Path(spec.dataset.path), training.trainer)
            refuse_unrendered(attempt, rows)
            if isinstance(task, World) and task.form == "tags" and not datasets.calls_tools(rows):
                rows = join_episode_rows(rows)
        if isinstance(training, Pairs):
            return pairs.with_noise(rows, training.label_noise, spec.seed)
        return datasets.examples_from_rows(rows) if isinstance(training, Rollouts) else rows
    if isinstance(training, Demonstrated):
        return build_demonstrations(task, training.demonstrations, spec.seed, difficulty, attempt.policy.tokenizer)
    if isinstance(training, Preferences):
        found = pairs.with_noise(ranks.done_by_first(lambda: pairs.sample_pairs(attempt)), training.label_noise, spec.seed)
        return [row for pair in found for row in pairs.kto_rows_from_pair(pair)] if isinstance(training, KTO) else found
    return task.examples("train", training.prompts, spec.seed, difficulty)


def refuse_unrendered(attempt: Attempt, rows: list[datasets.Row]) -> None:
    """A chat template that does not know tools would leave the calls out without a word. Raises SpecError."""
    dataset = attempt.spec.dataset
    if dataset is not None and datasets.calls_tools(rows) and not supports_tool_calling(attempt.policy.tokenizer):
        raise SpecError([Problem("dataset.path", dataset.path, *datasets.UNRENDERED)])


ADAPTERS: dict[str, Any] = {
    "sft": SFTAdapter,
    "grpo": GRPOAdapter,
    "rloo": RLOOAdapter,
    "dpo": DPOAdapter,
    "kto": KTOAdapter,
    "orpo": ORPOAdapter,
    "cpo": CPOAdapter,
    "online-dpo": OnlineDPOAdapter,
    "gkd": GKDAdapter,
    "reward": RewardAdapter,
    "procedure": ProcedureRun,
}


def build_trainer_adapter(attempt: Attempt, rows: list[Any], heldout: HeldOut | None, stack: stacks.Stack) -> Trainer:
    masked.check_kinds_agree(attempt.policy.model, attempt.task, stack.base)
    kind = MaskedAdapter if masked.is_masked_base(stack.base) else ADAPTERS[attempt.spec.training.trainer]
    made: Trainer = kind(attempt, rows, heldout, stack)
    return made


def save_final(attempt: Attempt, trainer: Trainer, step: int, weights: dict[str, Any] | None = None) -> None:
    """Exports the policy; whoever sees the folder sees all of it."""
    attempt.reporter.phase("saving")
    partial, final = attempt.folder / f".{FINAL}.partial", attempt.folder / FINAL
    shutil.rmtree(partial, ignore_errors=True)
    trainer.export(partial, weights)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    attempt.reporter.event(Saved, step=step, path=FINAL, bytes=policies.compute_folder_size(final))


def steps_done(folder: Path) -> int:
    found = list_whole_checkpoints(folder / CHECKPOINTS)
    return step_of(found[-1]) if found else 0


def explain_failure(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, ranks.RanksFailed | SystemExit):
        return policies.one_line(error)
    if isinstance(error, torch.OutOfMemoryError):
        return f"out of memory on the GPU: {policies.one_line(error)}; use a smaller batch per device or gradient checkpointing"
    return f"{type(error).__name__}: {policies.one_line(error)}"
