"""Steering vectors of a team: what its finished runs of the method left beside their policies, and whether one fits a policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.data.datasets.models import Form, Version, VersionState
from lab.lib.refusals import Refusal
from lab.models.policies.checkpoint_paths import FilesMissing, format_checkpoint_label, read_policy_file
from lab.teams.accounts.models import Team
from lab.training.runs.models import Checkpoint
from lab.training.runs.stored_checkpoints import find_checkpoints_there
from trainers.contract.policy_folder import find_text_config
from trainers.contract.problems import SpecError
from trainers.contract.steering_file import FACTS_FILE, METHOD, MOST_BYTES, SteeringFacts, parse_steering_facts

OFFERED = 20  # vectors in the choice, newest first: the facts of each are read from its file
CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class SteeringChoice:
    """A vector, named by the final policy of the run that made it."""

    checkpoint: Checkpoint
    facts: SteeringFacts

    @property
    def alpha(self) -> str:
        """What the slider begins at: the strength that the run chose, or 1 where it chose to add nothing."""
        return f"{self.facts.alpha or 1.0:.4g}"


def find_newest_pairs(team: Team) -> Version | None:
    """The version of preference pairs that a first vector can be made from."""
    ready = Version.objects.of(team).filter(state=VersionState.READY, dataset__form=Form.PREFERENCE).exclude(train_file="")
    newest: Version | None = ready.select_related("dataset").order_by("-pk").first()
    return newest


def list_vector_checkpoints(team: Team) -> Any:
    """Final policies of the team's runs that made a vector."""
    made = Checkpoint.objects.of(team).filter(final=True, run__spec__methods__contains=[{"name": METHOD}])
    return made.select_related("run").order_by("-run__number", "-attempt", "-pk")


def list_steering_vectors(team: Team) -> list[SteeringChoice]:
    """The newest of the team whose files are there and can be read."""
    rows = list(list_vector_checkpoints(team)[:OFFERED])
    there, found = find_checkpoints_there(team, rows), dict[object, SteeringChoice]()
    for checkpoint in rows:
        if checkpoint.pk in there and checkpoint.run_id not in found:
            try:
                found[checkpoint.run_id] = SteeringChoice(checkpoint, read_steering_facts(checkpoint))
            except (FilesMissing, SpecError):
                continue
    return list(found.values())


def read_steering_facts(checkpoint: Checkpoint) -> SteeringFacts:
    """Raises FilesMissing, and SpecError for a file that says something else."""
    return parse_steering_facts(read_policy_file(checkpoint, FACTS_FILE, MOST_BYTES))


def find_steering_vector(team: Team, key: int) -> SteeringChoice:
    """The vector of the team with this key. Raises Refusal."""
    checkpoint: Checkpoint | None = list_vector_checkpoints(team).filter(pk=key).first()
    if checkpoint is None:
        raise Refusal("Your team has no such steering vector; choose another one.")
    try:
        return SteeringChoice(checkpoint, read_steering_facts(checkpoint))
    except FilesMissing:
        raise Refusal("Its files are no longer on disk; choose another one.") from None
    except SpecError:
        raise Refusal("Its file cannot be read; make the vector again.") from None


def refuse_misfit(vector: SteeringChoice, policy: Checkpoint) -> None:
    """Raises Refusal where a policy's configuration says that the vector has another shape. The weights are compared when it is loaded."""
    if vector.checkpoint.pk == policy.pk:
        return
    try:
        config = json.loads(read_policy_file(policy, "config.json", CONFIG_BYTES))
        shape = read_shape(config) if isinstance(config, dict) else None
    except (FilesMissing, ValueError, RecursionError):
        return
    misfit = vector.facts.describe_misfit(*shape) if shape else ""
    if misfit:
        raise Refusal(f"The vector {misfit}. Choose the policy it was made from: {format_checkpoint_label(vector.checkpoint)}.")


def read_shape(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """(layers, hidden size) of a configuration; None where it has other names for them."""
    text = find_text_config(config)
    layers, size = text.get("num_hidden_layers"), text.get("hidden_size")
    return (layers, size) if isinstance(layers, int) and isinstance(size, int) else None
