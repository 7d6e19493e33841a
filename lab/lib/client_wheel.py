"""The client as a wheel, made of the repository's own modules: ``policy_lab/`` and what it imports of ``trainers/``.

Those modules stand in the wheel as ``policy_lab._trainers``, and their imports say so, so that a client is installed beside a whole ``trainers``
without either seeing the other. A wheel is a zip file with a list of hashes (https://packaging.python.org/en/latest/specifications/
binary-distribution-format/): it is written here, without a build tool, the same bytes from the same sources. ``python -m lab.lib.client_wheel
FOLDER`` writes it there; the lab serves it at ``/client/``.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, SOURCE = "policy_lab", "trainers"
WITHIN = f"{PACKAGE}._{SOURCE}"  # what SOURCE is called in the wheel
WHOLE = ("policy_lab", "trainers/outside")  # folders of which every module goes along; of the rest, what they import
VERSION = "0.1.0"
PYTHON = ">=3.11"
MADE_AT = (1980, 1, 1, 0, 0, 0)  # of every file, so that the bytes depend on the sources alone
TAG = "py3-none-any"
METADATA = """\
Metadata-Version: 2.1
Name: policy-lab
Version: {version}
Summary: The client of Policy Lab: read, launch and follow runs, and send the runs of your own scripts
License: Apache-2.0
Requires-Python: {python}
Requires-Dist: msgspec>=0.20
"""
WHEEL = f"""\
Wheel-Version: 1.0
Generator: policy_lab
Root-Is-Purelib: true
Tag: {TAG}
"""
ENTRY_POINTS = """\
[console_scripts]
policy_lab = policy_lab.commands:main
"""


@dataclass(frozen=True)
class ClientWheel:
    """``version`` ends with a digest of the sources, so that another client has another name."""

    name: str
    version: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@cache
def load_client_wheel() -> ClientWheel:
    """Built once in a process: the sources of a process that runs do not change."""
    return build_client_wheel(ROOT)


def build_client_wheel(root: Path) -> ClientWheel:
    files = {place_in_wheel(path): rewrite_imports(text) for path, text in read_client_modules(root).items()}
    files[f"{PACKAGE}/_{SOURCE}/__init__.py"] = f'"""Modules of {SOURCE} that the client needs."""\n'
    files[f"{PACKAGE}/py.typed"] = ""
    license_text = (root / "LICENSE").read_text()
    digest = hashlib.sha256(repr((sorted(files.items()), METADATA, WHEEL, ENTRY_POINTS, license_text)).encode()).hexdigest()
    version = f"{VERSION}+c{digest[:10]}"
    about = f"{PACKAGE}-{version}.dist-info"
    files |= {
        f"{about}/METADATA": METADATA.format(version=version, python=PYTHON),
        f"{about}/WHEEL": WHEEL,
        f"{about}/entry_points.txt": ENTRY_POINTS,
        f"{about}/LICENSE": license_text,
    }
    return ClientWheel(f"{PACKAGE}-{version}-{TAG}.whl", version, zip_wheel_files(files, f"{about}/RECORD"))


def zip_wheel_files(files: dict[str, str], record: str) -> bytes:
    """With the list of all files and their hashes, which stands last and without a hash of its own."""
    lines = [f"{name},sha256={hash_for_record(text.encode())},{len(text.encode())}" for name, text in sorted(files.items())]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in [*sorted(files.items()), (record, "\n".join([*lines, f"{record},,"]) + "\n")]:
            entry = zipfile.ZipInfo(name, MADE_AT)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)
    return buffer.getvalue()


def hash_for_record(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def read_client_modules(root: Path) -> dict[str, str]:
    """Path in the repository to text, of every module that goes along but the package ``trainers`` itself, which only sets up training."""
    waiting = [path.relative_to(root) for folder in WHOLE for path in sorted((root / folder).rglob("*.py"))]
    texts: dict[str, str] = {}
    while waiting:
        path = waiting.pop()
        if path.as_posix() in texts or path == Path(SOURCE, "__init__.py"):
            continue
        texts[path.as_posix()] = text = (root / path).read_text()
        waiting += [folder / "__init__.py" for folder in path.parents if (root / folder / "__init__.py").is_file() and folder != Path()]
        for module in list_source_imports(text):
            place = Path(*module.split("."))
            waiting += [found for found in (place.with_suffix(".py"), place / "__init__.py") if (root / found).is_file()]
    return texts


def list_source_imports(text: str) -> Iterator[str]:
    """What the module imports of SOURCE, anywhere in it; ``from a import b`` counts as a and as a.b."""
    for node in find_source_imports(text):
        yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))


def find_source_imports(text: str) -> Iterator[ast.ImportFrom]:
    """Raises ValueError for an import that could not be given another name: ``import a.b``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == SOURCE for alias in node.names):
            raise ValueError(f"line {node.lineno}: write from {SOURCE}… import …")
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == SOURCE:
            yield node


def rewrite_imports(text: str) -> str:
    """With SOURCE called what it is called in the wheel; nothing else changes, lines keep their numbers."""
    lines = text.splitlines(keepends=True)
    for node in find_source_imports(text):
        at = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[:at] + line[at:].replace(f"from {SOURCE}", f"from {WITHIN}", 1)
    return "".join(lines)


def place_in_wheel(path: str) -> str:
    return path if path.startswith(f"{PACKAGE}/") else f"{PACKAGE}/_{path}"


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else "dist")
    folder.mkdir(parents=True, exist_ok=True)
    wheel = build_client_wheel(ROOT)
    (folder / wheel.name).write_bytes(wheel.data)
    print(f"{folder / wheel.name} ({len(wheel.data) / 1000:.0f} kB): pip install {folder / wheel.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
