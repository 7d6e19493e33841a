"""What full telemetry costs: a GRPO step of bare TRL against the same step of ours, and whether both compute the same.

Two processes train the same policy with the same seed and configuration. They take turns, a block of steps each, so that whatever else the
machine does falls on both. A step is timed from its beginning to the beginning of the next one, logging included. The ratio is the median over the
turns of a block's median step over that of bare TRL in the same turn. The ratio of processor seconds, all threads included, is printed beside it: it
hardly depends on what else runs.

With ``--peers`` TRL's own reporting takes turns too, as its users switch it on (``report_to``, ``log_completions``): TensorBoard, Trackio, MLflow and
W&B offline, each in an environment of its own (``bench/peers.py``). Completions are not printed besides, which TRL does by default. TRL writes them
into a Parquet file a step, and tables of them to Trackio and W&B; none of the four gets token arrays, which ours keeps.

    .venv/bin/python bench/overhead.py [--steps 120] [--peers] [--json]
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.peers import OFFLINE, find_peer_python  # noqa: E402

BLOCK = 10  # steps a turn
WARM_UP = 10  # first steps, not counted
CLOCKS = ("seconds", "processor_seconds")
COMPARED = ("loss", "reward", "entropy", "grad_norm")
ROUNDING = 1e-3  # of the largest value: several processes add in an order that their timing decides, and a hundred steps build on it
TARGET = 1.02  # of bare TRL, at most
PEERS = ("tensorboard", "trackio", "mlflow", "wandb")


def main() -> int:
    options = arguments()
    if options.worker:
        work(options)
        return 0
    sides = ("bare", "ours", *(PEERS if options.peers else ()))
    with tempfile.TemporaryDirectory(prefix="overhead-") as scratch:
        prepare(options.steps)
        results = take_turns(sides, options.steps, options.ranks, Path(scratch))
    report = compare(results, options)
    for name, same in report["equal_by_name"].items():
        apart = report["largest_difference"][name]
        print(f"{name:10} {'equal in every step' if same else f'differs by up to {apart:.1e} of its largest value'}")
    for side in sides:
        ratio, processor = report["ratio_of"][side], report["processor_ratio_of"][side]
        print(f"{side:12} {report['ms'][side]:8.1f} ms a step, {ratio:.3f} of bare TRL, processor time {processor:.3f}")
    print(
        f"ours at most {TARGET} of bare TRL{', and below all that keep completions' if options.peers else ''}: {'ok' if report['ok'] else 'NOT OK'}"
    )
    if options.json:
        print(json.dumps(report))
    return 0 if report["ok"] else 1


def compare(results: dict[str, dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Every figure, by side where there is one for each."""
    bare, ours = results["bare"], results["ours"]
    equal = {name: bare["values"][name] == ours["values"][name] for name in COMPARED}
    apart = {name: find_largest_difference(bare["values"][name], ours["values"][name]) for name in COMPARED}
    same = all(equal.values()) or (options.ranks > 1 and max(apart.values()) <= ROUNDING)
    ratio, processor = ({side: pair_blocks(result[clock], bare[clock]) for side, result in results.items()} for clock in CLOCKS)
    ms = {side: round(1000 * statistics.median(result["seconds"][WARM_UP:]), 1) for side, result in results.items()}
    below = {side: ratio["ours"] < ratio[side] for side in results if side in PEERS}
    return {
        "ratio": ratio["ours"],
        "ratio_bound": TARGET,
        "equal": same,
        "equal_by_name": equal,
        "largest_difference": apart,
        "processor_ratio": processor["ours"],
        "bare_ms": ms["bare"],
        "ours_ms": ms["ours"],
        "ms": ms,
        "ratio_of": ratio,
        "processor_ratio_of": processor,
        "ours_below": below,
        "steps": options.steps,
        "ranks": options.ranks,
        "rollouts": ours["rollouts"],
        "spool_bytes": ours["spool_bytes"],
        "ok": same and ratio["ours"] <= TARGET and all(below.values()),
    }


def find_largest_difference(bare: list[float], ours: list[float]) -> float:
    """Of any step, in units of the largest value of bare TRL."""
    largest = max(map(abs, bare))
    return max(abs(one - other) for one, other in zip(bare, ours, strict=True)) / largest


