"""Incidents of code: what would run text or data as a program is not in the source at all. Named after what happened elsewhere (docs/security.md)."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE)
SOURCES = sorted(path for package in ("lab", "trainers") for path in (ROOT / package).rglob("*.py"))
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
SCRIPTS = sorted((ROOT / "static").rglob("*.js"))
EXPORTED = ROOT / "templates" / "reports" / "export.html"
FORBIDDEN_CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "subprocess.getoutput", "commands.getoutput", "yaml.load", "yaml.unsafe_load"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# Where a module's name is worked out; each takes it from the installation, none from a request: the fork server from the lab's own process.
IMPORTERS = {"lab/lib/fork_server.py", "trainers/methods/registry.py", "trainers/tasks/registry.py", "lab/lib/known_migrations.py"}
# People's reward functions are programs. They run in the sandbox only (tests/trainers/test_sandbox_attacks.py), whose own modules may run text and
# offer the modules of a fixed list; the check of a function's syntax compiles it and runs nothing.
SANDBOXED = {
    "trainers/sandbox/modules.py": {"exec", "compile", "importlib.import_module"},
    "trainers/sandbox/answers.py": {"importlib.import_module"},
}
SYNTAX_CHECKS = {"trainers/rewards/definition_checks.py": {"compile"}}
INERT_UNPICKLER = ROOT / "trainers/outside/readers/torch_archive.py"  # what it makes of hostile pickles: tests/trainers/outside_readers


def name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@cache
def calls() -> list[tuple[str, ast.Call]]:
    trees = ((str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES)
    return [(name, node) for name, tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def keyword(call: ast.Call, name: str) -> object:
    """The constant given for it; the expression where it is none."""
    found = next((one.value for one in call.keywords if one.arg == name), None)
    return found.value if isinstance(found, ast.Constant) else found


def test_clearml_cve_2024_24590_nothing_is_unpickled() -> None:
    found = []
    for path in SOURCES:
        if path == INERT_UNPICKLER:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )
            found += [f"{path.relative_to(ROOT)} imports {name}" for name in names if name.split(".")[0] in FORBIDDEN_MODULES]
    assert found == []


def test_the_one_unpickler_makes_no_class_that_a_file_names() -> None:
    """Runs of slime come as pickles: every name in one becomes a stand-in, and neither ``load`` nor the lookup of Python's own is ever called."""
    tree = ast.parse(INERT_UNPICKLER.read_text(encoding="utf-8"))
    used = {name_of(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and name_of(node).startswith("pickle.")}
    assert used == {"pickle.Unpickler", "pickle.UnpicklingError"}
    [unpickler] = [node for node in tree.body if isinstance(node, ast.ClassDef) and "pickle.Unpickler" in map(name_of, node.bases)]
    [lookup] = [node for node in unpickler.body if isinstance(node, ast.FunctionDef) and node.name == "find_class"]
    called = {name_of(node.func) for node in ast.walk(lookup) if isinstance(node, ast.Call)}
    assert called == {"name.startswith", "name.isidentifier", "type"}


def test_torch_cve_2025_32434_weights_alone_are_loaded_and_by_a_version_that_keeps_it() -> None:
    assert tuple(map(int, version("torch").split("+")[0].split(".")[:2])) >= (2, 6)
    loads = [(path, call) for path, call in calls() if name_of(call.func) == "torch.load"]
    assert [path for path, call in loads if keyword(call, "weights_only") is not True] == []


def test_llama_factory_cve_2026_58116_code_that_comes_with_a_model_is_never_trusted() -> None:
    trusted, silent = [], []
    for path, call in calls():
        if keyword(call, "trust_remote_code") not in (None, False):
            trusted.append(path)
        loads = name_of(call.func).endswith(("AutoModelForCausalLM.from_pretrained", "AutoTokenizer.from_pretrained"))
        if loads and keyword(call, "trust_remote_code") is not False:
            silent.append(f"{path}:{call.lineno}")
    assert trusted == []
    assert silent == [], "say trust_remote_code=False: the default is another library's to change"


def test_llama_factory_cve_2024_52803_no_shell_and_no_evaluated_text() -> None:
    allowed = SANDBOXED | SYNTAX_CHECKS
    found = [
        f"{path}:{call.lineno} {name_of(call.func)}"
        for path, call in calls()
        if name_of(call.func) in FORBIDDEN_CALLS and name_of(call.func) not in allowed.get(path, ())
    ]
    found += [f"{path}:{call.lineno} shell" for path, call in calls() if keyword(call, "shell") not in (None, False)]
    found += [f"{path}:{call.lineno} {name_of(call.func)}" for path, call in calls() if name_of(call.func) in ("os.execl", "os.spawnl", "pty.spawn")]
    assert found == []


def test_unsloth_6479_rewards_and_tasks_are_installed_code_or_run_in_the_sandbox() -> None:
    """A module's name is worked out from entry points and the catalogue only; what is written in a browser runs where a module can do nothing."""
    dynamic = {path for path, call in calls() if name_of(call.func) in ("importlib.import_module", "import_module", "__import__", "runpy.run_path")}
    assert dynamic - IMPORTERS - set(SANDBOXED) <= {path for path in dynamic if path.startswith("lab/training/workers/")}


def test_django_and_celery_are_versions_without_the_known_holes() -> None:
    assert tuple(map(int, version("django").split(".")[:3])) >= (5, 2, 8)
    assert tuple(map(int, version("celery").split(".")[:2])) >= (5, 2)
    assert tuple(map(int, version("channels").split(".")[:2])) >= (3, 0)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_a_template_trusts_no_text_and_holds_no_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path == EXPORTED:  # the lab serves it as a download only; its own policy allows its styles and nothing else
        policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in text
        text = text.replace('<style>\n{% include "reports/export.css" %}\n</style>', "")
    for what, pattern in {
        "a filter or tag that trusts text": r"\|\s*safe\b|\|\s*safeseq\b|autoescape off",
        "an inline script": r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>",
        "an inline style": r"<style\b|\sstyle\s*=",
        "a handler as an attribute": r"\son[a-z]+\s*=\s*[\"'{]|\bhx-on\b|hx-vals=[\"']js:|hx-headers=[\"']js:",
        "something from elsewhere": r"(?:src|href)\s*=\s*[\"'](?:https?:)?//(?!github\.com|huggingface\.co|arxiv\.org)",
        "a link that opens the lab to its target": r"target=[\"']_blank[\"'](?![^>]*rel=[\"'][^\"']*noopener)",
    }.items():
        assert not re.search(pattern, text), what


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_aim_cve_2024_6578_a_script_writes_text_not_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for pattern in (
        r"\.(inner|outer)HTML\s*\+?=[^=]",
        r"insertAdjacentHTML",
        r"document\.write",
        r"\beval\(",
        r"new Function",
        r"setTimeout\(\s*[\"'`]",
        r"createContextualFragment",
    ):
        assert not re.search(pattern, text), pattern
    assert not re.search(r"setAttribute\(\s*[\"'](style|on\w+)[\"']|cssText", text), "set styles one by one: the policy forbids the attribute"
