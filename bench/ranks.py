"""Do two processes train what one does? Every base and every method of the catalogue, on every trainer it works on.

Two gloo processes with half the batch each and one process with all of it train the same few steps of the tiny policy, on the same completions
(``bench/fixed_sampling.py``) or the same rows. Compared are loss and gradient norm of every step, and the weights afterwards as a share of what
training changed in them. What says ``parallel=False``, or runs on a trainer of one process, is listed with the reason that a person is told.

    python -m bench.ranks [NAME ...] [--store] [--json]

--store keeps the outcome in bench/ranks.json, which a test holds
against the catalogue.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.rank_cases import EARLIER_POLICY, SIZES, WORD_PROBLEMS, Case, list_cases, name_task
from trainers.contract.spec import FINAL, TaskChoice

STORED = Path(__file__).parent / "ranks.json"
BOUND = 1e-3  # of loss and gradient norm, and of the weights: sums of float32 in another order, through a few steps of Adam
FLOOR = 0.01  # losses below it are compared with it: those of normalised advantages are 0 but for rounding
SILENCE_SECONDS = 60.0
COMPARED = ("loss", "grad_norm")
WEIGHTS = "model.safetensors"


@dataclass
class Compared:
    """``differences``: of loss, gradient norm and weights; ``refused``: why several processes are; ``error``: what kept it from being compared."""

    outcome: str  # "equal", "differs", "refused" or "failed"
    differences: dict[str, float]
    refused: str = ""
    error: str = ""


def main() -> int:
    options = parse_arguments()
    cases, refused = list_cases(options.names)
    began = time.monotonic()
    compared = {key: Compared("refused", {}, refused=why) for key, why in refused.items()}
    with tempfile.TemporaryDirectory(prefix="bench-ranks-") as scratch:
        policies = prepare_policies(cases)
        if any(case.needs_earlier_policy for case in cases):
            make_earlier_policy(policies[name_task(TaskChoice.model_validate(WORD_PROBLEMS))], Path(scratch) / EARLIER_POLICY)
        made = [train_everywhere(cases, processes, Path(scratch), policies) for processes in (1, 2)]
        for case in cases:
            compared[case.key] = found = compare(made[0].get(case.key), made[1].get(case.key))
            print(f"{found.outcome:8} {case.key:45} {found.error or format_differences(found)}", file=sys.stderr)
    results = {key: asdict(compared[key]) for key in sorted(compared)}
    if options.store:
        kept = json.loads(STORED.read_text()) if options.names and STORED.exists() else {}
        STORED.write_text(json.dumps({**kept, **results}, indent=1, sort_keys=True) + "\n")
    summary = summarise(compared, time.monotonic() - began)
    if options.json:
        print(json.dumps({**summary, "cases": results}))
    return 0 if summary["ok"] else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="bases and methods; all without any")
    parser.add_argument("--store", action="store_true", help="keep the outcome in bench/ranks.json")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser.parse_args()


def prepare_policies(cases: Sequence[Case]) -> dict[str, Path]:
    """Task of a case -> folder of its cold-started policy, made in a process of its own: those that train start from one that has used no threads."""
    tasks = {name_task(case.task): case.task for case in cases}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return dict(zip(tasks, pool.map(find_policy, tasks.values(), chunksize=1), strict=True))


def find_policy(task: TaskChoice) -> Path:
    """The built-in policy after its cold start on ``task``."""
    from bench.kept_runs import find_cold_start

    return find_cold_start(task.model_dump(exclude_none=True))


def make_earlier_policy(policy: Path, folder: Path) -> None:
    """A policy whose weights differ from those of ``policy``, as an earlier run of alignment would leave them."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(policy, folder)
    file = folder / "model.safetensors"
    noise = torch.Generator().manual_seed(0)
    weights = load_file(file)
    save_file({name: value + 0.01 * torch.randn(value.shape, generator=noise) for name, value in weights.items()}, file, {"format": "pt"})


