"""Reports: every save a version, edits at the same time both kept, blocks that show nothing of another team, the file that needs nothing else."""

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from lab.rollouts.comparison.series import build_metric_series
from lab.rollouts.trajectories.models import Rollout
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Project, Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.runs import curve_values, metrics
from lab.training.runs.metrics import Series
from lab.training.runs.models import Attempt, Run, Status
from lab.training.runs.palette import find_palette_entries
from lab.watching.reports import verbs
from lab.watching.reports.contents import build_document
from lab.watching.reports.export import render_report_file
from lab.watching.reports.models import TEXT_LENGTH, Report, ReportVersion
from lab.watching.reports.svg_chart import list_round_numbers
from tests.conftest import make_member
from tests.hostile import PAYLOADS, stored
from tests.lab.supervisor.spools import finished, make_run, measured, rollout, started, write

CHART = "```chart\nruns: 1, 2\nmetric: reward\nsmooth: 0\n```"
REWARDS = {1: [(step, step / 10) for step in range(1, 31)], 2: [(step, 1.25 - step / 100) for step in range(1, 31)]}


@pytest.fixture
def report(team: Team, owner: User) -> Report:
    return verbs.create_report(team, owner, "Entropy collapse", "# What happened\n\nwords\n")


@pytest.fixture
def runs(team: Team) -> list[Run]:
    """Two runs with a reward of thirty steps each."""
    made = []
    for number, points in REWARDS.items():
        run = make_run(team, name=f"run <{number}>", status=Status.FINISHED, step=30, total_steps=30)
        Attempt.objects.create(run=run, number=1, from_step=0, host="h", device="cpu", started_at=timezone.now())
        with transaction.atomic(), connection.cursor() as cursor:
            metrics.append_metric_points(cursor, run.pk, 1, {"reward": points})
        made.append(run)
    return made


def text_of(response: Any) -> str:
    return str(response.content.decode())


def fields(report: Report, text: str, **more: Any) -> dict[str, Any]:
    return {"title": report.title, "text": text, "base": report.number, **more}


@pytest.mark.feature(31)
def test_a_report_is_written_and_every_save_is_a_version(as_owner: Client, team: Team, owner: User) -> None:
    project = Project.objects.create(team=team, name="Word problems")
    made = as_owner.post(reverse("report-new"), {"title": "  Entropy   collapse ", "text": "first\r\nline", "project": project.pk}, follow=True)
    report = Report.objects.of(team).get()
    assert (report.title, report.author, report.project, report.number) == ("Entropy collapse", owner, project, 1)
    assert "first\nline" in text_of(made)
    saved = as_owner.post(reverse("report-edit", args=[report.pk]), fields(report, "second", project=project.pk, message="more words"), follow=True)
    assert "Saved as version 2" in text_of(saved)
    report.refresh_from_db()
    as_owner.post(reverse("report-edit", args=[report.pk]), fields(report, "second", project=project.pk))
    assert [(one.number, one.text, one.message) for one in report.versions.order_by("number")] == [
        (1, "first\nline", ""),
        (2, "second", "more words"),
    ]
    assert "first" in text_of(as_owner.get(reverse("report", args=[report.pk]) + "?version=1"))
    assert as_owner.get(reverse("report", args=[report.pk]) + "?version=3").status_code == 404
    as_owner.post(reverse("report-restore", args=[report.pk]), {"version": "1"})
    newest = verbs.read_newest_version(report)
    assert (newest.number, newest.text, newest.message) == (3, "first\nline", "Restored version 1")
    as_owner.post(reverse("report-edit", args=[report.pk]), {"title": "Collapse", "text": newest.text, "base": "3"})
    report.refresh_from_db()
    assert (report.title, report.project, report.number) == ("Collapse", None, 3)
    actions = list(Entry.objects.of(team).filter(kind="report").values_list("action", flat=True).order_by("pk"))
    assert actions == ["report.create", "report.save", "report.save", "report.change"]
    page = text_of(as_owner.get(reverse("report-versions", args=[report.pk]) + "?from=1&to=2"))
    assert "<del>first\nline</del><ins>second</ins>" in page


