"""Front-end files out of packages of the npm registry: fetched by ``make setup``, held to a hash, one file of each package.

``python -m lab.lib.npm_packages npm.lock`` fetches what a lock file names and this environment lacks. ``NPM_CONFIG_REGISTRY`` names another
registry, as it does for npm; a ``file:`` address is one too. ``--archives FOLDER`` before the locks keeps the packages' archives in a folder that
is laid out as a registry is, for machines without a network.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
import tarfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

REGISTRY = "https://registry.npmjs.org"
MOST_BYTES = 20 * 2**20  # of an archive, and of the file in it
SECONDS = 60
TRIES = 3


class FetchError(Exception):
    """A package could not be had, or is not the one that was locked; the message says which and what to do."""


@dataclass(frozen=True)
class NpmPackage:
    name: str
    version: str
    file: str  # in the package; no folder
    integrity: str  # "sha512-" and the base64 of the archive's digest

    @property
    def archive(self) -> str:
        """Where a registry has it."""
        return f"{self.name}/-/{self.name.rsplit('/', 1)[-1]}-{self.version}.tgz"

    @property
    def served_name(self) -> str:
        """The name says the version, so that browsers may keep the file for good."""
        stem, dot, ending = self.file.partition(".")
        return f"{stem}-{self.version}{dot}{ending}"


def read_lock(path: Path) -> list[NpmPackage]:
    """Raises ValueError for a line that is none."""
    lines = [line.split() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    for number, parts in enumerate(lines, 1):
        if len(parts) != 4 or not parts[3].startswith("sha512-") or "/" in parts[2]:
            raise ValueError(f"{path.name}, package {number}: expected name, version, file and sha512-…")
    return [NpmPackage(*parts) for parts in lines]


def packages_folder() -> Path:
    """Where this environment keeps them; the folder of the virtual environment, so that removing it removes them."""
    return Path(sys.prefix) / "share" / "policy-lab"


def download_archive(url: str) -> bytes:
    """Raises FetchError after the third failure."""
    for tries_left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                data: bytes = answer.read(MOST_BYTES + 1)
            break
        except (urllib.error.URLError, OSError) as error:
            if not tries_left:
                raise FetchError(f"{url}: {error}. Behind a mirror, name it: NPM_CONFIG_REGISTRY=https://…") from error
            time.sleep(1)
    if len(data) > MOST_BYTES:
        raise FetchError(f"{url}: more than {MOST_BYTES // 2**20} MiB")
    return data


def extract_file(archive: bytes, package: NpmPackage) -> bytes:
    """The package's one file. Raises FetchError for an archive that is not the locked one or lacks the file."""
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if found != package.integrity:
        raise FetchError(f"{package.name} {package.version}: the archive's hash is {found}, the lock says {package.integrity}")
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
        for member in files:
            if member.isfile() and member.name == f"package/{package.file}" and member.size <= MOST_BYTES:
                content = files.extractfile(member)
                assert content is not None
                return content.read()
    raise FetchError(f"{package.name} {package.version} has no file {package.file}")


def fetch_package(package: NpmPackage, folder: Path, registry: str) -> bool:
    """Puts the package's file into the folder under its served name; False if it lies there. Raises FetchError."""
    target = folder / package.served_name
    if target.is_file():
        return False
    write_whole(target, extract_file(download_archive(f"{registry.rstrip('/')}/{package.archive}"), package))
    return True


def keep_archive(package: NpmPackage, folder: Path, registry: str) -> None:
    """Puts the package's whole archive where a registry in the folder has it. Raises FetchError."""
    archive = download_archive(f"{registry.rstrip('/')}/{package.archive}")
    extract_file(archive, package)  # held to the lock here, not only where it is unpacked
    write_whole(folder / package.archive, archive)


def write_whole(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(target)


def main(arguments: list[str]) -> int:
    registry = os.environ.get("NPM_CONFIG_REGISTRY") or REGISTRY
    archives, locks = (Path(arguments[1]), arguments[2:]) if arguments[:1] == ["--archives"] else (None, arguments)
    try:
        for package in [package for lock in locks for package in read_lock(Path(lock))]:
            if archives is None:
                fetch_package(package, packages_folder(), registry)
            else:
                keep_archive(package, archives, registry)
    except (FetchError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
