"""What a measured effect depends on, as a digest: a result whose digest is no longer that of the code is stale.

Covered are a case, its method, the helpers of ``bench`` that the case uses, and what case and method import of ``trainers`` and ``bench``
themselves: of a module the names that are imported, with what of the same module they use (not what those import in turn). Words are left out:
docstrings, comments, annotations, cards, panels, the texts of parameters and of a CASE, the class variables that only say how a method stacks, and
the hooks of ``Method`` itself, because only hooks that a method fills are called.
"""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bench.effect_cases import Case
from trainers.methods import registry
from trainers.methods.base import HOOKS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("trainers", "bench")
# Modules that only say things: the forms of cards and cases, and this one, which says what is stale.
WORDS = {"trainers.methods.card", "bench.effect_cases", "bench.effect_digest"}
SAYING = {
    "card",
    "roles",
    "idle",
    "owns",
    "excludes",
    "cautions",
    "whole_answers",
    "requires",
    "worlds",
    "trains",
    "several_rows",
    "reads_pairs",
    "token_mean",
}  # class variables that compute nothing
SHOWN = {"title", "unit", "advanced"}  # of a parameter: for the form alone, as its help is


def digest_case(case: Case) -> str:
    """16 hexadecimal digits; another one whenever the code behind a case's numbers is another."""
    covered = find_covered_names(case.measure.__module__, registry.find_method_modules().get(registry.module_name(case.method)))
    text = "\n".join(sorted(code_of(source_of(module), names) for module, names in covered.items()))  # whatever the modules are called
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


Names = frozenset[str] | None  # of a module's definitions; None: all


def find_covered_names(case: str, method: str | None) -> dict[str, Names]:
    """Module → what of it counts. ``method``: None for a system that is none; its case imports what it measures."""
    helpers, waiting = set[str](), [case]
    while waiting:
        module = waiting.pop()
        if module not in helpers | WORDS:
            helpers.add(module)
            waiting += [name for name, _ in find_imported_names(module) if name.startswith("bench.")]
    own = {method} if method else set()
    covered = dict[str, Names](dict.fromkeys(helpers | own))
    for module, names in (imported for importer in (case, *own) for imported in find_imported_names(importer)):
        known = covered.get(module, frozenset())
        covered[module] = None if names is None or known is None else known | names
    return {module: covered[module] for module in sorted(covered) if module not in WORDS}


def find_imported_names(module: str) -> Iterator[tuple[str, Names]]:
    """Modules of the project that a module imports, also inside its functions, and the names it takes; what is imported for types is not used."""
    for top in ast.parse(source_of(module)).body:
        for node in [] if isinstance(top, ast.If) else ast.walk(top):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
                for name in node.names:
                    inner = f"{node.module}.{name.name}"
                    yield (inner, None) if file_of(inner) else (node.module, frozenset({name.name}))
            elif isinstance(node, ast.Import):
                yield from ((name.name, None) for name in node.names if name.name.split(".")[0] in PACKAGES)


def file_of(module: str) -> Path | None:
    """Where the source of a module is; None for what is no module."""
    place = ROOT.joinpath(*module.split("."))
    return next((file for file in (place.with_suffix(".py") if place.name else place, place / "__init__.py") if file.is_file()), None)


def source_of(module: str) -> str:
    file = file_of(module)
    if file is None:
        raise LookupError(f"{module} is no module of the project")
    return file.read_text()


@cache
def code_of(source: str, names: Names = None) -> str:
    """What a module does, or those definitions of it and what of it they use, without what it says."""
    kept = [node for node in ast.parse(source).body if not isinstance(node, ast.Import | ast.ImportFrom | ast.If)]
    if names is not None:
        kept = select_definitions(kept, names)
    shown = [WithoutWords().visit(node) for node in kept]
    return "\n".join(ast.unparse(node) for node in shown if node is not None and not assigns(node, {"CASE"}))


def select_definitions(nodes: list[ast.stmt], names: frozenset[str]) -> list[ast.stmt]:
    """The statements that define the names, those that define what is used there, and so on, in their order."""
    wanted, waiting = set[int](), set(names)
    while waiting:
        found = {place for place, node in enumerate(nodes) if place not in wanted and list_defined_names(node) & waiting}
        wanted |= found
        waiting = {used.id for place in found for used in ast.walk(nodes[place]) if isinstance(used, ast.Name)}
    return [node for place, node in enumerate(nodes) if place in wanted]


def list_defined_names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}


def assigns(node: ast.AST, names: set[str]) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id in names for target in targets)


class WithoutWords(ast.NodeTransformer):
    """Drops docstrings, annotations, cards, panels, unfilled hooks, what a method says about stacking, and the texts of parameters."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        left_out = {"panels", *(HOOKS if node.name == "Method" else ())}
        node.body = [part for part in node.body if not assigns(part, SAYING) and getattr(part, "name", "") not in left_out]
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "param":
            node.args, node.keywords = node.args[:1], [word for word in node.keywords if word.arg not in SHOWN]
        return self.generic_visit(node)


@cache
def digest_sources() -> str:
    """Of all of ``trainers``: what a whole training depends on."""
    files = sorted((ROOT / "trainers").rglob("*.py"))
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=8).hexdigest()
