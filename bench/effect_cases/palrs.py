"""A steering vector from pairs of shown and missing working, against the frozen policy, and beside DPO on the same pairs."""

import json
import random
from pathlib import Path
from typing import Any

from bench import procedure_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.tasks import registry
from trainers.tasks.answers import write_answer

PAIRS, ROUNDS, DPO_STEPS, HELD_OUT, MOST = 256, 9, 30, 256, 2.0
NAME, SHOWN = "mini_gsm", "shown"
TASK = {"name": NAME, "difficulty": "easy", "rewards": {"correct": 0.0}}
# The preferred property: an equation stands where the working has to be.
PROPERTY = {"name": SHOWN, "definition": {"kind": "library", "function": "regex", "config": {"pattern": "<think>[0-9]"}}, "weight": 1.0}
FARTHEST = 5  # of a guess from the answer, as in the demonstrations of the cold start


def write_pairs(seed: int) -> Path:
    """Answers with the whole working, preferred to guesses without any; a guess is right as often as any other within ``FARTHEST``."""
    task, rng = registry.get_task(NAME), random.Random(f"palrs/{seed}")
    rows = [
        {
            "prompt": example.prompt[0].content,
            "chosen": task.gold(example),
            "rejected": write_answer([], str(max(0, int(example.reference) + rng.randint(-FARTHEST, FARTHEST)))),
        }
        for example in task.examples("pairs", PAIRS, seed, "easy")
    ]
    folder = tiny.kept_folder(f"palrs-{seed}")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def measure(seed: int) -> Pairs:
    settings: dict[str, Any] = {"task": TASK, "rewards": [PROPERTY], "dataset": {"path": str(write_pairs(seed))}, "every": 0, "heldout": HELD_OUT}
    own = procedure_runs.run_rounds(seed, "palrs", {"most": MOST}, steps=ROUNDS, **settings)
    dpo = tiny.run_train(seed, trainer="dpo", steps=DPO_STEPS, **settings)
    frozen, name = own.heldout[0], f"heldout/{SHOWN}"
    far, still = (min(step[f"palrs/log_perplexity/{place}"] for place in (1, 2)) for step in (own.steps[-1], own.steps[0]))
    return {
        SHOWN: (own.final(name), frozen[name]),
        "beside DPO": (own.final(name), dpo.final(name)),
        "log-perplexity": (far, still),
        tiny.ACCURACY.name: (own.final("heldout/accuracy"), frozen["heldout/accuracy"]),
    }


CHOSEN_BY = "layer and alpha are chosen by it, on training prompts"
CASE = Case(
    method="palrs",
    parent="procedure",
    claim="Without training, a vector from pairs makes more held-out answers have what is preferred; far along it chosen texts become unlikely.",
    quantities=(
        Quantity(SHOWN, "held-out answers that show working", "higher", 0.02, "two more of a hundred answers", by_construction=CHOSEN_BY),
        Quantity(
            "beside DPO",
            f"held-out answers that show working, the parent being {DPO_STEPS} steps of DPO on the same pairs",
            "higher",
            0.02,
            "two more of a hundred answers",
            by_construction=CHOSEN_BY,
        ),
        Quantity(
            "log-perplexity",
            f"log-perplexity of held-out chosen answers at alpha {MOST:g}, in the layer where it is lower; the parent at alpha 0, nats a token",
            "higher",
            0.1,
            "a tenth more nats a token",
        ),
        tiny.ACCURACY,
    ),
    problem=f"word problems, frozen tiny policy, {PAIRS} pairs, {ROUNDS} rounds of the grid",
    measure=measure,
    seeds=3,
    changed="the property was right working at first, which the steered policy does not reach, and states were means over answers",
)
