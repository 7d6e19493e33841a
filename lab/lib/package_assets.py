"""Front-end assets that Python packages carry, served as static files without copying them into the project."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.utils import matches_patterns
from django.core.files.storage import FileSystemStorage


class PlotlyFinder(BaseFinder):
    """``vendor/plotly.min.js`` out of the plotly package; the package is not imported (that takes a second)."""

    files = ("plotly.min.js",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        spec = find_spec("plotly")
        if spec is None or spec.origin is None:
            raise RuntimeError("the package plotly is not installed: run make setup")
        self.storage = FileSystemStorage(location=Path(spec.origin).parent / "package_data")
        self.storage.prefix = "vendor"  # type: ignore[attr-defined]

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        name = path.removeprefix("vendor/")
        paths = [self.storage.path(name)] if path != name and name in self.files else []
        return paths if find_all else (paths[0] if paths else [])

    def list(self, ignore_patterns: Any) -> Any:
        for name in self.files:
            if not matches_patterns(name, ignore_patterns or []):
                yield name, self.storage
