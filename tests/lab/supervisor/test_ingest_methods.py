"""What methods did to a rollout, from the spool into the database."""

import pytest
from django.db import connection

from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from tests.lab.supervisor.spools import assert_database_equals_spool, make_run, rollout, started, write
from trainers.contract import arrays


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team)


def test_every_field_of_a_method_is_stored_as_it_came(run: Run) -> None:
    advantages, weights = arrays.pack_array([0.5, -0.5, 0.25, 0.0], "e"), arrays.pack_array([1.0, 2.0, 0.0, 1.0], "e")
    contributions = {"base": 0.5, "rs-grpo": 0.75, "siren": -1e-3}
    write(run.folder, [started(), rollout(contributions=contributions, shaped={"hipo": 1.5}, token_advantages=advantages, weights=weights)])
    assert ingest_spool(run)
    stored = Rollout.objects.get(run=run)
    assert (stored.contributions, stored.shaped) == (contributions, {"hipo": 1.5})
    assert (bytes(stored.tokens.token_advantages), bytes(stored.tokens.weights)) == (advantages, weights)


def test_a_rollout_no_method_touched_has_empty_fields(run: Run) -> None:
    write(run.folder, [started(), *(rollout(sample=sample) for sample in range(100))])
    assert ingest_spool(run)
    assert_database_equals_spool(run)
    assert all((row.contributions, row.shaped) == ({}, {}) for row in Rollout.across_teams.all())
    assert {(bytes(one.token_advantages), bytes(one.weights)) for one in RolloutTokens.across_teams.all()} == {(b"", b"")}


def test_packed_arrays_are_stored_uncompressed_and_in_place(run: Run) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT atttypid::regtype::text, attstorage::text FROM pg_attribute WHERE attrelid = 'trajectories_rollouttokens'::regclass")
        assert {storage for kind, storage in cursor.fetchall() if kind == "bytea"} == {"e"}