@pytest.mark.feature(31)
def test_two_who_edit_at_once_both_keep_their_text(as_owner: Client, report: Report, teammate: User) -> None:
    verbs.save_version(report, teammate, "theirs <b>", 1)
    form = {"title": report.title, "text": "mine <i>", "base": "1"}
    conflict = as_owner.post(reverse("report-edit", args=[report.pk]), form)
    page = text_of(conflict)
    assert conflict.status_code == 409
    assert all(words in page for words in ("theirs &lt;b&gt;", "mine &lt;i&gt;", "saved by teammate", 'name="base" value="2"'))
    said = as_owner.post(reverse("report-edit", args=[report.pk]), form, headers={"Accept": "application/json"})
    assert (said.status_code, said.json()["newest"], said.json()["text"]) == (409, 2, "theirs <b>")
    assert report.versions.count() == 2  # nothing was saved, nothing is lost
    as_owner.post(reverse("report-edit", args=[report.pk]), {**form, "base": "2"})
    assert list(report.versions.order_by("number").values_list("text", flat=True))[1:] == ["theirs <b>", "mine <i>"]


def test_what_cannot_be_saved_stands_beside_its_input_and_is_not_lost(as_owner: Client, report: Report) -> None:
    for name, value, words in (
        ("title", " ", "Enter a title."),
        ("title", "x" * 121, "121 characters"),
        ("text", "y" * (TEXT_LENGTH + 1), "at most 100,000"),
    ):
        for url in (reverse("report-new"), reverse("report-edit", args=[report.pk])):
            answer = as_owner.post(url, {**fields(report, "typed words"), name: value})
            assert answer.status_code == 422
            assert words in text_of(answer)
            assert name == "text" or "typed words" in text_of(answer)
    assert Report.across_teams.count() == ReportVersion.across_teams.count() == 1


def test_the_list_searches_and_the_archive_keeps(as_owner: Client, team: Team, report: Report, client: Client) -> None:
    url = reverse("reports")
    for query, found in (
        ("", True),
        ("?q=ENTROPY", True),
        ("?q=happened+words", True),
        ("?q=owner@example", True),
        ("?q=nothing", False),
        ("?project=none", True),
    ):
        assert (report.title in text_of(as_owner.get(url + query))) is found, query
    assert as_owner.post(reverse("report-delete", args=[report.pk]), follow=True).status_code == 200
    assert Report.objects.of(team).exists()  # not while it is not archived
    as_owner.post(reverse("report-archive", args=[report.pk]))
    as_owner.post(reverse("report-archive", args=[report.pk]))
    assert "1 archived" in text_of(as_owner.get(url)).replace("Archived (1)", "1 archived")
    assert report.title in text_of(as_owner.get(url + "?archived=1"))
    [entry] = [one for one in find_palette_entries(team, report.author, Role.OWNER, "collapse") if "report" in one.kind]  # type: ignore[arg-type]
    assert entry.kind == "archived report"
    as_owner.post(reverse("report-unarchive", args=[report.pk]))
    as_owner.post(reverse("report-archive", args=[report.pk]))
    client.force_login(make_member("researcher@example.org", team))
    assert client.post(reverse("report-delete", args=[report.pk])).status_code == 403
    client.force_login(report.author)  # type: ignore[arg-type]
    client.post(reverse("report-delete", args=[report.pk]))
    assert not ReportVersion.across_teams.exists()
    told = list(Entry.objects.of(team).filter(kind="report").values_list("action", flat=True).order_by("pk"))
    assert told == ["report.create", "report.archive", "report.unarchive", "report.archive", "report.delete"]


def test_blocks_show_the_teams_things_and_no_word_of_another_teams(team: Team, owner: User, stranger: User, runs: list[Run]) -> None:
    elsewhere = stranger.memberships.get().team
    theirs = [make_run(elsewhere, name=f"xqsecretq {number}") for number in range(1, 5)]
    write(theirs[0].folder, [started(), rollout(1, completion="xqsecretq")])
    while ingest_spool(theirs[0]):
        pass
    secret = Rollout.across_teams.get()
    text = f"```chart\nruns: 1, 4\nmetric: reward\n```\n\n```table\nruns: 3, 4\n```\n\n```rollout\n{secret.pk}\n```\n"
    text += "\n```group\nrun: 4\nstep: 1\ngroup: 0\n```\n"
    text += "\n```runs\nsearch: xqsecretq\n```\n\n```runs\nproject: xqsecretq\n```\n"
    document = build_document(team, text)
    parts = [part for part in document.parts if part.kind != "prose"]
    assert [part.missing for part in parts] == [  # type: ignore[union-attr]
        ["Run #4 is not available."],
        ["Runs #3, #4 are not available."],
        [f"Rollout {secret.pk} is not available."],
        ["Run #4 is not available."],
        ["No runs match."],
        [],
    ]
    assert [run.number for run in document.runs] == [1]
    assert [str(one) for one in document.problems] == ["Line 25: project: your team has no project “xqsecretq”."]
    Run.across_teams.filter(pk=runs[0].pk).update(binned_at=timezone.now())
    assert build_document(team, text).runs == []  # as for one in the bin


