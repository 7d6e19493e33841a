"""How fast rollouts get from the spool into PostgreSQL by the product's own path, beside a raw COPY of the same bytes.

A rollout here has a completion of 1,000 characters and 256 tokens with ids, code-point lengths, log-probabilities and entropies, packed as
the trainers pack them; groups of 8 share a prompt, and every prompt is new to the database; a step is 64 rollouts and 20 metrics.

- The product's time runs from the first read of the spool to the last commit of
  ``lab.supervision.supervisor.ingest.ingest_spool``: JSON decoding, prompts,
  ids, metrics, indexes, the check and locking of keys, the run's counters and the message to open pages are all in it.
- The raw COPY sends the very COPY streams the product sent, encoded before the clock starts, in the same batches with a commit each, into
  copies of the two tables without index, key or constraint, over the same connection. Nothing is decoded and nothing else is written.
  Its commits wait for the disk, the product's do not need to (``ingest.begin_batch``).

Rounds alternate, after a checkpoint each; the ratio is the median of those of the rounds. Services are started in a temporary folder and
stopped at the end.

With ``--peers`` the same spools are written into MLflow, Trackio, W&B offline and Aim too (``bench/ingest_peers.py``), in alternation with ours; what
is told is how many times the rollouts a second of the best that keeps token arrays ours is.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.peers import OFFLINE, find_peer_python

CHARACTERS, TOKENS, GROUP, STEP, METRICS = 1000, 256, 8, 64, 20
VOCABULARY = 32_000
RATIO_BOUND = 0.4  # of a raw COPY, at least
PEERS = ("mlflow", "trackio", "wandb", "aim")
PEERS_BOUND = 6.0  # times the best of them that keeps arrays, at least


def main() -> int:
    options = parse_arguments()
    home = tempfile.mkdtemp(prefix="policy-lab-bench-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)  # registered first, so run last: the services stop before
    os.chmod(home, 0o755)  # PostgreSQL runs as another user when this runs as root
    start_services(home)
    result = measure(options.rollouts, options.rounds, quiet=options.json)
    if options.peers:
        result |= measure_peers(options.peer_rollouts, options.peer_rounds)
        result["ok"] = result["ok"] and result["peers_ok"]
    if options.json:
        print(json.dumps(result))
    else:
        print(f"{result['rollouts_per_s']:,} rollouts/s = {result['ratio']} of a raw COPY, at least {RATIO_BOUND}")
        print(f"{result['bytes_per_rollout']:,} bytes a rollout")
    return 0 if result["ok"] else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rollouts", type=int, default=16_384, help="rollouts a round (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each kind (default %(default)s)")
    parser.add_argument("--peers", action="store_true", help="write the same rollouts into other trackers too")
    parser.add_argument("--peer-rollouts", type=int, default=4096, help="rollouts a round with them (default %(default)s)")
    parser.add_argument("--peer-rounds", type=int, default=3, help="rounds with them (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def start_services(home: str) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "LAB_RUNS"):
        os.environ.pop(name, None)
    os.environ |= {"LAB_HOME": home, "DJANGO_SETTINGS_MODULE": "lab.settings"}
    from lab import embedded

    embedded.provide_services()
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def measure(rollouts: int, rounds: int, quiet: bool) -> dict[str, Any]:
    from django.db import connection

    from lab.teams.accounts.models import Team

    team = Team.objects.create(name="Bench", slug="bench")
    product, raw, sizes = [], [], []
    for number in range(rounds + 1):  # the first round warms up and is not counted
        run = make_run(team, number, make_events(rollouts, number))
        before = table_bytes(connection)
        seconds = ingest_all(run, rollouts, connection)
        size = (table_bytes(connection) - before) / rollouts
        raw_seconds = raw_copy(run, connection)
        if not quiet:
            print(f"round {number}: product {rollouts / seconds:,.0f}/s, raw COPY {rollouts / raw_seconds:,.0f}/s, {size:,.0f} bytes", flush=True)
        if number:
            product.append(rollouts / seconds)
            raw.append(rollouts / raw_seconds)
            sizes.append(size)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(product, raw, strict=True))
    return {
        "rollouts_per_s": round(statistics.median(product)),
        "ratio": round(ratio, 3),
        "ratio_bound": RATIO_BOUND,
        "ok": ratio >= RATIO_BOUND,
        "bytes_per_rollout": round(statistics.median(sizes)),
        "raw_copy_per_s": round(statistics.median(raw)),
        "rollouts": rollouts,
        "rounds": rounds,
    }


def measure_peers(rollouts: int, rounds: int) -> dict[str, Any]:
    """Rollouts a second of ours and of each peer, medians over rounds in which all have their turn on the same spool; bytes a rollout on the disk."""
    from django.db import connection

    from lab.teams.accounts.models import Team
    from trainers.contract.spool import SPOOL

    team = Team.objects.create(name="Peers", slug="peers")
    rates: dict[str, list[float]] = {name: [] for name in ("ours", *PEERS)}
    sizes: dict[str, float] = {}
    for number in range(rounds):
        run = make_run(team, number + 1, make_events(rollouts, 1000 + number))
        for name in PEERS if number % 2 else PEERS[::-1]:
            told = write_to_peer(name, run.folder / SPOOL)
            rates[name].append(rollouts / told["seconds"])
            sizes[name] = told["bytes"] / rollouts
        rates["ours"].append(rollouts / ingest_all(run, rollouts, connection))
    medians = {name: round(statistics.median(given)) for name, given in rates.items()}
    best = max((name for name in PEERS if name != "aim"), key=medians.__getitem__)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(rates["ours"], rates[best], strict=True))
    return {
        "peers_per_s": medians,
        "peers_bytes_per_rollout": {name: round(size) for name, size in sizes.items()},
        "best_peer": best,
        "peers_ratio": round(ratio, 2),
        "peers_ratio_bound": PEERS_BOUND,
        "peers_ok": ratio >= PEERS_BOUND,
    }


def write_to_peer(name: str, spool: Path) -> dict[str, Any]:
    """What ``bench/ingest_peers.py`` tells of one peer, in a process and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix=f"policy-lab-{name}-") as folder:
        places = {"TRACKIO_DIR": folder, "WANDB_DIR": folder, "HOME": folder, "LAB_CACHE": os.environ.get("LAB_CACHE", "")}
        command = [str(find_peer_python(name)), str(Path(__file__).with_name("ingest_peers.py")), name, str(spool), folder]
        done = subprocess.run(command, env={**os.environ, **OFFLINE, **places}, stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def make_events(
    rollouts: int, seed: int, change: Callable[[Any], Any] = lambda rollout: rollout, characters: int = CHARACTERS, tokens: int = TOKENS
) -> list[bytes]:
    """The spool's lines: random words and random arrays; no prompt is that of another seed. ``change``: what becomes of each rollout's event."""
    import numpy as np

    from trainers.contract import arrays, spool
    from trainers.contract.events import Message, Metrics, Rollout

    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(3000)]

    def text(length: int) -> str:
        return " ".join(rng.choices(words, k=length // 4))[:length]

    lines = []
    for index in range(rollouts):
        step, member = divmod(index, STEP)
        if member % GROUP == 0:
            prompt = [Message("system", "Think, then answer."), Message("user", text(300))]
        lengths = numbers.multinomial(characters, np.full(tokens, 1 / tokens))
        event = Rollout(
            attempt=1, time=1.7e9 + step, step=step + 1, phase="train", group=member // GROUP, sample=member % GROUP, prompt=prompt,
            completion=text(characters).ljust(characters, "."), rewards={"correct": rng.random(), "format": 1.0, "brevity": 0.5}, reward=rng.random(),
            finish_reason="stop", reference="42", advantage=rng.gauss(0, 1), length=tokens, mean_entropy=rng.random(), max_entropy=2.5,
            ids=arrays.pack_ids(numbers.integers(0, VOCABULARY, tokens)), lengths=arrays.pack_array(lengths, "H"),
            logprobs=arrays.pack_array(-numbers.exponential(0.5, tokens), "e"), entropies=arrays.pack_array(numbers.exponential(0.5, tokens), "e"),
        )  # fmt: skip
        lines.append(spool.encoder.encode(change(event)) + b"\n")
        if member == STEP - 1:
            values = {f"metric/{name}": rng.random() for name in range(METRICS)}
            lines.append(spool.encoder.encode(Metrics(attempt=1, time=1.7e9 + step, step=step + 1, values=values, tokens=step)) + b"\n")
    return lines


def make_run(team: Any, number: int, lines: list[bytes]) -> Any:
    from lab.training.runs.models import Run
    from trainers.contract.spool import SPOOL

    run = Run.objects.create(team=team, number=number, name="bench", spec={}, recipe="grpo", trainer="grpo", task="t", policy="p")
    run.folder.mkdir(parents=True)
    (run.folder / SPOOL).write_bytes(b"".join(lines))
    return run


def ingest_all(run: Any, rollouts: int, connection: Any) -> float:
    from lab.rollouts.trajectories.models import Rollout
    from lab.supervision.supervisor.ingest import ingest_spool

    connection.cursor().execute("CHECKPOINT")
    start = time.perf_counter()
    while ingest_spool(run):
        pass
    seconds = time.perf_counter() - start
    stored = Rollout.objects.filter(run=run, tokens__isnull=False).count()
    if stored != rollouts:
        raise SystemExit(f"{stored} of {rollouts} rollouts were stored")
    return seconds


def streams(run: Any) -> Iterator[tuple[bytes, bytes]]:
    """The COPY streams of the product's batches."""
    from lab.supervision.supervisor.batch import collect_batch
    from lab.supervision.supervisor.ingest import LIMIT
    from lab.supervision.supervisor.rows import rollout_rows, token_rows
    from trainers.contract import spool

    offset = 0
    while lines := list(spool.read_spool_lines(run.folder / spool.SPOOL, offset, LIMIT)):
        offset = lines[-1].end
        batch = collect_batch(run, lines)
        count = len(batch.rollouts)
        ids = range(offset, offset + count)
        yield b"".join(rollout_rows(run.pk, batch.rollouts, ids, [1] * count)), b"".join(token_rows(batch.rollouts, ids))


def raw_copy(run: Any, connection: Any) -> float:
    from django.db import transaction

    from lab.supervision.supervisor.rows import ROLLOUT_COLUMNS, TOKEN_COLUMNS

    ready = list(streams(run))
    with connection.cursor() as cursor:
        for table in ("rollout", "rollouttokens"):
            cursor.execute(f"DROP TABLE IF EXISTS raw_{table}")
            cursor.execute(f"CREATE TABLE raw_{table} (LIKE trajectories_{table} INCLUDING STORAGE)")
        cursor.execute("ALTER TABLE raw_rollouttokens SET (toast_tuple_target = 8160)")
        cursor.execute("CHECKPOINT")
        start = time.perf_counter()
        for rows, tokens in ready:
            with transaction.atomic():
                with cursor.copy(f"COPY raw_rollout ({ROLLOUT_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
                    copy.write(rows)
                with cursor.copy(f"COPY raw_rollouttokens ({TOKEN_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
                    copy.write(tokens)
        return time.perf_counter() - start


def table_bytes(connection: Any) -> int:
    tables = ("trajectories_rollout", "trajectories_rollouttokens", "trajectories_prompt")
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name", [list(tables)])
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    sys.exit(main())
