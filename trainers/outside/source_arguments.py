"""The arguments of ``send`` that read another framework's files, and what they ask for; imports nothing heavy, so that help comes at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainers.outside.readers.base import ReaderOptions, SourceError

TRAINERS = ("grpo", "dpo", "kto", "sft", "reward", "other")


@dataclass(frozen=True)
class SourceRequest:
    """What the command line asks for. ``sources``: (format, path) of each; ``keep``: where the run is kept, None for a folder of its own."""

    sources: Sequence[tuple[str, Path]]
    follow: bool = False
    wait: float = 60.0
    name: str = ""
    trainer: str = ""
    keep: Path | None = None
    options: ReaderOptions = field(default_factory=ReaderOptions)


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        action="append",
        metavar=("FORMAT", "PATH"),
        help="read the files that another framework writes to PATH (default: this folder): a format of docs/formats.md, or auto; may be repeated, "
        "for a run's rollouts and its metrics",
    )
    parser.add_argument("--follow", action="store_true", help="go on while the files grow, until Ctrl-C")
    parser.add_argument("--name", default="", help="what to call the run (the folder's name)")
    parser.add_argument("--trainer", default="", choices=("", *TRAINERS), help="what kind of training it is (grpo, where the source does not say)")
    parser.add_argument("--tokenizer", default="", metavar="PATH", help="tokenizer.json of the policy, its folder or its name: shows tokens")
    parser.add_argument("--run", default="", metavar="NAME", help="which run of a store that holds several")
    parser.add_argument(
        "--reward-weights", nargs="+", default=[], metavar="NAME=WEIGHT", help="reward functions of TRL's completions (all numeric columns, each 1)"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the run is kept (a folder of its own under ~/.local/state/policy-lab)")


def read_source_request(options: argparse.Namespace) -> SourceRequest:
    """Raises SourceError for a source that is not a format and a path."""
    sources = []
    for named in options.sources:
        if len(named) > 2:
            raise SourceError(f"--from takes a format and a path, not {' '.join(named)}")
        sources.append((named[0], Path(named[1] if len(named) == 2 else ".").expanduser()))
    reading = ReaderOptions(options.tokenizer, options.run, dict(read_weight(text) for text in options.reward_weights))
    return SourceRequest(sources, options.follow, options.wait, options.name, options.trainer, options.keep, reading)


def read_weight(text: str) -> tuple[str, float]:
    """Of ``NAME=WEIGHT``. Raises SourceError."""
    name, _, weight = text.rpartition("=")
    try:
        return name or weight, float(weight) if name else 1.0
    except ValueError:
        raise SourceError(f"--reward-weights takes NAME=WEIGHT, not {text}") from None
