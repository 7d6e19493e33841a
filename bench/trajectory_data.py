"""What ``bench/trajectories.py`` fills the database with: rollouts as training makes them, through the spool, the ingest and the indexer."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

GROUP, STEP, TOKENS = 8, 64, 256
PROMPTS, VOCABULARY = 2000, 30_000
PIECE = 5120  # rollouts that are written and ingested at a time
MARKERS = {"umbra": 0.0001, "zephyr": 0.001, "quartz": 0.01, "lattice": 0.1, "therefore": 0.5}  # words and in how many completions they are


class Texts:
    """Words by Zipf's law, and prompts that all runs share."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10))) for _ in range(VOCABULARY)]
        total = 0.0
        self.weights = [total := total + 1 / (rank + 3) for rank in range(VOCABULARY)]
        self.prompts = [self.some(rng, 50) + f" {number}?" for number in range(PROMPTS)]

    def some(self, rng: random.Random, count: int) -> str:
        return " ".join(rng.choices(self.words, cum_weights=self.weights, k=count))

    def completion(self, rng: random.Random, growth: float) -> str:
        text = self.some(rng, max(5, int(rng.lognormvariate(4.6, 0.6) * growth)))
        found = [word for word, share in MARKERS.items() if rng.random() < share]
        return f"<think>{text}</think> {' '.join(found)}\n<answer>{rng.randint(0, 999)}</answer>"


def rollouts(count: int, texts: Texts, seed: int) -> Iterator[Any]:
    """``count`` rollout events, step by step; the policy learns: rewards rise, entropy falls, completions grow."""
    import numpy as np

    from trainers.contract import arrays
    from trainers.contract.events import Message, Rollout

    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    for index in range(count):
        step, member = divmod(index, STEP)
        if member % GROUP == 0:
            chosen = rng.randrange(PROMPTS)
            prompt = [Message("system", "Think, then answer."), Message("user", texts.prompts[chosen])]
            easy = rng.random()
        done = index / count
        text = texts.completion(rng, 0.8 + 0.6 * done)
        correct = float(rng.random() < 0.2 + 0.6 * done * easy)
        brevity = round(rng.random(), 4)
        packed = {}
        if index % 10 == 0:
            lengths = numbers.multinomial(len(text), np.full(TOKENS, 1 / TOKENS))
            packed = {
                "ids": arrays.pack_ids(numbers.integers(0, 32_000, TOKENS)),
                "lengths": arrays.pack_array(lengths, "H"),
                "logprobs": arrays.pack_array(-numbers.exponential(0.5, TOKENS), "e"),
                "entropies": arrays.pack_array(numbers.exponential(0.5, TOKENS), "e"),
            }
        mean = rng.gammavariate(2, 0.2) * (1.2 - done)
        yield Rollout(
            attempt=1, time=1.7e9 + step, step=step + 1, phase="train", group=member // GROUP, sample=member % GROUP, prompt=prompt,
            completion=text, rewards={"correct": correct, "format": 1.0, "brevity": brevity}, reward=correct + 0.5 + 0.1 * brevity,
            finish_reason="length" if rng.random() < 0.05 else "stop", reference=str(chosen), advantage=rng.gauss(0, 1), length=len(text) // 4,
            mean_entropy=mean, max_entropy=mean * 5, **packed,
        )  # fmt: skip


def fill(run: Any, count: int, texts: Texts, seed: int) -> float:
    """Writes and ingests a run; the words follow in a thread as they would in a worker. Returns the seconds of the ingest alone."""
    from lab.supervision.supervisor.ingest import ingest_spool
    from trainers.contract import spool
    from trainers.contract.events import AttemptStarted

    begin = AttemptStarted(attempt=1, time=1.7e9, from_step=0, total_steps=count // STEP, pid=1, host="h", device="cpu", command=[], versions={})
    indexer = threading.Thread(target=keep_indexing, args=(stop := threading.Event(),), daemon=True)
    indexer.start()
    spent, path, lines = 0.0, run.folder / spool.SPOOL, [spool.encoder.encode(begin) + b"\n"]
    for number, event in enumerate(rollouts(count, texts, seed), 1):
        lines.append(spool.encoder.encode(event) + b"\n")
        if number % PIECE == 0 or number == count:
            with path.open("ab") as file:
                file.write(b"".join(lines))
            lines = []
            start = time.perf_counter()
            while ingest_spool(run):
                pass
            spent += time.perf_counter() - start
    path.write_bytes(b"")  # the disk of this machine is not measured
    stop.set()
    indexer.join()
    if run.rollouts != count:
        raise SystemExit(f"{run.rollouts} of {count} rollouts were stored")
    return spent


def keep_indexing(stop: threading.Event) -> None:
    from django.db import connection

    from lab.rollouts.browse.indexing import index_rollouts

    while not stop.is_set():
        index_rollouts()
        stop.wait(0.2)
    connection.close()


def fill_metrics(run: Any, names: int, steps: int) -> None:
    from lab.supervision.supervisor.ingest import ingest_spool
    from trainers.contract import spool
    from trainers.contract.events import AttemptStarted, Metrics

    rng = random.Random(names)
    begin = AttemptStarted(attempt=1, time=1.7e9, from_step=0, total_steps=steps, pid=1, host="h", device="cpu", command=[], versions={})
    lines = [spool.encoder.encode(begin) + b"\n"]
    for step in range(1, steps + 1):
        values = {f"metric/{name}": rng.gauss(0, 1) + step / steps for name in range(names)}
        lines.append(spool.encoder.encode(Metrics(attempt=1, time=1.7e9 + step, step=step, values=values, tokens=64 * step)) + b"\n")
        if step % 20_000 == 0 or step == steps:
            with (run.folder / spool.SPOOL).open("ab") as file:
                file.write(b"".join(lines))
            lines = []
            while ingest_spool(run):
                pass


def settle() -> float:
    """Until every rollout is searchable and autovacuum would have been by. Returns the seconds of the indexing."""
    from django.db import connection

    from lab.rollouts.browse.indexing import index_all

    start = time.perf_counter()
    index_all()
    spent = time.perf_counter() - start
    tables = (
        "trajectories_rollout",
        "trajectories_rollouttokens",
        "trajectories_rolloutwords",
        "trajectories_prompt",
        "browse_promptwords",
        "runs_metricchunk",
    )
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"VACUUM (ANALYZE) {table}")
        cursor.execute("CHECKPOINT")
    os.sync()  # what was loaded is on the disk before anything is measured
    return spent
