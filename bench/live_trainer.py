"""A trainer without a model for ``bench/live.py``: it keeps the contract of docs/run-files.md and writes rollouts and metrics at an even pace.

Run as ``live_trainer.py <run folder>/run.json``. The spec's ``pace``: ``seconds``, ``steps`` a second, ``rollouts`` and ``points`` a step. After its
first steps it waits for a file ``go`` in the folder, so that every viewer is there when the pace begins. The time of an event is when it was handed
to the spool's writer, as in a real trainer.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from trainers.contract import arrays, spool
from trainers.contract.events import AttemptFinished, AttemptStarted, Message, Metrics, Rollout, Saved

FIRST_STEPS = 3  # before anybody watches: a page draws its charts from them
TOKENS, CHARACTERS = 128, 400
KNOWN = ("reward", "reward_std", "loss", "grad_norm", "entropy", "kl", "learning_rate", "rewards/correct/mean", "rewards/correct/std")
GO_SECONDS = 300.0


def main(run_file: Path) -> int:
    folder, spec = run_file.parent, json.loads(run_file.read_text())
    lock = (folder / "lock").open("a+")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    with spool.SpoolWriter(folder / spool.SPOOL) as writer:
        write_run(folder, spec["pace"], writer)
    return 0


def write_run(folder: Path, pace: dict[str, Any], writer: spool.SpoolWriter) -> None:
    rng, total = random.Random(7), FIRST_STEPS + int(pace["seconds"] * pace["steps"])
    details = {"pid": os.getpid(), "host": "here", "device": "cpu", "command": sys.argv, "versions": {}}
    writer.put(AttemptStarted(attempt=1, time=time.time(), from_step=0, total_steps=total, **details))
    for step in range(1, FIRST_STEPS + 1):
        write_step(writer, pace, step, rng)
    deadline = time.monotonic() + GO_SECONDS
    while not (folder / "go").exists():
        if time.monotonic() > deadline:
            raise SystemExit("nobody said go")
        time.sleep(0.05)
    begin = time.monotonic()
    for step in range(FIRST_STEPS + 1, total + 1):
        time.sleep(max(0.0, begin + (step - FIRST_STEPS) / pace["steps"] - time.monotonic()))
        write_step(writer, pace, step, rng)
    (folder / "final").mkdir(exist_ok=True)
    writer.put(Saved(attempt=1, time=time.time(), step=total, path="final", bytes=1))
    writer.put(AttemptFinished(attempt=1, time=time.time(), outcome="finished", step=total))


def write_step(writer: spool.SpoolWriter, pace: dict[str, Any], step: int, rng: random.Random) -> None:
    prompt = [Message("user", f"What is {step} + {rng.randrange(100)}?")]
    for sample in range(pace["rollouts"]):
        reward = rng.random()
        writer.put(
            Rollout(
                attempt=1, time=time.time(), step=step, phase="train", group=0, sample=sample, prompt=prompt,
                completion="".join(rng.choices("abcdefgh ", k=CHARACTERS)), rewards={"correct": reward}, reward=reward, finish_reason="stop",
                ids=arrays.pack_ids(rng.choices(range(32_000), k=TOKENS)), lengths=arrays.pack_array([CHARACTERS // TOKENS] * TOKENS, "H"),
                logprobs=arrays.pack_array([-rng.random() for _ in range(TOKENS)], "e"), length=TOKENS,
                entropies=arrays.pack_array([rng.random() for _ in range(TOKENS)], "e"),
            )
        )  # fmt: skip
    names = [*KNOWN, *(f"bench/{number}" for number in range(pace["points"]))][: pace["points"]]
    values = {name: rng.random() + step / 100 for name in names}
    writer.put(Metrics(attempt=1, time=time.time(), step=step, values=values, tokens=step * pace["rollouts"] * TOKENS))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
