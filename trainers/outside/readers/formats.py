"""All formats that ``send --from`` reads, and which of them a path holds."""

from __future__ import annotations

from pathlib import Path

from trainers.outside.readers import mlflow_store, nemo_rl, openrlhf, prime_rl, skyrl, slime, tensorboard, trackio_store, trl, verl, wandb_offline
from trainers.outside.readers.base import SourceError, SourceFormat

MODULES = (verl, trl, prime_rl, skyrl, slime, nemo_rl, openrlhf, tensorboard, wandb_offline, trackio_store, mlflow_store)
FORMATS: dict[str, SourceFormat] = {module.FORMAT.name: module.FORMAT for module in MODULES}
AUTO = "auto"


def find_format(name: str, path: Path) -> SourceFormat:
    """The format called ``name``, or with ``auto`` the one that the path holds. Raises SourceError."""
    if name != AUTO and name not in FORMATS:
        raise SourceError(f"there is no format {name!r}: use {AUTO} or one of {', '.join(FORMATS)}")
    if not path.exists():
        raise SourceError(f"{path} is not there")
    looked_at = FORMATS.values() if name == AUTO else [FORMATS[name]]
    for one in looked_at:
        if one.recognize(path):
            return one
    looked_for = "\n".join(f"  {one.name}: {one.looks_for}" for one in looked_at)
    raise SourceError(f"{path} holds no rollouts or metrics of a known format. Looked for:\n{looked_for}")
