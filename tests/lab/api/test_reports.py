"""Reports by the API: made once, read, saved on the version they were read from, exported, archived and deleted."""

from collections.abc import Callable

import pytest

from lab.teams.accounts.models import Team, User
from lab.watching.reports import verbs
from lab.watching.reports.models import Report
from tests.lab.api.conftest import ApiClient

BROKEN = "words\n\n```chart\nruns: 1\n```\n"


@pytest.mark.feature(31)
def test_a_report_is_made_once_saved_exported_and_goes(api: ApiClient, team: Team, as_role: Callable[[str], ApiClient]) -> None:
    sent = {"title": "Collapse", "text": BROKEN}
    made = api.send("reports", sent, **{"Idempotency-Key": "one"})
    assert (made.status_code, made.json()["version"]) == (201, 1)
    assert api.send("reports", sent, **{"Idempotency-Key": "one"}).status_code == 200
    report = Report.objects.of(team).get()
    at = f"reports/{report.pk}"
    assert [one["title"] for one in api.ask("reports", q="WORDS").json()["items"]] == ["Collapse"]
    first = api.ask(f"{at}/versions/1").json()
    assert first["text"] == BROKEN
    assert first["problems"] == [{"line": 3, "message": "a chart block needs a line “metric: …”."}]
    saved = api.send(f"{at}/versions", {"text": "second", "base": 1, "message": "shorter"})
    assert (saved.status_code, saved.json()["number"]) == (201, 2)
    assert api.send(f"{at}/versions", {"text": "second", "base": 1}).status_code == 200  # sent twice
    conflict = api.send(f"{at}/versions", {"text": "third", "base": 1})
    assert conflict.status_code == 409
    assert "save with base 2" in conflict.json()["detail"]
    assert [one["number"] for one in api.ask(f"{at}/versions", limit=1).json()["items"]] == [2]
    assert api.ask(f"{at}/versions", after=2).json()["items"][0]["number"] == 1
    assert api.ask(f"{at}/export", format="markdown", version=1).content.decode() == BROKEN
    assert b"default-src" in api.ask(f"{at}/export").content
    assert api.send(at, {"title": "Entropy", "archived": True}, method="patch").json()["title"] == "Entropy"
    assert api.ask("reports").json()["items"] == []
    assert as_role("researcher").send(at, method="delete").status_code == 403
    assert api.send(at, method="delete").status_code == 204
    assert api.ask(at).status_code == 404


def test_what_cannot_be_is_refused_and_another_teams_is_not_found(
    api: ApiClient, team: Team, stranger: User, as_role: Callable[[str], ApiClient]
) -> None:
    theirs = verbs.create_report(stranger.memberships.get().team, stranger, "xqsecretq", "xqsecretq")
    for path in (f"reports/{theirs.pk}", f"reports/{theirs.pk}/versions", f"reports/{theirs.pk}/versions/1", f"reports/{theirs.pk}/export"):
        assert api.ask(path).status_code == 404
    assert api.send(f"reports/{theirs.pk}/versions", {"text": "mine", "base": 1}).status_code == 404
    assert api.ask("reports", q="xqsecretq").json()["items"] == []
    assert api.send("reports", {"title": "a", "project": 999}).json()["errors"][0]["field"] == "project"
    assert api.send("reports", {"title": " "}).json()["errors"][0]["field"] == "title"
    mine = verbs.create_report(team, None, "mine", "")
    assert api.send(f"reports/{mine.pk}", method="delete").status_code == 409  # not archived
    viewer = as_role("viewer")
    assert viewer.ask(f"reports/{mine.pk}").status_code == 200
    assert viewer.send(f"reports/{mine.pk}/versions", {"text": "x", "base": 1}).status_code == 403
