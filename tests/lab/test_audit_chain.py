"""The audit log's hash chain: what was changed, taken out, put in or cut off is told, with the first entry concerned."""

from __future__ import annotations

import os
import stat
import threading
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from psycopg.conninfo import make_conninfo

from lab.teams.accounts.models import Team, User
from lab.teams.audit import anchor, chores
from lab.teams.audit.chain import LOCK, START, Head, compute_link_digest, link_waiting, read_head, verify_chain
from lab.teams.audit.models import ChainLink, Entry, Unchained
from lab.teams.audit.recording import record_audit_entry

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings.HOME = tmp_path
    monkeypatch.setattr(anchor, "_next", 0.0)
    return tmp_path


def past_the_triggers(*statements: str) -> None:
    """As the owner of the tables could, or a superuser."""
    with connection.cursor() as cursor:
        for statement in ("SET session_replication_role = replica", *statements, "SET session_replication_role = origin"):
            cursor.execute(statement)


def verified(*arguments: str) -> str:
    out = StringIO()
    call_command("verify_audit", *arguments, stdout=out)
    return out.getvalue()


def test_entries_are_linked_once_they_are_committed(team: Team) -> None:
    with transaction.atomic():
        first = record_audit_entry("team.change", team, name="ä", nested={"b": [1, 2.5, None], "a": "x"})
        assert not ChainLink.objects.exists()
    second = record_audit_entry("team.change", team)
    assert list(ChainLink.objects.order_by("number").values_list("number", "entry_id")) == [(1, first.pk), (2, second.pk)]
    assert not Unchained.objects.exists()
    stored = Entry.across_teams.get(pk=first.pk)
    assert bytes(ChainLink.objects.get(number=1).digest) == compute_link_digest(START, 1, stored)
    assert "2 entries checked." in verified()
    assert f"Head: 2:{read_head().digest.hex()}" in verified()


def test_what_is_rolled_back_is_in_no_chain(team: Team) -> None:
    with transaction.atomic():
        record_audit_entry("team.change", team)
        transaction.set_rollback(True)
    assert (ChainLink.objects.count(), Unchained.objects.count()) == (0, 0)


