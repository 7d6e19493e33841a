"""Events as ingest reads them: like those of ``trainers.contract.events``, but what goes into the database as it stands is not taken apart.

What the world said of a turn (``facts``) is two thirds of the time that the line of an episode takes to read.
"""

from functools import partial
from typing import Union, get_args

import msgspec

from trainers.contract.events import AnyEvent, Rollout, RolloutNode
from trainers.contract.spool import read_spool_lines


class StoredNode(RolloutNode, frozen=True, omit_defaults=True, gc=False):
    """``facts`` is JSON, which the database checks."""

    facts: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]


class StoredRollout(Rollout, tag="rollout", frozen=True):
    nodes: list[StoredNode] = []  # type: ignore[assignment]


KINDS = tuple(StoredRollout if kind is Rollout else kind for kind in get_args(AnyEvent))  # an event that is added there is read here too
decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(Union[KINDS])  # noqa: UP007
read_stored_lines = partial(read_spool_lines, decoder=decoder)
