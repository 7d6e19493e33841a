"""A trainer without a model: it keeps the contract of docs/run-files.md (lock, attempt, stop file, checkpoints, events, exit codes).

Run as ``trainer_program.py <run folder>/run.json``. The spec's keys: ``steps``, ``pace`` (seconds a step), ``save_every``, ``deaf`` (no
stop is heard), ``fail_at``, ``children`` (processes it starts and leaves), ``ignore_finish`` (ends without its last event),
``skip_attempts`` (counts attempts in its own way).
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from trainers.contract import spool
from trainers.contract.events import AttemptFinished, AttemptStarted, Checkpoint, Message, Metrics, Phase, Rollout, Saved

GROUPS, SAMPLES = 2, 4


def main(run_file: Path) -> int:
    folder, spec = run_file.parent, json.loads(run_file.read_text())
    lock = (folder / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 4
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    attempt = spool.last_attempt(folder / spool.SPOOL) + 1 + spec.get("skip_attempts", 0)
    with spool.SpoolWriter(folder / spool.SPOOL) as writer:
        return train(folder, spec, attempt, writer)


def train(folder: Path, spec: dict, attempt: int, writer: spool.SpoolWriter) -> int:
    total, pace = spec.get("steps", 20), spec.get("pace", 0.02)
    done = max((int(path.name.split("-")[1]) for path in folder.glob("checkpoints/checkpoint-*")), default=0)
    now = {"attempt": attempt, "time": time.time()}
    writer.put(Phase(**now, name="loading"))
    for _ in range(spec.get("children", 0)):
        subprocess.Popen(["sleep", "300"])
    details = {"pid": os.getpid(), "host": "here", "device": "none", "command": sys.argv, "versions": {}}
    writer.put(AttemptStarted(**now, from_step=done, total_steps=total, **details))
    print(f"attempt {attempt} from step {done}; secrets: {sorted(set(os.environ) & {'SECRET_KEY', 'DATABASE_URL', 'REDIS_URL'})}")
    for step in range(done + 1, total + 1):
        time.sleep(pace)
        if step == spec.get("fail_at") and attempt == 1:
            print('Traceback (most recent call last):\n  File "x.py", line 3, in y\nRuntimeError: the loss exploded', file=sys.stderr)
            return 1
        write_step(writer, attempt, step)
        print(f"step {step}", flush=True)
        stopped = (folder / "stop").exists() and not spec.get("deaf")
        if step % spec.get("save_every", 5) == 0 or stopped:
            save(writer, folder, attempt, step)
        if stopped:
            writer.put(AttemptFinished(attempt=attempt, time=time.time(), outcome="stopped", step=step))
            return 3
    (folder / "final").mkdir(exist_ok=True)
    (folder / "final/model.safetensors").write_text(f"final weights of attempt {attempt}")
    writer.put(Saved(attempt=attempt, time=time.time(), step=total, path="final", bytes=1))
    if not spec.get("ignore_finish"):
        writer.put(AttemptFinished(attempt=attempt, time=time.time(), outcome="finished", step=total))
    return 0


def write_step(writer: spool.SpoolWriter, attempt: int, step: int) -> None:
    now = {"attempt": attempt, "time": time.time(), "step": step}
    for index in range(GROUPS * SAMPLES):
        group, sample = divmod(index, SAMPLES)
        said = {"prompt": [Message("user", f"{step} {group}")], "completion": "x" * 100, "rewards": {"correct": 1.0}, "reward": 1.0}
        writer.put(Rollout(**now, phase="train", group=group, sample=sample, **said, finish_reason="stop", ids=b"H0ab", length=1))
    writer.put(Metrics(**now, values={"loss": 1.0 / step, "reward": step / 100}, tokens=step * 64))


def save(writer: spool.SpoolWriter, folder: Path, attempt: int, step: int) -> None:
    writer.sync()
    place = folder / "checkpoints" / f"checkpoint-{step}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "model.safetensors").write_text(f"weights of attempt {attempt} after step {step}")
    writer.put(Checkpoint(attempt=attempt, time=time.time(), step=step, path=f"checkpoints/checkpoint-{step}", bytes=1))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