def test_a_worker_links_what_a_dead_process_left(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.teams.audit.recording.link_waiting", lambda: None)
    record_audit_entry("team.change", team)
    assert (ChainLink.objects.count(), Unchained.objects.count()) == (0, 1)
    chores.sweep_audit_log()
    assert (ChainLink.objects.count(), Unchained.objects.count()) == (1, 0)


@pytest.mark.parametrize(
    ("tampering", "said"),
    [
        ("UPDATE audit_entry SET who = 'somebody else' WHERE id = {second}", "Entry {second} (link 2, "),
        ("UPDATE audit_entry SET details = '{{}}' WHERE id = {second}", "Entry {second} (link 2, "),
        ("UPDATE audit_entry SET at = at + interval '1 microsecond' WHERE id = {second}", "Entry {second} (link 2, "),
        ("UPDATE audit_entry SET team_id = NULL WHERE id = {second}", "Entry {second} (link 2, "),
        ("DELETE FROM audit_entry WHERE id = {second}", "Entry {second} (link 2) was taken out"),
        ("DELETE FROM audit_chainlink WHERE number = 2", "Link 2 is missing; the next one is 3"),
        ("DELETE FROM audit_entry WHERE id = {second}; DELETE FROM audit_chainlink WHERE number = 2", "Link 2 is missing"),
        ("UPDATE audit_chainlink SET digest = '\\x00' WHERE number = 2", "Entry {second} (link 2, "),
        ("INSERT INTO audit_entry (at, who, via, token, action, kind, object_id, label, agent, details)"
         " VALUES (now(), '', 'api', '', 'run.stop', '', '', '', '', '{{}}')", "is in no link and waits for none"),
    ],
)  # fmt: skip
def test_what_was_done_past_the_log_is_named(team: Team, tampering: str, said: str) -> None:
    entries = [record_audit_entry("team.change", team, number=number) for number in range(4)]
    past_the_triggers(*(one.format(second=entries[1].pk) for one in tampering.split("; ")))
    with pytest.raises(CommandError) as error:
        verified()
    assert "BROKEN" in str(error.value)
    assert said.format(second=entries[1].pk) in str(error.value)


def test_an_entry_taken_out_before_it_was_linked(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.teams.audit.recording.link_waiting", lambda: None)
    entry = record_audit_entry("team.change", team)
    past_the_triggers("DELETE FROM audit_entry")
    with pytest.raises(CommandError, match=f"Entry {entry.pk} was taken out before it was linked"):
        verified()


def test_an_end_cut_off_is_told_by_the_head_that_was_kept(team: Team, own_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(4):
        record_audit_entry("team.change", team, number=number)
    chores.sweep_audit_log()
    file = own_home / "audit-head"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = file.read_text()
    assert Head.read(kept) == read_head()
    past_the_triggers("DELETE FROM audit_entry WHERE id = (SELECT max(id) FROM audit_entry)", "DELETE FROM audit_chainlink WHERE number = 4")
    with pytest.raises(CommandError, match="ends with link 3, but had 4"):
        verified()
    anchor._next = 0.0
    chores.sweep_audit_log()
    assert file.read_text() == kept  # what was kept is not written over by what is left
    assert "the audit log is not what it was" in caplog.text
    file.unlink()
    assert "3 entries checked" in verified()
    with pytest.raises(CommandError, match="ends with link 3, but had 4"):
        verified("--expect", kept.strip())


def test_a_chain_written_anew_is_told_by_the_head_that_was_kept(team: Team) -> None:
    """Whoever can do everything in the database can make a chain that is whole, but not the one that was."""
    for number in range(3):
        record_audit_entry("team.change", team, number=number)
    kept = str(read_head())
    past_the_triggers(
        "UPDATE audit_entry SET who = 'somebody else'", "DELETE FROM audit_chainlink", "INSERT INTO audit_unchained SELECT id FROM audit_entry"
    )
    assert link_waiting() == 3
    assert "3 entries checked" in verified()
    with pytest.raises(CommandError, match="Link 3 is another than the one that was kept"):
        verified("--expect", kept)


def test_truncating_everything_is_told(team: Team) -> None:
    record_audit_entry("team.change", team)
    chores.sweep_audit_log()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE audit_entry, audit_chainlink, audit_unchained")
    with pytest.raises(CommandError, match="ends with link 0, but had 1"):
        verified()


@pytest.mark.parametrize("text", ["", "12", "12:xyz", "12:00", "-1:" + "0" * 64])
def test_a_head_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--expect"):
        verified("--expect", text)


def test_many_at_once_make_one_chain_without_a_gap(team: Team) -> None:
    def act(number: int) -> None:
        try:
            for turn in range(10):
                with transaction.atomic():
                    record_audit_entry("team.change", team, number=number, turn=turn)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=act, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    link_waiting()
    found = verify_chain([])
    assert (found.checked, found.problem, found.waiting) == (60, "", 0)


def test_an_act_does_not_wait_for_the_chain_while_it_holds_rows(team: Team) -> None:
    """Somebody holds the chain's lock: recording goes through, and so does everything in the same transaction."""
    with psycopg.connect(dsn()) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        with transaction.atomic():
            record_audit_entry("team.change", team)
            assert Entry.across_teams.count() == 1
            transaction.set_rollback(True)


def dsn(**changes: str) -> str:
    """Of the test database, for a connection beside Django's."""
    return make_conninfo(os.environ["DATABASE_URL"], dbname=str(connection.settings_dict["NAME"]), **changes)


def test_the_migration_links_what_is_there(team: Team) -> None:
    made = [record_audit_entry("team.change", team, number=number) for number in range(3)]
    executor = MigrationExecutor(connection)
    try:
        executor.migrate([("audit", "0004_words")])
        assert "audit_chainlink" not in connection.introspection.table_names()
    finally:
        call_command("migrate", verbosity=0)
    assert list(ChainLink.objects.order_by("number").values_list("entry_id", flat=True)) == [entry.pk for entry in made]
    assert "3 entries checked" in verified()
    record_audit_entry("team.change", team)
    assert "4 entries checked" in verified()


# a role of its own

REFUSED = [
    "TRUNCATE audit_entry",
    "TRUNCATE audit_chainlink",
    "ALTER TABLE audit_entry DISABLE TRIGGER ALL",
    "ALTER TABLE audit_entry DISABLE TRIGGER audit_entry_append_only",
    "DROP TRIGGER audit_entry_append_only ON audit_entry",
    "DROP TABLE audit_entry",
    "ALTER TABLE audit_entry ADD COLUMN x int",
    "UPDATE audit_entry SET who = ''",
    "DELETE FROM audit_entry",
    "UPDATE audit_chainlink SET number = 0",
    "DELETE FROM audit_chainlink",
    "CREATE OR REPLACE FUNCTION audit_entry_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "SET session_replication_role = replica",
    "CREATE TRIGGER mine BEFORE INSERT ON audit_entry FOR EACH ROW EXECUTE FUNCTION audit_entry_refuse()",
]


@pytest.fixture
def roles(team: Team) -> Any:
    """Both roles, really made; afterwards everything belongs to the superuser again."""
    out = StringIO()
    call_command("database_roles", "--owner", "chain_owner", "--app", "chain_app", stdout=out)
    with psycopg.connect(dsn(), autocommit=True) as link:
        superuser = link.info.user
        try:
            link.execute(out.getvalue())
            link.execute(out.getvalue())  # again, as after a migration
            yield link
        finally:
            database = connection.settings_dict["NAME"]
            link.execute(f'ALTER DATABASE "{database}" OWNER TO "{superuser}"')
            for role in ("chain_app", "chain_owner"):
                link.execute(f'REASSIGN OWNED BY {role} TO "{superuser}"')
                link.execute(f"DROP OWNED BY {role}")
                link.execute(f"DROP ROLE {role}")


def test_the_labs_own_role_cannot_touch_the_log_and_the_lab_works_with_it(roles: Any, team: Team, owner: User) -> None:
    record_audit_entry("team.change", team)
    with psycopg.connect(dsn(user="chain_app"), autocommit=True) as app:
        for statement in REFUSED:
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.RaiseException)):
                app.execute(statement)
        assert app.execute("SELECT count(*) FROM audit_entry").fetchone() == (1,)
    works_as("chain_app", owner)
    with psycopg.connect(dsn(user="chain_owner"), autocommit=True) as migrating:
        migrating.execute("ALTER TABLE audit_entry ADD COLUMN later int")
        migrating.execute("ALTER TABLE audit_entry DROP COLUMN later")
        migrating.execute("CREATE TABLE added_later (id bigint GENERATED BY DEFAULT AS IDENTITY)")
        with psycopg.connect(dsn(user="chain_app"), autocommit=True) as app:
            app.execute("INSERT INTO added_later DEFAULT VALUES")
        migrating.execute("DROP TABLE added_later")


def works_as(role: str, owner: User) -> None:
    """A person signs in, changes the team and reads the log, all in a session of the role; migrate finds nothing to do."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION AUTHORIZATION {role}")
    try:
        client = Client()
        assert client.post("/accounts/login/", {"login": owner.email, "password": "correct horse battery"}).status_code == 302
        before = Entry.across_teams.count()
        assert client.post("/alerts/webhooks/new/", {"name": "Chat", "url": "https://hooks.example.org/", "enabled": "on"}).status_code == 200
        assert Entry.across_teams.count() == before + 1
        assert client.get("/audit/").status_code == 200
        call_command("migrate", verbosity=0)
        assert "The chain is whole" in verified()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET SESSION AUTHORIZATION")


@pytest.mark.parametrize("names", [("same", "same"), ("x; DROP ROLE y", "app"), ('"', "app")])
def test_names_of_roles_are_names(names: tuple[str, str]) -> None:
    with pytest.raises(CommandError, match=r"use letters|two roles"):
        call_command("database_roles", "--owner", names[0], "--app", names[1], stdout=StringIO())
