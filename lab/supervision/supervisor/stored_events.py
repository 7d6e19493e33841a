"""Events as ingest reads them: like those of ``trainers.contract.events``, but what goes into the database as it stands is not taken apart.

The nodes of an episode of 12 turns are half of the time in which its line is read (25 against 14 µs). Who reads a stored tree expects
some to be of another shape (``lab.rollouts.trajectories.turn_tree``); what people send is checked whole before it gets into a spool.
"""

from functools import partial
from typing import Union, get_args

import msgspec

from trainers.contract.events import AnyEvent, Rollout
from trainers.contract.spool import read_spool_lines


class StoredRollout(Rollout, tag="rollout", frozen=True):
    """``nodes``: JSON each, which the database checks."""

    nodes: list[msgspec.Raw] = []  # type: ignore[assignment]


KINDS = tuple(StoredRollout if kind is Rollout else kind for kind in get_args(AnyEvent))  # an event that is added there is read here too
decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(Union[KINDS])  # noqa: UP007
read_stored_lines = partial(read_spool_lines, decoder=decoder)
