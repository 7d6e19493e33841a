"""Front-end files of packages (``npm.lock``), served as static files under ``vendor/`` without copying them into the project."""

from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.utils import matches_patterns
from django.core.files.storage import FileSystemStorage

from lab.lib.npm_packages import packages_folder, read_lock

LOCK = Path(__file__).parents[2] / "npm.lock"
PREFIX = "vendor"


class NpmPackageFinder(BaseFinder):
    """``vendor/plotly-cartesian-4.1.1.min.js`` and whatever else the lock names. Raises RuntimeError where it has not been fetched."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.files = tuple(package.served_name for package in read_lock(LOCK))
        self.storage = FileSystemStorage(location=packages_folder())
        self.storage.prefix = PREFIX  # type: ignore[attr-defined]
        missing = [name for name in self.files if not self.storage.exists(name)]
        if missing:
            raise RuntimeError(f"{', '.join(missing)}: not fetched, run make setup")

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        name = path.removeprefix(f"{PREFIX}/")
        paths = [self.storage.path(name)] if path != name and name in self.files else []
        return paths if find_all else (paths[0] if paths else [])

    def list(self, ignore_patterns: Any) -> Any:
        for name in self.files:
            if not matches_patterns(name, ignore_patterns or []):
                yield name, self.storage
