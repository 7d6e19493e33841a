"""Does each method do what it claims? Measures every case of ``bench/effect_cases`` against its parent and writes docs/effects.md.

    python -m bench.effects                 measure what is not measured yet, in the order of the names, and write the report
    python -m bench.effects siren rs-grpo   only these
    python -m bench.effects --times [NAME]  step time of a method relative to its parent: short runs of both in turns, on the same two cores
    python -m bench.effects --report        write docs/effects.md and docs/effects.json from what is measured

It goes on where it stopped: every seed is kept in bench/effect_cases/results/<method>.json, and measured again only when what it depends on changes
(bench/effect_digest.py). Until then the report calls the old result stale.
"""

import argparse
import importlib
import json
import pkgutil
import statistics
import time
from pathlib import Path
from typing import Any

from bench import effect_cases
from bench.effect_cases import Case
from bench.effect_digest import digest_case
from bench.effects_report import write_report
from trainers.methods import registry

RESULTS = Path(__file__).parent / "effect_cases" / "results"
DOCS = Path(__file__).resolve().parents[1] / "docs"
HELPERS = {"tiny"}  # modules beside the cases that are none
BLOCKS, STEPS = 2, 12  # of the step-time comparison: runs of each, steps a run
SMALL_DATA = {"dpo": {"training__sampled_prompts": 160}, "sft": {"training__demonstrations": 512}}  # what is trained on does not change a step's time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="methods; all without any")
    parser.add_argument("--times", action="store_true", help="compare step times instead of effects")
    parser.add_argument("--report", action="store_true", help="only write the report")
    options = parser.parse_args()
    cases = all_cases(options.names)
    for case in [] if options.report else cases:
        print(f"{case.method} ...", flush=True)
        if not options.times:
            measure(case)
        elif is_method(case):
            time_steps(case)
    write_report([(case, load(case), digest_case(case)) for case in all_cases([])], DOCS)


def all_cases(names: list[str]) -> list[Case]:
    modules = [module.name for module in pkgutil.iter_modules(effect_cases.__path__) if module.name not in HELPERS]
    wanted = {registry.module_name(name) for name in names}
    if unknown := wanted - set(modules):
        raise SystemExit(f"there is no case for {', '.join(sorted(unknown))}")
    return [importlib.import_module(f"bench.effect_cases.{module}").CASE for module in sorted(wanted or modules)]


def is_method(case: Case) -> bool:
    return registry.module_name(case.method) in registry.find_method_modules()


def measure(case: Case) -> None:
    """Runs the seeds that are missing; all of them when the result is stale."""
    kept, code = load(case), digest_case(case)
    if kept.get("code") != code:
        kept = {"method": case.method, "code": code, "values": {}, "seconds": 0.0, "step_time": kept.get("step_time")}
    for seed in range(case.seeds):
        if str(seed) in kept["values"]:
            continue
        began = time.perf_counter()
        pairs = case.measure(seed)
        kept["values"][str(seed)] = {quantity.name: list(pairs[quantity.name]) for quantity in case.quantities}
        kept["seconds"] += time.perf_counter() - began
        store(case, kept)
        print(f"  seed {seed}: " + "; ".join(f"{name} {own:.4f} against {parent:.4f}" for name, (own, parent) in pairs.items()), flush=True)


def time_steps(case: Case) -> None:
    """Medians over blocks that alternate, so that a busy minute slows both."""
    from bench.effect_cases.tiny import step_seconds

    launch = {"steps": STEPS, "heldout": 0, **case.launch, **SMALL_DATA.get(case.launch.get("trainer", "grpo"), {})}
    config = launch.pop("config", None)
    seconds: dict[str, list[float]] = {"": [], case.method: []}
    for block in range(BLOCKS):
        for name in ("", case.method):
            seconds[name] += step_seconds(block, name, config=config if name else None, **launch)
    parent, own = (statistics.median(seconds[name]) for name in ("", case.method))
    store(case, load(case) | {"method": case.method, "parent": case.parent, "step_time": {"parent": parent, "method": own, "ratio": own / parent}})
    print(f"  {own:.3f} s against {parent:.3f} s a step: x {own / parent:.2f}", flush=True)


def file_of(case: Case) -> Path:
    return RESULTS / f"{case.method}.json"


def load(case: Case) -> dict[str, Any]:
    file = file_of(case)
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def store(case: Case, kept: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    file_of(case).write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
