"""Does each method do what it claims? Measures every case of ``bench/effect_cases`` against its parent and writes docs/effects.md.

    python -m bench.effects                 measure what is not measured yet, in the order of the names, and write the report
    python -m bench.effects siren rs-grpo   only these
    python -m bench.effects --times [NAME]  step time of a method relative to its parent: short runs of both in turns, on the same two cores
    python -m bench.effects --report        write docs/effects.md and docs/effects.json from what is measured

It goes on where it stopped: every seed is kept in bench/effect_cases/results/<method>.json, and measured again only when its case changes.
"""

import argparse
import ast
import hashlib
import importlib
import json
import pkgutil
import statistics
import time
from pathlib import Path
from typing import Any

from bench import effect_cases
from bench.effect_cases import Case
from bench.effects_report import write_report
from trainers.methods import registry

RESULTS = Path(__file__).parent / "effect_cases" / "results"
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
        time_steps(case) if options.times else measure(case)
    if options.report or not options.names:
        write_report(RESULTS, Path("docs"))


def all_cases(names: list[str]) -> list[Case]:
    modules = [module.name for module in pkgutil.iter_modules(effect_cases.__path__) if module.name != "tiny"]
    wanted = {name.replace("-", "_").replace(".", "_") for name in names}
    if unknown := wanted - set(modules):
        raise SystemExit(f"there is no case for {', '.join(sorted(unknown))}")
    return [importlib.import_module(f"bench.effect_cases.{module}").CASE for module in sorted(wanted or modules)]


def measure(case: Case) -> None:
    kept, code = load(case), digest(case)
    if kept.get("code") != code:
        kept = {"values": {}, "seconds": 0.0, "step_time": kept.get("step_time")}
    kept |= {"code": code, "method": case.method, "parent": case.parent, "claim": case.claim, "quantity": case.quantity}
    kept |= {"direction": case.direction, "problem": case.problem}
    for seed in range(case.seeds):
        if str(seed) in kept["values"]:
            continue
        began = time.perf_counter()
        own, parent = case.measure(seed)
        kept["values"][str(seed)] = [float(own), float(parent)]
        kept["seconds"] += time.perf_counter() - began
        store(case, kept)
        print(f"  seed {seed}: {case.method} {own:.4f}, {case.parent} {parent:.4f}", flush=True)


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


def digest(case: Case) -> str:
    """Of the case and of the method's functions and parameters, without comments and docstrings: measured again when they change."""
    method = registry.places()[registry.module_name(case.method)]
    return hashlib.blake2b((code_of(case.measure.__module__) + code_of(method)).encode(), digest_size=8).hexdigest()


def code_of(module: str) -> str:
    """What a module does; what a method's card and panels say about it is left out."""
    tree = ast.parse(Path(importlib.import_module(module).__file__ or "").read_text())
    kept = [WithoutWords().visit(node) for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | ast.If)]
    return "".join(ast.dump(node) for node in kept if node is not None)


class WithoutWords(ast.NodeTransformer):
    """Drops docstrings, cards and panels."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        return None if any(isinstance(target, ast.Name) and target.id == "card" for target in node.targets) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        return None if node.name == "panels" else self.generic_visit(node)


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