def train_everywhere(cases: Sequence[Case], processes: int, scratch: Path, policies: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """What each case came to. The same processes train all of them; where one breaks them, others go on after it."""
    made: dict[str, dict[str, Any]] = {}
    context = multiprocessing.get_context("spawn")
    while waiting := [case for case in cases if case.key not in made]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        results = context.SimpleQueue()
        given = (waiting, processes, port, scratch, policies, results)
        workers = [context.Process(target=train_cases, args=(place, *given)) for place in range(processes)]
        for worker in workers:
            worker.start()
        for case in waiting:
            key, found = results.get()
            assert key == case.key or "error" in found, f"{key} in place of {case.key}"  # one process may fail after the first has done its part
            made[key] = found
            print(f"{processes} process(es): {key} {found.get('error', '')}", file=sys.stderr, flush=True)
            if "error" in found:
                break
        for worker in workers:
            worker.join(1 if "error" in found else 60)
            worker.kill()
            worker.join()
    return made


def train_cases(place: int, cases: Sequence[Case], count: int, port: int, scratch: Path, policies: dict[str, Path], results: Any) -> None:
    """One of the processes. The first one says what every case came to, and any of them what went wrong."""
    os.environ |= {"RANK": str(place), "LOCAL_RANK": str(place), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "LAB_WORKER_GPUS": ""}
    import torch

    from bench.fixed_sampling import fix_sampling
    from trainers.attempt import ranks

    torch.set_num_threads(1)
    ranks.SILENCE_SECONDS = SILENCE_SECONDS
    ranks.join(on_cpu=True)
    with fix_sampling():
        for case in cases:
            try:
                found = train_case(case, count, scratch, policies[name_task(case.task)])
            except BaseException as error:
                traceback.print_exc()
                if "closed by peer" not in str(error):  # it follows from what another one has said
                    results.put((case.key, {"error": f"rank {place}: {type(error).__name__}: {error}"}))
                return
            if ranks.is_first():
                results.put((case.key, found))


def train_case(case: Case, count: int, scratch: Path, policy_folder: Path) -> dict[str, Any]:
    from bench.fixed_sampling import keep_distinct_prompts
    from trainers.attempt import rank_processes, ranks, train
    from trainers.attempt.context import Attempt
    from trainers.attempt.stop import StopRequest
    from trainers.contract import spool
    from trainers.contract.events import Metrics
    from trainers.policies import loading as policies

    folder = scratch / f"{'world' if case.in_world else 'task'}-{case.name}-{case.trainer}-{count}"
    spec = case.spec(count, folder)
    folder.mkdir(exist_ok=True)
    lend_pairs(scratch, folder, case)
    with rank_processes.open_reporter(folder, 1) as reporter:
        policy = policies.load_policy(policy_folder, spec)
        attempt = Attempt(spec, folder, keep_distinct_prompts(train.find_task(spec)), policy, reporter, StopRequest(folder, None))
        train.train_policy(attempt, None)
    ranks.wait_for_all()
    if not ranks.is_first():
        return {}
    values = [event.values for line in spool.read_spool_lines(folder / spool.SPOOL, 0, 1 << 30) if isinstance(event := line.event, Metrics)]
    return {"steps": [step for step in values if "loss" in step], "weights": str(folder / FINAL / WEIGHTS), "began": str(policy_folder / WEIGHTS)}


def lend_pairs(scratch: Path, folder: Path, case: Case) -> None:
    """The pairs that an earlier case has sampled for the same task: they are the same for all."""
    from trainers.attempt import ranks
    from trainers.data import pairs

    if ranks.is_first() and not case.in_world and "sampled_prompts" in SIZES[case.trainer]:
        for other in sorted(scratch.glob(f"task-*/{pairs.FILE}")):
            shutil.copy(other, folder / pairs.FILE)
            return


def compare(one: dict[str, Any] | None, two: dict[str, Any] | None) -> Compared:
    from safetensors.torch import load_file

    for made, processes in ((one, "1 process"), (two, "2 processes")):
        if made is None or "error" in made:
            return Compared("failed", {}, error=f"{processes}: {(made or {}).get('error', 'not trained')}")
    assert one is not None
    assert two is not None
    if not one["steps"] or not two["steps"]:
        return Compared("failed", {}, error="no step reported a loss")
    found = {name: max(relate(left[name], right[name]) for left, right in zip(one["steps"], two["steps"], strict=True)) for name in COMPARED}
    left, right, began = (load_file(place) for place in (one["weights"], two["weights"], one["began"]))
    apart = sum(float((left[name] - right[name]).double().square().sum()) for name in left) ** 0.5
    moved = sum(float((left[name] - before).double().square().sum()) for name, before in began.items() if name in left) ** 0.5
    found["weights"] = apart / moved if moved else float("inf")
    return Compared("equal" if all(value <= BOUND for value in found.values()) else "differs", found)


def relate(left: float, right: float) -> float:
    return abs(left - right) / max(abs(left), abs(right), FLOOR)


def format_differences(found: Compared) -> str:
    return ", ".join(f"{name} {value:.1e}" for name, value in found.differences.items())


def summarise(compared: dict[str, Compared], seconds: float) -> dict[str, Any]:
    outcomes = [one.outcome for one in compared.values()]
    equal = [one.differences for one in compared.values() if one.outcome == "equal"]
    worst = {name: max((found[name] for found in equal), default=0.0) for name in (*COMPARED, "weights")}
    counts = {name: outcomes.count(name) for name in ("equal", "differs", "refused", "failed")}
    return {**counts, "largest": worst, "bound": BOUND, "seconds": round(seconds), "ok": not (counts["differs"] or counts["failed"])}


if __name__ == "__main__":
    sys.exit(main())
