"""Where the keys of a group's page lead, in one statement: the page is opened over and over while somebody walks through a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

Place = tuple[int, int]  # step, group

# Of a step the group with the same prompt, else the one with the nearest number. Held-out prompts are the same each time, so the visit before is
# the step before; between two measurements lie all the rollouts that were trained on, and walking over those is what COALESCE saves.
AROUND = """
WITH rows AS NOT MATERIALIZED (
  SELECT step, group_index, prompt_id FROM trajectories_rollout WHERE run_id = %(run)s AND phase = %(phase)s AND NOT superseded
), before AS MATERIALIZED (
  SELECT ARRAY[step, group_index] AS at FROM rows WHERE prompt_id = %(prompt)s AND step < %(step)s ORDER BY step DESC, group_index LIMIT 1
), after AS MATERIALIZED (
  SELECT ARRAY[step, group_index] AS at FROM rows WHERE prompt_id = %(prompt)s AND step > %(step)s ORDER BY step, group_index LIMIT 1
)
SELECT
  (SELECT max(group_index) FROM rows WHERE step = %(step)s AND group_index < %(group)s),
  (SELECT min(group_index) FROM rows WHERE step = %(step)s AND group_index > %(group)s),
  (SELECT at FROM before),
  (SELECT at FROM after),
  coalesce(CASE WHEN %(heldout)s THEN (SELECT at FROM before) END,
    (SELECT ARRAY[near.step, (SELECT group_index FROM rows WHERE rows.step = near.step
        ORDER BY prompt_id <> %(prompt)s, abs(group_index - %(group)s), group_index LIMIT 1)]
     FROM (SELECT step FROM rows WHERE step < %(step)s ORDER BY step DESC LIMIT 1) near)),
  coalesce(CASE WHEN %(heldout)s THEN (SELECT at FROM after) END,
    (SELECT ARRAY[near.step, (SELECT group_index FROM rows WHERE rows.step = near.step
        ORDER BY prompt_id <> %(prompt)s, abs(group_index - %(group)s), group_index LIMIT 1)]
     FROM (SELECT step FROM rows WHERE step > %(step)s ORDER BY step LIMIT 1) near))
"""


@dataclass(frozen=True)
class AdjacentGroups:
    """None where the way ends."""

    group_before: Place | None
    group_after: Place | None
    asked_before: Place | None  # the same prompt's visit before
    asked_after: Place | None
    step_before: Place | None
    step_after: Place | None


def find_adjacent_groups(run: UUID, phase: str, step: int, group: int, prompt: int) -> AdjacentGroups:
    given: dict[str, Any] = {"run": run, "phase": phase, "step": step, "group": group, "prompt": prompt, "heldout": phase == "heldout"}
    with connection.cursor() as cursor:
        cursor.execute(AROUND, given)
        before, after, *places = cursor.fetchone()
    in_step = [(step, neighbour) if neighbour is not None else None for neighbour in (before, after)]
    return AdjacentGroups(*in_step, *(position and (position[0], position[1]) for position in places))
