"""What ``bench/size.py`` fills the database with: runs through the spool and the product's ingest, and copies of them made in the database."""

from __future__ import annotations

import math
import random
from typing import Any

from bench.trajectory_data import MARKERS, Texts

SPREAD = 0.6  # of the lengths' logarithms
COPY_ROLLOUTS = """
INSERT INTO trajectories_rollout (id, run_id, prompt_id, attempt, step, group_index, sample, length, superseded, spool_end, created_at, reward,
    advantage, mean_entropy, max_entropy, phase, finish_reason, filtered, turns, nodes, rewards, contributions, shaped, completion)
SELECT id + %(shift)s, %(run)s, prompt_id, attempt, step, group_index, sample, length, superseded, spool_end, created_at,
    reward + 0.01 * random(), advantage + 0.01 * random(), mean_entropy, max_entropy, phase, finish_reason, filtered, turns, nodes, rewards,
    contributions, shaped, completion
FROM trajectories_rollout WHERE run_id = %(source)s ORDER BY id
"""
COPY_TOKENS = """
INSERT INTO trajectories_rollouttokens (rollout_id, ids, lengths, logprobs, entropies, mask, token_advantages, weights, reference_logprobs, ratios,
    clipped, sampler_logprobs, ranks, alternative_ids, alternative_logprobs, alternative_texts)
SELECT id + %(shift)s, '', '', '', '', '', '', '', '', '', '', '', '', '', '', '' FROM trajectories_rollout WHERE run_id = %(source)s
"""


class ShortTexts(Texts):
    """Completions of ``words`` words in the mean, lognormal: ten million of a thousand characters do not fit on every disk."""

    def __init__(self, seed: int, words: int) -> None:
        super().__init__(seed)
        self.middle = math.log(words) - SPREAD**2 / 2

    def completion(self, rng: random.Random, growth: float) -> str:
        text = self.some(rng, max(5, int(rng.lognormvariate(self.middle, SPREAD) * growth)))
        found = [word for word, share in MARKERS.items() if rng.random() < share]
        return f"<think>{text}</think> {' '.join(found)}\n<answer>{rng.randint(0, 999)}</answer>"


def copy_run(source: Any, run: Any) -> None:
    """The rollouts of ``source`` once more as those of ``run``, with ids and rewards of their own and without token arrays.

    Their words are left to the product's indexer.
    """
    from django.db import connection, transaction

    from lab.training.runs.models import Run

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = off")
        cursor.execute("SELECT min(id), max(id) FROM trajectories_rollout WHERE run_id = %s", [source.pk])
        first, last = cursor.fetchone()
        cursor.execute("SELECT nextval('trajectories_rollout_id_seq')")
        shift = cursor.fetchone()[0] - first
        cursor.execute("SELECT setval('trajectories_rollout_id_seq', %s)", [last + shift])
        asked = {"shift": shift, "run": run.pk, "source": source.pk}
        cursor.execute(COPY_ROLLOUTS, asked)
        count = cursor.rowcount
        cursor.execute(COPY_TOKENS, asked)
        fields = {"rollouts": count, "last_rollout": last + shift, "step": source.step, "total_steps": source.total_steps, "attempt": 1}
        Run.objects.same_row(run).update(**fields)
    run.refresh_from_db()
    if count != source.rollouts:
        raise SystemExit(f"{count} of {source.rollouts} rollouts were copied")