def pair_blocks(own: list[float], bare: list[float]) -> float:
    """The median over the turns of one side's median step over the other's in the same turn."""
    turns = range(WARM_UP, min(len(own), len(bare)) - BLOCK + 1, BLOCK)
    return round(statistics.median(statistics.median(own[at : at + BLOCK]) / statistics.median(bare[at : at + BLOCK]) for at in turns), 4)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120, help="steps of each side (default 120)")
    parser.add_argument("--ranks", type=int, default=1, help="processes that train together, on each side (default 1)")
    parser.add_argument("--peers", action="store_true", help="TRL that reports to other trackers takes turns too")
    parser.add_argument("--json", action="store_true", help="print a JSON object as the last line")
    parser.add_argument("--worker", choices=["bare", "ours", *PEERS], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def prepare(steps: int) -> None:
    """Cold-starts the policy once, before two processes want it."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        attempt_in(Path(folder), steps, opened)


def take_turns(sides: Sequence[str], steps: int, count: int, scratch: Path) -> dict[str, dict[str, Any]]:
    teams = {side: start_ranks(side, steps, count, scratch / side) for side in sides}
    workers = {side: team[0] for side, team in teams.items()}
    for worker in workers.values():
        expect(worker, "ready")
    for turn in range(steps // BLOCK):
        first = turn // 2 % len(workers)
        order = [*list(workers)[first:], *list(workers)[:first]][:: 1 if turn % 2 == 0 else -1]
        for side in order:
            tell(workers[side], "go")
            expect(workers[side], "done")
    results = {}
    for side, worker in workers.items():
        assert worker.stdout is not None
        results[side] = json.loads(worker.stdout.readline())
        for process in teams[side]:
            process.wait()
    return results


def start_ranks(side: str, steps: int, count: int, folder: Path) -> list["subprocess.Popen[str]"]:
    """The processes of one side; the first is told when it has its turn, and reports."""
    python = find_peer_python(side) if side in PEERS else sys.executable
    command = [str(python), __file__, "--worker", side, "--steps", str(steps), "--folder", str(folder)]
    environment = {**os.environ, **(OFFLINE | places_of(folder) if side in PEERS else {})}
    if count > 1:
        environment |= {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port())}
    ends = [subprocess.PIPE, *[subprocess.DEVNULL] * (count - 1)]
    places = [environment if count == 1 else environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    return [subprocess.Popen(command, stdin=end, stdout=end, text=True, cwd=ROOT, env=place) for end, place in zip(ends, places, strict=True)]


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def places_of(folder: Path) -> dict[str, str]:
    """Where the peers keep what they are told."""
    database = f"sqlite:///{folder}/mlflow.db"
    return {"WANDB_DIR": str(folder), "TRACKIO_DIR": str(folder / "trackio"), "MLFLOW_TRACKING_URI": database, "TENSORBOARD_LOGGING_DIR": str(folder)}


def tell(worker: "subprocess.Popen[str]", word: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(word + "\n")
    worker.stdin.flush()


def expect(worker: "subprocess.Popen[str]", word: str) -> None:
    assert worker.stdout is not None
    line = worker.stdout.readline().strip()
    if line != word:
        raise SystemExit(f"a worker said {line!r} where {word!r} was due; its error is above")


def attempt_in(folder: Path, steps: int, opened: ExitStack) -> Any:
    """An attempt of ours at the recipe's GRPO, ready to train; ``opened`` closes its spool."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trainers.attempt import cold_start, ranks, train
    from trainers.attempt.context import Attempt
    from trainers.attempt.rank_processes import open_reporter
    from trainers.attempt.stop import StopRequest
    from trainers.contract.hyperparameters import GRPO
    from trainers.contract.spec import Evaluation, Limits, RunSpec, TaskChoice
    from trainers.policies import loading as policies

    spec = RunSpec(
        task=TaskChoice(name="mini_gsm"),
        training=GRPO(max_steps=steps),
        evaluation=Evaluation(prompts=0),
        limits=Limits(save_every=10 * steps),
        device="cpu",
        output=str(folder),
    )
    train.set_up()
    ranks.join(on_cpu=True)
    folder.mkdir(parents=True, exist_ok=True)
    task, stop = train.find_task(spec), StopRequest(folder, None)
    reporter = opened.enter_context(open_reporter(folder, 1))
    weights = cold_start.ensure_cold_start_policy(task, spec.task.difficulty, reporter, stop)
    return Attempt(spec, folder, task, policies.load_policy(weights, spec), reporter, stop)


def work(options: argparse.Namespace) -> None:
    """One process of a side: trains block by block when told to, then prints step times and what it computed."""
    from trainers.attempt import ranks

    talk = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between
    with ExitStack() as opened:
        attempt = attempt_in(options.folder, options.steps, opened)
        examples = attempt.task.examples("train", attempt.spec.training.prompts, 0, attempt.spec.task.difficulty)
        reports_to = options.worker if options.worker in PEERS else ""
        trainer = our_trainer(attempt, examples) if options.worker == "ours" else bare_trainer(attempt, examples, reports_to)
        pace = turns(talk)
        if ranks.is_first():
            trainer.add_callback(pace)
            say(talk, "ready")
        trainer.train()
    if ranks.is_first():
        say(talk, json.dumps({"seconds": pace.seconds, "processor_seconds": pace.processor_seconds, **computed(options, trainer)}))
    ranks.leave()


def say(talk: Any, line: str) -> None:
    talk.write(line + "\n")
    talk.flush()


def our_trainer(attempt: Any, examples: Any) -> Any:
    from trainers.adapters.grpo import GRPOAdapter
    from trainers.methods import stack

    return GRPOAdapter(attempt, examples, None, stack.of_attempt(attempt))


def bare_trainer(attempt: Any, examples: Any, reports_to: str) -> Any:
    """TRL's own trainer with the same configuration, prompts and reward functions, and nothing else; or with a tracker and completions logged."""
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    from trainers.adapters.groups import build_prompt_dataset
    from trainers.adapters.grpo import grpo_config
    from trainers.methods import stack

    def reward(name: str) -> Any:
        def function(completions: Any, example: Any, **rest: Any) -> Any:
            score = attempt.task.rewards[name].function
            return [score(completion[-1]["content"], examples[i]) for completion, i in zip(completions, example, strict=True)]

        function.__name__ = name
        return function

    config = grpo_config(attempt, stack.of_attempt(attempt))
    if reports_to:
        config.report_to, config.log_completions, config.num_completions_to_print = [reports_to], True, 0
    trainer = GRPOTrainer(
        model=attempt.policy.model,
        processing_class=attempt.policy.tokenizer,
        args=config,
        reward_funcs=[reward(name) for name in attempt.task.rewards],
        train_dataset=build_prompt_dataset(examples),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def turns(talk: Any) -> Any:
    from transformers import TrainerCallback

    class Turns(TrainerCallback):  # type: ignore[misc]
        """Waits for its turn at the beginning of every block; times from one step's beginning to the next one's."""

        def __init__(self) -> None:
            self.seconds: list[float] = []
            self.processor_seconds: list[float] = []
            self.began: tuple[float, float] | None = None

        def between(self, step: int) -> None:
            if self.began is not None:
                self.seconds.append(time.perf_counter() - self.began[0])
                self.processor_seconds.append(time.process_time() - self.began[1])
                if step % BLOCK == 0:
                    say(talk, "done")

        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.between(state.global_step)
            if state.global_step % BLOCK == 0:
                sys.stdin.readline()
            self.began = time.perf_counter(), time.process_time()

        def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.between(state.global_step)

    return Turns()


def computed(options: argparse.Namespace, trainer: Any) -> dict[str, Any]:
    """Losses, rewards, entropies and gradient norms step for step: TRL's log for itself, the spool for us."""
    if options.worker != "ours":
        steps = [entry for entry in trainer.state.log_history if "loss" in entry]
        return {"values": {name: [entry[name] for entry in steps] for name in COMPARED}}
    from trainers.contract import spool
    from trainers.contract.events import Metrics, Rollout

    path = options.folder / spool.SPOOL
    events = [line.event for line in spool.read_spool_lines(path, 0, limit=1 << 30)]
    steps = [event.values for event in events if isinstance(event, Metrics)]
    rollouts = sum(isinstance(event, Rollout) for event in events)
    return {"values": {name: [entry[name] for entry in steps] for name in COMPARED}, "rollouts": rollouts, "spool_bytes": path.stat().st_size}


if __name__ == "__main__":
    sys.exit(main())
