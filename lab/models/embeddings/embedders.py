"""What can embed: checkpoints of the team, and sentence encoders that the operator put into LAB_POLICIES; found by what a person chose."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from django.conf import settings

from lab.lib.refusals import Refusal
from lab.models.embeddings.models import Embedder, Source
from lab.models.policies.checkpoint_paths import FilesMissing, files_of, format_checkpoint_label, has_checkpoint_files, open_checkpoint
from lab.models.policies.offered_policies import folders_there
from lab.teams.accounts.models import Team
from lab.training.runs.models import Checkpoint, Run
from trainers.contract.encoder_folder import inspect_encoder_folder, is_encoder_folder

AUTOMATIC = "auto"
CHECKPOINT, ENCODER = "checkpoint:", "encoder:"
LOOKED_AT = 20  # checkpoints of a run whose files are looked for
WEIGHTS = ".safetensors"
CHOOSE = "Choose a checkpoint or a sentence encoder."


def list_encoders() -> list[str]:
    """Names of the folders in LAB_POLICIES that hold a sentence encoder."""
    return [path.name for path in folders_there() if is_encoder_folder(path)]


def find_embedder(team: Team, choice: str) -> Embedder | None:
    """Of ``checkpoint:<id>`` or ``encoder:<name>``; None for ``auto``, which the worker decides. Raises Refusal."""
    if choice == AUTOMATIC:
        return None
    if choice.startswith(CHECKPOINT) and (number := choice.removeprefix(CHECKPOINT)).isdecimal() and len(number) < 19:
        checkpoint = Checkpoint.objects.of(team).filter(pk=int(number)).select_related("run").first()
        if checkpoint is None:
            raise Refusal("Your team has no such checkpoint.", CHOOSE, "source")
        return get_checkpoint_embedder(checkpoint)
    if choice.startswith(ENCODER):
        return get_encoder_embedder(team, choice.removeprefix(ENCODER))
    raise Refusal("This cannot embed.", CHOOSE, "source")


def get_checkpoint_embedder(checkpoint: Checkpoint) -> Embedder:
    """Raises Refusal when the files are gone. The run must be loaded."""
    try:
        files = [(file.name, file.size, file.changed) for file in files_of(checkpoint) if file.name.endswith(WEIGHTS)]
    except FilesMissing as error:
        raise Refusal(error.message, CHOOSE, "source") from None
    about = {"kind": Source.POLICY, "name": format_checkpoint_label(checkpoint)[:300], "checkpoint": checkpoint}
    return Embedder.objects.get_or_create(team_id=checkpoint.run.team_id, key=build_key(f"checkpoint {checkpoint.pk}", files), defaults=about)[0]


def get_encoder_embedder(team: Team, name: str) -> Embedder:
    """Raises Refusal for what is no folder there, or no encoder that can be loaded."""
    path = next((path for path in folders_there() if path.name == name), None)
    if path is None or not is_encoder_folder(path):
        raise Refusal(f"There is no sentence encoder “{name[:80]}”.", CHOOSE, "source")
    if problems := inspect_encoder_folder(path, "source").problems:
        raise Refusal(f"{name} {problems[0].message}.", f"{problems[0].fix[:1].upper()}{problems[0].fix[1:]}.", "source")
    files = [(file.name, (about := file.stat()).st_size, about.st_mtime_ns) for file in sorted(path.glob(f"*{WEIGHTS}"))]
    about_it = {"kind": Source.ENCODER, "name": name, "folder": name}
    return Embedder.objects.get_or_create(team=team, key=build_key(f"encoder {name}", files), defaults=about_it)[0]


def build_key(what: str, files: Iterable[tuple[str, int, int]]) -> str:
    """Other files under the same name are another embedder: their vectors cannot be compared."""
    return hashlib.sha256(repr((what, list(files))).encode()).hexdigest()


def locate_embedder_files(embedder: Embedder) -> Path:
    """Raises Refusal when they are gone, or are others by now."""
    gone = Refusal(f"The files of {embedder.name} are no longer on disk.", "Choose another one.")
    try:
        if embedder.kind == Source.ENCODER:
            current, folder = get_encoder_embedder(embedder.team, embedder.folder), Path(settings.POLICIES_ROOT) / embedder.folder
        elif embedder.checkpoint is not None:
            current, folder = get_checkpoint_embedder(embedder.checkpoint), open_checkpoint(embedder.checkpoint)
        else:
            raise gone
    except Refusal:
        raise gone from None
    if current.pk != embedder.pk:
        raise Refusal(f"The files of {embedder.name} have changed since.", "Start a new clustering with them.")
    return folder


def find_newest_policy(team: Team, runs: Iterable[UUID]) -> Embedder:
    """The newest checkpoint on disk of the first of the runs that has one. Raises Refusal."""
    for pk in runs:
        run = Run.objects.of(team).filter(pk=pk).first()
        for checkpoint in run.checkpoints.order_by("-final", "-step", "-pk")[:LOOKED_AT] if run else ():
            if has_checkpoint_files(checkpoint):
                return get_checkpoint_embedder(checkpoint)
    raise Refusal("None of these runs has a checkpoint on disk.", CHOOSE, "source")
