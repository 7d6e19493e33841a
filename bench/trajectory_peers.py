"""The questions of ``bench/trajectories.py`` asked of the lab's pages and of MLflow, Trackio and Aim, which hold the same rollouts."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.peers import OFFLINE, find_peer_python
from bench.trajectory_data import GROUP, MARKERS, STEP, Texts, rollouts, settle

PEERS = ("mlflow", "trackio", "aim")
RUNS, METRICS, CURVE_STEPS = 5, 20, 2000
QUESTIONS = 8  # different ones of each view
BOUND = 1.0  # times that the fastest peer which answers right takes, over ours: at least


def measure_peers(options: Any) -> dict[str, Any]:
    """Medians by view and side, in milliseconds. Ours is a page over HTTP as a browser gets it; theirs what their client hands a script."""
    from bench.trajectories import WebProcess, make_run, say
    from lab.teams.accounts.models import Membership, Role, Team, User

    team = Team.objects.create(name="Bench", slug="bench")
    person = User.objects.create_user("bench@example.org", None)
    Membership.objects.create(team=team, user=person, role=Role.OWNER)
    texts, rng = Texts(options.seed), random.Random(options.seed)
    runs = [make_run(team, number) for number in range(1, RUNS + 2)]
    for run in runs[:RUNS]:
        ingest(run, list(write_events(options.peer_rows // RUNS // STEP, texts, run.number)))
    ingest(runs[RUNS], list(write_events(0, texts, 0)))
    settle()
    questions = list(make_questions(runs, rng))
    say(f"{sum(run.rollouts for run in runs):,} rollouts are in and searchable")
    with WebProcess(person) as web:
        ours = ask_lab(web, questions)
    asked = {
        "spools": {str(run.number): str(run.folder / "events.jsonl") for run in runs},
        "questions": [{name: value for name, value in one.items() if name != "address"} for one in questions],
    }
    told = {}
    for peer in PEERS:
        told[peer] = ask_peer(peer, asked)
        say(f"{peer} has answered")
    return summarize_peers(ours, told) | {"rollouts": sum(run.rollouts for run in runs), "curve_points": METRICS * CURVE_STEPS}


def write_events(steps: int, texts: Texts, seed: int) -> Iterator[Any]:
    """A run of so many steps of rollouts and metrics, or one of metrics alone."""
    from trainers.contract.events import AttemptStarted, Metrics

    total, rng = steps or CURVE_STEPS, random.Random(seed)
    yield AttemptStarted(attempt=1, time=1.7e9, from_step=0, total_steps=total, pid=1, host="h", device="cpu", command=[], versions={})
    events = rollouts(steps * STEP, texts, seed)
    for step in range(1, total + 1):
        for _ in range(STEP if steps else 0):
            yield next(events)
        values = {f"metric/{name}": rng.gauss(0, 1) for name in range(METRICS)}
        yield Metrics(attempt=1, time=1.7e9 + step, step=step, values=values, tokens=64 * step)


def ingest(run: Any, events: list[Any]) -> None:
    from lab.supervision.supervisor.ingest import ingest_spool
    from trainers.contract import spool

    (run.folder / spool.SPOOL).write_bytes(b"".join(spool.encoder.encode(event) + b"\n" for event in events))
    while ingest_spool(run):
        pass


def make_questions(runs: list[Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    """QUESTIONS of each view of the bench: for the peers as data, and the lab's ``address``."""
    from django.urls import reverse

    from bench.trajectories import two_best
    from lab.rollouts.trajectories.models import Prompt

    filled, browser = runs[:RUNS], reverse("rollouts")
    rare = two_best(filled)
    prompts = rng.sample(list(Prompt.across_teams.values_list("pk", "messages")), QUESTIONS)
    words = [word for word in MARKERS if word != "therefore"]
    for number in range(QUESTIONS):
        run, word = rng.choice(filled), words[number % len(words)]
        name = str(run.number)
        reward, length, step, group = rng.uniform(0.4, 1.5), rng.randint(60, 400), rng.randint(1, run.step), rng.randrange(STEP // GROUP)
        filters = {"run": name, "f": [f"reward:ge:{reward!r}", f"length:le:{length}"], "sort": "-reward"}
        two = {"run": name, "f": f"reward:ge:{rare[run.number]!r}", "sort": "-reward"}
        pk, messages = prompts[number]
        listed = {"kind": "list", "where": [], "sort": "step"}
        yield listed | {
            "view": "browser, two filters",
            "run": name,
            "where": [("reward", ">=", reward), ("length", "<=", length)],
            "sort": "reward",
            "address": f"{browser}?{urlencode(filters, doseq=True)}",
        }
        yield listed | {"view": "word in a run", "run": name, "word": word, "address": f"{browser}?run={name}&q={word}"}
        yield listed | {"view": "word in the team, newest first", "run": "", "word": word, "address": f"{browser}?q={word}"}
        matching = {"where": [("reward", ">=", rare[run.number])], "sort": "reward", "address": f"{browser}?{urlencode(two)}"}
        yield listed | {"view": "filters that match two", "run": name} | matching
        address = reverse("group", args=[run.pk, "train", step, group])
        yield {"view": "group", "kind": "group", "run": name, "step": step, "group": group, "address": address}
        yield {"view": "prompt", "kind": "prompt", "prompt": messages[-1][1], "address": reverse("prompt", args=[pk])}
        asked = {"run": name, "where": [("reward", ">=", reward)], "address": f"{reverse('rollouts-histograms')}?run={name}&f=reward:ge:{reward!r}"}
        yield {"view": "histograms", "kind": "histogram"} | asked
        curves = {"view": f"overview, {METRICS} metrics x {CURVE_STEPS:,}", "kind": "curves", "run": str(runs[RUNS].number)}
        yield curves | {"address": reverse("run-metrics", args=[runs[RUNS].pk])}


def ask_lab(web: Any, questions: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Seconds by view, the first of each (which warms up) left out."""
    spent: dict[str, list[float]] = {}
    for question in questions:
        spent.setdefault(question["view"], []).append(web.get(question["address"]) / 1000)
    return {view: seconds[1:] for view, seconds in spent.items()}


def ask_peer(peer: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What ``bench/peer_answers.py`` tells of one peer, in a process and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix=f"policy-lab-{peer}-") as folder:
        questions = Path(folder) / "questions.json"
        questions.write_text(json.dumps(asked))
        python = find_peer_python(peer)
        places = {"TRACKIO_DIR": folder, "HOME": folder}
        command = [str(python), str(Path(__file__).with_name("peer_answers.py")), peer, folder, str(questions)]
        done = subprocess.run(command, env={**os.environ, **OFFLINE, **places}, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{peer} did not answer; its error is above")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def summarize_peers(ours: dict[str, list[float]], told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    sides: dict[str, dict[str, float | None]] = {"ours": {view: in_milliseconds(seconds) for view, seconds in ours.items()}}
    for peer, one in told.items():
        answers = {view: [given for given in one["answers"] if given["view"] == view] for view in ours}
        sides[peer] = {
            view: in_milliseconds([each["seconds"] for each in given[1:]]) if all(each["right"] for each in given) else None
            for view, given in answers.items()
        }
    ratio = {}
    for view in ours:
        theirs = [figure for peer in PEERS if (figure := sides[peer][view]) is not None]
        ratio[view] = round(min(theirs) / float(sides["ours"][view] or 1), 2) if theirs else None
    return {
        "ms": sides,  # null: not answered, or not right
        "peers_ratio": ratio,
        "peers_ratio_bound": BOUND,
        "writing_s": {peer: one["writing_s"] for peer, one in told.items()},
        "ok": all(one is None or one >= BOUND for one in ratio.values()),
    }


def in_milliseconds(seconds: list[float]) -> float:
    return round(1000 * statistics.median(seconds), 1)


def report_peers(result: dict[str, Any]) -> None:
    names = list(result["ms"])
    print(f"{'p50, ms':32}" + "".join(f"{name:>10}" for name in names) + f"{'ratio':>8}")
    for view, ratio in result["peers_ratio"].items():
        cells = [result["ms"][name][view] for name in names]
        print(f"{view:32}" + "".join(f"{'-' if cell is None else cell:>10}" for cell in cells) + f"{'-' if ratio is None else ratio:>8}")
    print(f"ours at least as fast as the fastest that answers: {'ok' if result['ok'] else 'NOT OK'}", file=sys.stdout)
