"""Events as ingest reads them: like those of ``trainers.contract.events``, but what goes into the database as it stands is not taken apart.

What the world said of a turn (``facts``) is two thirds of the time that the line of an episode takes to read.
"""

from functools import partial

import msgspec

from trainers.contract.events import (
    AnyEvent,
    Asked,
    AttemptFinished,
    AttemptStarted,
    Checkpoint,
    Edited,
    Inputs,
    Memory,
    Metrics,
    Phase,
    Rollout,
    RolloutNode,
    Saved,
    ShadowRewards,
    Warned,
)
from trainers.contract.spool import read_spool_lines


class StoredNode(RolloutNode, frozen=True, omit_defaults=True, gc=False):
    """``facts`` is JSON, which the database checks."""

    facts: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]


class StoredRollout(Rollout, tag="rollout", frozen=True):
    nodes: list[StoredNode] = []  # type: ignore[assignment]


Others = AttemptStarted | Inputs | Memory | Phase | Metrics | ShadowRewards | Asked | Checkpoint | Saved | Edited | Warned | AttemptFinished
decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(StoredRollout | Others)
read_stored_lines = partial(read_spool_lines, decoder=decoder)