def test_an_unknown_metric_is_a_problem_once_it_cannot_come(as_owner: Client, team: Team, runs: list[Run]) -> None:
    text = "```chart\nruns: 1\nmetric: rewrad\n```"
    assert [str(one) for one in build_document(team, text).problems] == ["Line 3: unknown metric “rewrad”. Did you mean reward?"]
    Run.across_teams.filter(pk=runs[0].pk).update(status=Status.RUNNING)
    assert build_document(team, text).problems == []
    shown = text_of(as_owner.post(reverse("report-preview"), {"text": "words\n\n```chart\nruns: 1\n```"}))
    assert "Line 3: a chart block needs a line “metric: …”." in shown
    assert "1 problem in blocks, the first in line 3" in shown


def test_forty_blocks_take_few_queries(team: Team, runs: list[Run]) -> None:
    def count(text: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            build_document(team, text)
        return len(queries)

    assert count(f"{CHART}\n\n" * 40) == count(CHART)
    assert count("```rollout\n1\n```\n\n" * 40) == count("```rollout\n1\n```")


class Loads(HTMLParser):
    """What a browser that opens the file would fetch, and what it would run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.numbers: list[float] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "iframe", "link", "object", "embed", "base", "video", "audio", "use", "image", "form"):
            self.found.append((tag, str(attrs)))
        self.found += [
            (tag, f"{name}={value}")
            for name, value in attrs
            if name in ("src", "srcset", "background", "action", "xlink:href") or name.startswith("on")
        ]
        self.found += [
            (tag, str(value)) for name, value in attrs if name == "href" and (tag != "a" or not str(value).startswith(("http://", "https://")))
        ]
        self.numbers += [float(str(value)) for name, value in attrs if tag == "data" and name == "value"]


@pytest.mark.feature(31)
def test_the_file_loads_nothing_and_its_numbers_are_those_of_the_curves(as_owner: Client, team: Team, owner: User, runs: list[Run]) -> None:
    text = f"# Text\n\n[a run](/t/reasoning/runs/) and [mail](mailto:a@example.org)\n\n{CHART}\n\n```table\nruns: 1, 2\n```\n"
    report = verbs.create_report(team, owner, "Two </title> runs", text.replace("mailto:a@example.org", "https://example.org"))
    answer = as_owner.get(reverse("report-export", args=[report.pk]))
    html = text_of(answer)
    assert answer.headers["Content-Disposition"] == 'attachment; filename="two-title-runs-v1.html"'
    loads = Loads(html)
    assert loads.found == []
    assert "default-src 'none'" in html
    assert not re.search(r"url\(|@import", html)
    series = {number: Series("reward", *map(np.array, zip(*points, strict=True))) for number, points in REWARDS.items()}
    expected = [reading(series[number]).value for number in (1, 2) for reading in (curve_values.find_last_value, curve_values.compute_tail_mean)]  # type: ignore[union-attr]
    assert loads.numbers == pytest.approx(expected, abs=0)
    assert "mean of the last 10 % of steps" in html
    assert "run &lt;1&gt;" in html
    assert "http://127.0.0.1:8000/t/reasoning/runs/" in html
    lines = [
        [tuple(map(float, point.split(","))) for point in found.split()]
        for found in re.findall(r'<polyline class="series-\d solid" points="([^"]+)"', html)
    ]
    sent = build_metric_series(runs, ["reward"], "step", False)["reward"]
    assert [len(line) for line in lines] == [len(one["steps"]) for one in sent] == [30, 30]
    assert lines[0][0][1] > lines[0][-1][1]  # rises: y is measured from above
    assert lines[1][0][1] < lines[1][-1][1]
    assert text_of(as_owner.get(reverse("report-export", args=[report.pk]) + "?format=markdown")) == report.versions.get().text
    assert as_owner.get(reverse("report-export", args=[report.pk]) + "?format=pdf").status_code == 404
    assert Entry.objects.of(team).filter(action="report.export").count() == 2


def test_hostile_texts_do_nothing_on_the_page_and_in_the_file(as_owner: Client, team: Team, owner: User) -> None:
    run = make_run(team, name=stored(PAYLOADS[0])[:100], status=Status.FINISHED)
    answers = [rollout(1, 0, sample, completion=payload, rewards={payload: 1.0}) for sample, payload in enumerate(map(stored, PAYLOADS))]
    write(run.folder, [started(), *answers, measured(1, values={"reward": 0.5}), finished()])
    while ingest_spool(run):
        pass
    ids = list(Rollout.objects.filter(run=run).values_list("pk", flat=True))
    text = "\n\n".join(
        [
            *PAYLOADS,
            *(f"```rollout\nid: {pk}\noverlay: entropy\n```" for pk in ids[:30]),
            "```group\nrun: 1\nstep: 1\ngroup: 0\n```",
            "```table\nruns: 1\n```",
        ]
    )
    report = verbs.create_report(team, owner, "Hostile " + PAYLOADS[0][:100], text)
    assert Loads(render_report_file(report.versions.select_related("report__team").get())).found == []
    page = text_of(as_owner.get(reverse("report", args=[report.pk]) + "?part=live"))
    assert [one for one in Loads(page).found if one[0] != "use" and not one[1].startswith("/")] == []


def test_other_pages_add_blocks(as_owner: Client, team: Team, report: Report, runs: list[Run]) -> None:
    url, asked = reverse("report-add"), {"kind": "chart", "runs": "1,2", "metric": "reward", "x": "time", "smooth": "0.5"}
    page = text_of(as_owner.get(url, asked))
    assert report.title in page
    added = as_owner.post(url, {**asked, "report": report.pk})
    assert added.headers["Location"] == reverse("report", args=[report.pk]) + "#end"
    newest = verbs.read_newest_version(report)
    assert newest.text == "# What happened\n\nwords\n\n```chart\nruns: 1,2\nmetric: reward\nx: time\nsmooth: 0.5\n```\n"
    assert newest.message == "Added a chart"
    as_owner.post(url, {"kind": "table", "runs": "2", "report": "new", "title": "Tables"})
    assert Report.objects.of(team).get(title="Tables").versions.get().text == "```table\nruns: 2\n```\n"
    assert as_owner.post(url, {**asked, "report": "9" * 25}).status_code == 422
    assert as_owner.post(url, {**asked, "report": "new"}).status_code == 422  # it has no title
    assert as_owner.get(url, {"kind": "chart", "runs": "x"}).headers["Location"] == reverse("reports")
    for name, args, words in (("compare", [], "kind=table&amp;runs=1,2"), ("run", [runs[0].pk], "kind=chart&amp;runs=1")):
        assert words in text_of(as_owner.get(reverse(name, args=args) + "?run=1&run=2"))
    choices = as_owner.get(reverse("report-choices") + "?find=run&run=1&run=2").json()
    assert [run["number"] for run in choices["runs"]] == [2, 1]
    assert choices["metrics"] == [{"name": "reward", "runs": 2}]


def test_viewers_read_and_annotators_do_not(report: Report, team: Team, client: Client) -> None:
    for role, status in ((Role.VIEWER, 200), (Role.ANNOTATOR, 403)):
        client.force_login(make_member(f"{role}@example.org", team, role))
        assert client.get(reverse("report", args=[report.pk])).status_code == status
        assert client.get(reverse("report-export", args=[report.pk])).status_code == 403
        assert client.post(reverse("report-edit", args=[report.pk]), fields(report, "mine")).status_code == 403


@pytest.mark.parametrize(
    ("low", "high", "numbers"), [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (-3, 12, [0, 5, 10]), (0.001, 0.0012, [0.001, 0.00105, 0.0011, 0.00115, 0.0012])]
)
def test_axes_have_round_numbers(low: float, high: float, numbers: list[float]) -> None:
    assert list_round_numbers(low, high) == pytest.approx(numbers)
