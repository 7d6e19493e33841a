"""Does the built-in policy learn every world? GRPO as the recipe "GRPO in a world" trains it, three seeds each; writes docs/worlds.json.

    python -m bench.worlds                what is not measured yet, or whose world has changed
    python -m bench.worlds rooms tables   only these
    python -m bench.worlds --json         end with one JSON object

Held-out episodes are never trained on. A curve rises when its last point is above its first by more than twice the standard error of the seeds'
differences, and by two more of a hundred at least.
"""

import argparse
import hashlib
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from bench.effect_cases import tiny
from bench.effect_digest import code_of, find_imported_names, source_of
from trainers.contract.recipes import RECIPES
from trainers.tasks.registry import WORLDS, get_task
from trainers.worlds.base import World

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "worlds.json"
SEEDS, HELDOUT = 3, 128
LEAST = 0.02  # rise: two more of a hundred episodes
PACKAGE = "trainers.worlds"
SHARED = ("base", "facts", "tool_use")  # modules that every world is made from


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="worlds; all without any")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    names = [kind.name for kind in WORLDS]
    for name in options.names or [name for name in names if not is_fresh(kept.get(name), name)]:
        kept[name] = measure_world(name)
        FILE.write_text(json.dumps({name: kept[name] for name in names if name in kept}, indent=1) + "\n")
        print(f"{name:12} {format_curve(kept[name])}", file=sys.stderr, flush=True)
    missing = [name for name in names if not is_fresh(kept.get(name), name)]
    flat = [name for name in names if name in kept and not kept[name]["rises"]]
    if options.json:
        print(json.dumps({"worlds": kept, "missing": missing, "flat": flat, "ok": not (missing or flat)}))
    return 0 if not missing else 1


def measure_world(name: str) -> dict[str, Any]:
    world = get_task(name)
    assert isinstance(world, World)
    began = time.monotonic()
    runs = [tiny.run_train(seed, heldout=HELDOUT, **read_recipe(world)) for seed in range(SEEDS)]
    curves = [[[step, values["heldout/accuracy"]] for step, values in sorted(run.heldout.items())] for run in runs]
    rises = [curve[-1][1] - curve[0][1] for curve in curves]
    error = statistics.stdev(rises) / len(rises) ** 0.5
    judged = [reward for reward in world.rewards if all(f"heldout/{reward}" in run.heldout[max(run.heldout)] for run in runs)]
    rewards = {reward: statistics.mean(run.final(f"heldout/{reward}") for run in runs) for reward in judged}  # some have no opinion of any episode
    return {
        "code": digest_world(name),
        "difficulty": next(iter(world.difficulties)),
        "heldout": HELDOUT,
        "curves": curves,
        "rewards": {reward: round(value, 4) for reward, value in rewards.items()},
        "rises": bool(statistics.mean(rises) > max(LEAST, 2 * error)),
        "seconds": round(time.monotonic() - began),
    }


def read_recipe(world: World) -> dict[str, Any]:
    """Settings of the recipe, with this world as its task and room for its episodes, as the launch form has them."""
    [stage] = next(recipe for recipe in RECIPES if recipe.name == "world").stages
    training = {key: value for key, value in stage.spec["training"].items() if key not in ("trainer", "max_steps", "max_completion_length")}
    settings = {f"training__{key}": value for key, value in {**training, "max_completion_length": world.episode_tokens}.items()}
    task = {"name": world.name, "difficulty": next(iter(world.difficulties))}
    return {"steps": stage.spec["training"]["max_steps"], "every": stage.spec["evaluation"]["every"], "task": task, **settings}


def digest_world(name: str) -> str:
    """Another one whenever the code of the world is another; its words do not count."""
    own, shared = f"{PACKAGE}.{name}", [f"{PACKAGE}.{module}" for module in SHARED]
    helpers = {module for module, _ in find_imported_names(own) if module.startswith(f"{PACKAGE}.")}
    helpers |= {other for module in helpers for other, _ in find_imported_names(module) if other.startswith(f"{PACKAGE}.")}
    text = "\n".join(code_of(source_of(module), None) for module in (*shared, own, *sorted(helpers - {own, *shared})))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def is_fresh(kept: dict[str, Any] | None, name: str) -> bool:
    return kept is not None and kept["code"] == digest_world(name)


def format_curve(kept: dict[str, Any]) -> str:
    means = [(points[0][0], statistics.mean(value for _, value in points)) for points in zip(*kept["curves"], strict=True)]
    return ", ".join(f"{step}: {value:.3f}" for step, value in means) + f" ({kept['seconds']} s)"


if __name__ == "__main__":
    sys.exit(main())
