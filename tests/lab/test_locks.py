"""The lock files: every file held to its hash, nothing twice, no test tool in what the image installs, and no index named."""

import re
from importlib.metadata import distribution
from pathlib import Path

from packaging.markers import Marker
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?: ; ([^\\]+?))? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def pins(name: str) -> dict[str, tuple[str, str, int]]:
    """Package → (version, marker, number of hashes). Fails on a line that is neither a pin, nor a hash, nor a comment."""
    found: dict[str, tuple[str, str, int]] = {}
    package = ""
    for line in (ROOT / name).read_text().splitlines():
        if match := PIN.match(line):
            package = canonicalize_name(match[1])
            assert package not in found, f"{name} pins {package} twice"
            found[package] = (match[2], match[3] or "", 0)
        elif HASH.match(line):
            version, marker, count = found[package]
            found[package] = (version, marker, count + 1)
        else:
            assert line.startswith("#"), f"{name}: {line}"
    return found


def direct(name: str) -> set[str]:
    lines = (ROOT / name).read_text().splitlines()
    return {canonicalize_name(match[0]) for line in lines if (match := re.match(r"[A-Za-z0-9._-]+", line))}


def test_every_pin_has_the_hashes_of_its_files() -> None:
    for name in ("requirements.lock", "requirements-test.lock", "requirements-vllm.lock"):
        assert len(pins(name)) > 20
        assert [package for package, (_, _, count) in pins(name).items() if not count] == []


def test_what_is_used_directly_is_pinned_and_torch_stays_outside() -> None:
    runtime, test = pins("requirements.lock"), pins("requirements-test.lock")
    assert direct("requirements.in") - set(runtime) == {"torch"}
    assert direct("requirements-test.in") - set(test) == set()
    assert not {package for package in (*runtime, *test) if re.match(r"torch$|triton$|cuda-|nvidia-(?!ml-py)", package)}
    assert re.search(r"^torch==", (ROOT / "requirements.in").read_text(), re.M)


def test_both_agree_on_what_both_pin() -> None:
    runtime, test = pins("requirements.lock"), pins("requirements-test.lock")
    for package in runtime.keys() & test.keys():
        assert runtime[package][0] == test[package][0], package


def test_a_worker_with_vllm_has_all_of_the_lab_and_a_vllm_that_trl_knows() -> None:
    runtime, vllm = pins("requirements.lock"), pins("requirements-vllm.lock")
    elsewhere = {"colorama", "httpx2-jsfetch", "tzdata"}  # of Windows and of the browser
    assert runtime.keys() - vllm.keys() == elsewhere
    assert {package for package in runtime.keys() - elsewhere if runtime[package][0] != vllm[package][0]} == {"numpy"}  # vLLM wants an older one
    assert f"torch=={vllm['torch'][0]}" in (ROOT / "requirements.in").read_text()
    known = re.search(
        r'Version\("([\d.]+)"\) <= _vllm_base_version <= Version\("([\d.]+)"\)',
        Path(str(distribution("trl").locate_file("trl/import_utils.py"))).read_text(),
    )
    assert known is not None
    assert Version(known[1]) <= Version(vllm["vllm"][0]) <= Version(known[2])
    assert "--require-hashes --no-deps -r requirements-vllm.lock" in (ROOT / "Dockerfile.vllm").read_text()


def test_no_test_tool_is_in_the_image() -> None:
    tools = direct("requirements-test.in") - {"pyyaml"}  # which the hub's client needs too
    assert not tools & set(pins("requirements.lock"))
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes --no-deps -r requirements.lock" in dockerfile
    assert "requirements-test" not in "".join(line for line in dockerfile.splitlines() if not line.startswith("#"))
    assert {"tests", "bench"} <= set((ROOT / ".dockerignore").read_text().split())


def test_the_lock_holds_on_both_kinds_of_machines() -> None:
    """Wheels with machine code have a file for each; what a marker takes away is taken away on neither."""
    for machine in ("x86_64", "aarch64"):
        linux = {"sys_platform": "linux", "platform_machine": machine, "python_full_version": "3.11.9", "implementation_name": "cpython"}
        linux |= {"platform_python_implementation": "CPython", "python_version": "3.11"}
        left_out = {package for package, (_, marker, _) in pins("requirements.lock").items() if marker and not Marker(marker).evaluate(linux)}
        assert left_out <= {"async-timeout", "colorama", "httpx2-jsfetch", "tzdata"}
    for package in ("numpy", "pyarrow", "tokenizers", "cryptography", "psycopg-binary"):
        assert pins("requirements.lock")[package][2] > 10, package


def test_the_makefile_installs_nothing_else() -> None:
    text = (ROOT / "Makefile").read_text()
    installs = re.findall(r"^\t\$\(INSTALL\) (.*)$", text, re.M)
    assert installs == ["--require-hashes --no-deps -r requirements.lock", '"$(TORCH)"', "--require-hashes --no-deps -r requirements-test.lock"]


def test_no_index_is_named() -> None:
    for name in ("requirements.lock", "requirements-test.lock", "requirements.in", "requirements-test.in"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        assert "index" not in re.sub(r"(?m)^#.*$", "", text)
