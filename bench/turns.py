"""What several turns cost: in a step of GRPO, and on the way into the database.

- **Step**: processor time of a GRPO step (8 prompts, 8 members each) in the world search, whose episodes have up to 5 turns, over that of a step
  whose completions are one turn of as many generated tokens. Both train the built-in policy; the one-turn side solves word problems and generates as
  many tokens a completion as search did on average, no more and no fewer. Trainings take turns; the ratio is the median over the rounds of a round's
  median step over the other's, sampling, scoring and both passes included, the update of the weights left out (it is the same).
- **Ingest**: rollouts of 12 turns (a node for each turn and each answer of the world) against rollouts of one turn whose spool has as many bytes, by
  the product's own path (``bench/ingest.py``).

    python -m bench.turns [--rounds 3] [--json]
"""

import argparse
import atexit
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STEPS, WARM_UP = 10, 3
STEP_BOUND = 1.5  # times the processor time of one turn, at most
TURNS, ROLLOUTS = 12, 10_000
INGEST_BOUND = 0.6  # of the rate of one turn, at least
SEARCH = {"task": {"name": "search", "difficulty": "easy"}, "training__max_completion_length": 160}
MEMBERS = {"training__per_device_train_batch_size": 64, "training__num_generations": 8}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args()
    found = measure_steps(options.rounds) | measure_ingest(options.rounds)
    found["ok"] = found["step_ratio"] <= STEP_BOUND and found["ingest_ratio"] >= INGEST_BOUND
    print(
        f"a step of search: {found['step_ratio']} times one turn of {found['generated_tokens']} tokens, at most {STEP_BOUND}\n"
        f"ingest of {TURNS} turns: {found['ingest_ratio']} of the rate of one turn of the same bytes, at least {INGEST_BOUND}",
        file=sys.stderr if options.json else sys.stdout,
    )
    if options.json:
        print(json.dumps(found))
    return 0 if found["ok"] else 1


def measure_steps(rounds: int) -> dict[str, Any]:
    several, single, lengths = [], [], []
    for seed in range(rounds):
        spent, length = train_timed(seed, SEARCH)
        lengths.append(length)
        several.append(spent)
        with generating_exactly(round(length)):
            single.append(train_timed(seed, {"training__max_completion_length": round(length)})[0])
        print(f"round {seed}: {several[-1]:.3f} and {single[-1]:.3f} s of processor time a step, {length:.1f} tokens", file=sys.stderr, flush=True)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(several, single, strict=True))
    return {
        "step_ratio": round(ratio, 3),
        "step_bound": STEP_BOUND,
        "step_seconds": [round(statistics.median(side), 3) for side in (several, single)],
        "generated_tokens": round(statistics.mean(lengths), 1),
    }


def train_timed(seed: int, settings: dict[str, Any]) -> tuple[float, float]:
    """Median processor seconds of a step, and tokens that the policy generated for a completion on average."""
    from bench.effect_cases import tiny
    from trainers.adapters.grpo import GRPOAdapter

    spent: list[float] = []
    original = GRPOAdapter.training_step

    def timed(trainer: Any, *inputs: Any, **more: Any) -> Any:
        began = time.process_time()
        loss = original(trainer, *inputs, **more)
        spent.append(time.process_time() - began)
        return loss

    GRPOAdapter.training_step = timed
    try:
        made = tiny.train_once(tiny.spec_of(seed, steps=STEPS, heldout=0, **MEMBERS, **settings))
    finally:
        GRPOAdapter.training_step = original
    assert len(spent) == STEPS, f"{len(spent)} micro-batches in {STEPS} steps"
    return statistics.median(spent[WARM_UP:]), statistics.mean(step["completions/mean_length"] for step in made.steps[WARM_UP:])


@contextmanager
def generating_exactly(tokens: int) -> Iterator[None]:
    """Inside the block no completion ends before so many tokens; the run's limit ends it there."""
    from transformers import GenerationMixin

    generate = GenerationMixin.generate

    def generate_long(model: Any, *inputs: Any, **asked: Any) -> Any:
        return generate(model, *inputs, **asked, min_new_tokens=tokens)

    GenerationMixin.generate = generate_long
    try:
        yield
    finally:
        GenerationMixin.generate = generate


def measure_ingest(rounds: int) -> dict[str, Any]:
    """Medians over rounds of which the first warms up."""
    from bench import ingest

    home = tempfile.mkdtemp(prefix="policy-lab-bench-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)  # registered first, so run last: the services stop before
    os.chmod(home, 0o755)  # PostgreSQL runs as another user when this runs as root
    ingest.start_services(home)
    from django.db import connection

    from lab.teams.accounts.models import Team

    team = Team.objects.create(name="Turns", slug="turns")
    rates: dict[str, list[float]] = {"several": [], "single": []}
    for number in range(rounds + 1):
        several = ingest.make_events(ROLLOUTS, 2 * number, add_turns)
        single = make_as_long(several, 2 * number + 1, ingest.make_events)
        for place, (side, lines) in enumerate([("several", several), ("single", single)]):
            seconds = ingest.ingest_all(ingest.make_run(team, 2 * number + place + 1, lines), ROLLOUTS, connection)
            if number:
                rates[side].append(ROLLOUTS / seconds)
        print(f"round {number}: {sum(map(len, several)):,} and {sum(map(len, single)):,} bytes", file=sys.stderr, flush=True)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(rates["several"], rates["single"], strict=True))
    return {
        "ingest_ratio": round(ratio, 3),
        "ingest_bound": INGEST_BOUND,
        "rollouts_per_s": {side: round(statistics.median(given)) for side, given in rates.items()},
    }


def make_as_long(lines: list[bytes], seed: int, make_events: Callable[..., list[bytes]]) -> list[bytes]:
    """Rollouts of one turn whose lines have as many bytes, text and token arrays longer alike."""
    from bench.ingest import CHARACTERS, TOKENS

    short, double = (sum(map(len, make_events(64, seed, characters=CHARACTERS * times, tokens=TOKENS * times))) / 64 for times in (1, 2))
    times = 1 + (sum(map(len, lines)) / ROLLOUTS - short) / (double - short)
    return make_events(ROLLOUTS, seed, characters=round(CHARACTERS * times), tokens=round(TOKENS * times))


def add_turns(rollout: Any) -> Any:
    """The same tokens as an episode of ``TURNS`` turns with the world's answers between them."""
    import msgspec

    from bench.ingest import TOKENS
    from trainers.contract.events import RolloutNode, Turn

    edges = [round(TOKENS * place / (2 * TURNS - 1)) for place in range(2 * TURNS)]
    turns, nodes = [], [RolloutNode(0, "prompt")]
    for place, (start, end) in enumerate(itertools.pairwise(edges)):
        mine = place % 2 == 0
        turns.append(Turn("assistant" if mine else "tool", start, end))
        facts = {"tool": "search", "query": "capital of Elbonia", "hits": [place, place + 1, place + 2], "evidence": [place]} if mine else {}
        nodes.append(RolloutNode(place + 1, "policy" if mine else "world", place, start=start, end=end, facts=facts))
    return msgspec.structs.replace(rollout, turns=turns, nodes=nodes)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    sys.exit(main())
