"""Names of static files with a hash of their content, for a lab whose files were collected (``LAB_STATIC``): a browser keeps such a file for good."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Imports between the lab's modules name hashed files too, so that each module is loaded under one address. Scripts of packages stay as they are:
    what reads like an import there stands in a comment or belongs to a loader of theirs."""

    support_js_module_import_aggregation = True
    max_post_process_passes = 20  # each pass settles the names one import further from the modules that import nothing
    keep_intermediate_files = False

    def url_converter(self, name: str, hashed_files: dict[str, str], template: str | None = None) -> Callable[[Any], str]:
        if name.endswith(".js") and not (Path(settings.BASE) / "static" / name).exists():
            return lambda match: str(match["matched"])
        convert: Callable[[Any], str] = super().url_converter(name, hashed_files, template)
        return convert
