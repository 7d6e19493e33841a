"""The columns and groups of the table of runs: chosen, pinned, ordered, remembered, and what groups say of their runs."""

import re
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection, transaction
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.lib.column_choice import ColumnChoice
from lab.teams.accounts.models import Membership, Team, User
from lab.training.runs import grouping, listing, metrics
from lab.training.runs.columns import arrange_columns
from lab.training.runs.models import Attempt, Run, Status

LR = "config.training.learning_rate"


def make_run(team: Team, number: int, rate: float | None = 1e-4, reward: Any = None, **fields: Any) -> Run:
    spec = {
        "seed": number,
        "training": {"trainer": "grpo", "learning_rate": rate},
        "methods": [{"name": "kimi-k2.5", "config": {"tau": number / 10}}],
    }
    about = {"name": f"run {number}", "recipe": "grpo", "trainer": "grpo", "task": "t", "policy": "p", "status": Status.FINISHED}
    return Run.objects.create(team=team, number=number, spec=spec, latest={"reward": reward}, **{**about, **fields})


def measure(run: Run, values: list[float], name: str = "reward") -> None:
    Attempt.objects.get_or_create(run=run, number=1, from_step=0, host="h", device="cpu", started_at=timezone.now())
    with transaction.atomic(), connection.cursor() as cursor:
        metrics.append_metric_points(cursor, run.pk, 1, {name: list(enumerate(values, start=1))})


def read_rows(page: str) -> list[list[str]]:
    """The words of each cell, heads first."""
    table = page[page.index('<table class="table') : page.index("</table>")]
    rows = re.findall(r"<tr\b.*?</tr>", table, re.S)
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row, re.S)] for row in rows]


def read_names(team: Team, url: str) -> list[str]:
    return [run.name for run in listing.page_of(team, listing.read_query(QueryDict(url)))]


def collect(team: Team, field: str, cols: str, url: str = "") -> grouping.RunGroups:
    found = grouping.find_group_field(field)
    assert found
    columns = arrange_columns(ColumnChoice.read(cols))
    return grouping.collect_run_groups(listing.select_matching_runs(team, listing.read_query(QueryDict(url))), found, columns)


@pytest.mark.parametrize(
    ("cols", "expected"),
    [
        ("", ["a", "b", "c"]),
        ("-a,d", ["b", "c", "d"]),
        ("^c", ["c", "a", "b"]),
        ("*order,c,^d,a,b", ["d", "c", "a", "b"]),
        ("*order,b", ["b", "a", "c"]),  # what it does not know comes last
        ("*same,-b,*order,^%2Dx%2C,c,a", ["-x,", "c", "a"]),
        (",,^,-,%", ["a", "b", "c"]),
    ],
)
def test_a_choice_of_columns_says_the_same_once_it_is_written_again(cols: str, expected: list[str]) -> None:
    class Named:
        def __init__(self, name: str, usual: bool) -> None:
            self.name, self.usual = name, usual

    offered = [Named("a", True), Named("b", True), Named("c", True), Named("d", False), Named("-x,", False)]
    choice = ColumnChoice.read(cols)
    seen = [column.name for column in choice.arrange(offered)]
    assert seen == expected
    again = ColumnChoice.of(offered, seen, choice.pinned, choice.switches)
    assert [column.name for column in ColumnChoice.read(str(again)).arrange(offered)] == expected
    assert str(ColumnChoice.read(str(again))) == str(again)


@pytest.mark.feature(25)
def test_columns_are_chosen_pinned_ordered_and_remembered_in_the_team(as_owner: Client, team: Team, owner: User) -> None:
    run = make_run(team, 1, reward=0.5, tokens=1234)
    measure(run, [0.0] * 18 + [0.4, 0.6])
    menu = as_owner.get("/runs/columns/").content.decode()
    for name in (LR, "config.methods.kimi-k2%2E5.tau", "reward_tail", "weights"):
        assert f'name="column" value="{name}"' in menu
    wanted = {"column": ["reward_tail", "name", LR, "config.methods.kimi-k2%2E5.tau", "methods", "tokens"], "pin": ["name"]}
    address = as_owner.post("/runs/columns/?status=ended", wanted).headers["Location"]
    page = as_owner.get(address).content.decode()
    heads, row = read_rows(page)
    assert heads[1:] == ["Run", "Reward mean of the last 10 % of steps", "learning_rate", "kimi-k2.5: tau", "Methods", "Tokens"]
    assert [row[1].split(" kimi")[0], *row[2:]] == ["#1 run 1 dapo", "0.500", "0.0001", "0.1", "kimi-k2.5", "1.2k"]
    assert page.count("pinned pin-1") == 2
    assert 'title="mean of the last 10 % of steps"' in page
    # Elsewhere the same person sees them too, and the links say them; other people and other teams do not.
    again = as_owner.get("/runs/").content.decode()
    assert read_rows(again) == [heads, row]
    assert f"cols={quote(QueryDict(address.partition('?')[2])['cols'], safe='*')}" in again.replace("&amp;", "&").replace("%2A", "*")
    other = Team.objects.create(name="Other", slug="other")
    Membership.objects.create(team=other, user=owner, role="owner")
    make_run(other, 1)
    assert read_rows(as_owner.get("/t/other/runs/").content.decode())[0][1:4] == ["Status", "Run", "Recipe"]
    reset = as_owner.post("/runs/columns/", {"usual": "1"}).headers["Location"]
    assert reset == "/runs/"
    assert read_rows(as_owner.get("/runs/").content.decode())[0][1:4] == ["Status", "Run", "Recipe"]


@pytest.mark.feature(25)
def test_any_setting_sorts_and_is_text(team: Team, as_owner: Client) -> None:
    for number, rate in ((1, 1e-3), (2, 2e-6), (3, None)):
        make_run(team, number, rate)
    run = make_run(team, 4, 0.5, policy="x")
    Run.objects.of(team).filter(pk=run.pk).update(spec={**run.spec, "task": {"a.b": "<img src=x onerror=alert(1)>"}})
    assert read_names(team, f"sort=-{LR}") == ["run 4", "run 1", "run 2", "run 3"]
    assert read_names(team, f"sort={LR}") == ["run 2", "run 1", "run 4", "run 3"]
    assert read_names(team, "sort=config.methods.kimi-k2%252E5.tau")[0] == "run 1"
    page = as_owner.get("/runs/", {"cols": "config.task.a%252Eb,base"}).content.decode()
    assert "&lt;img src=x" in page
    assert "<img src=x" not in page
    for bad in ("config.", "config..a", "config.methods.x", "config.spec__a" + "a" * 300, "recipe.mean"):
        assert "Runs cannot be sorted by" in as_owner.get("/runs/", {"sort": bad}).content.decode()


@pytest.mark.feature(25)
def test_groups_have_mean_lowest_and_highest_and_lead_to_their_runs(team: Team, as_owner: Client, as_stranger: Client) -> None:
    for number, rate, reward in ((1, 1e-4, 0.2), (2, 1e-4, 0.4), (3, 1e-4, "nan"), (4, 3e-4, 0.9), (5, None, None)):
        measure(make_run(team, number, rate, reward), [0.0, number / 10], "heldout/reward")
    make_run(team, 6, 1e-4, 1.0, archived_at=timezone.now())
    found = collect(team, LR, "heldout_best")
    said = {group.label: (group.numbers, [group.statistics[f"reward.{one}"] for one in grouping.STATISTICS]) for group in found.groups}
    assert said["0.0001"] == ([3, 2, 1], [pytest.approx(0.3), 0.2, 0.4])  # NaN is no number; the archived run is left out
    assert said["0.0003"] == ([4], [0.9, 0.9, 0.9])
    assert said["none"] == ([5], [None, None, None])
    best = {group.label: group.statistics["heldout_best.mean"] for group in found.groups}
    assert best == {"0.0001": pytest.approx(0.2), "0.0003": pytest.approx(0.4), "none": pytest.approx(0.5)}
    by_mean = grouping.sort_run_groups(found.groups, "reward.mean", True)
    assert [group.label for group in by_mean] == ["0.0003", "0.0001", "none"]
    assert [group.label for group in grouping.sort_run_groups(found.groups, "group", False)] == ["0.0001", "0.0003", "none"]

    page = as_owner.get(f"/runs/?group={LR}&sort=-reward.mean&cols=-entropy,-speed").content.decode()
    assert "5 runs in 3 groups" in page
    heads, names, *rows = read_rows(page)
    assert heads[1:] == ["learning_rate", "Runs", "Reward last step"]
    assert names == ["mean ↓", "min", "max"]
    assert [row[1:] for row in rows if len(row) > 1] == [
        ["▸ 0.0003", "1", "0.900", "0.900", "0.900"],
        ["▸ 0.0001", "3", "0.300", "0.200", "0.400"],
        ["▸ none", "1", "–", "–", "–"],
    ]
    assert 'data-group-runs="3,2,1"' in page
    [inside] = [link for link in re.findall(r'<a class="group-open" href="([^"]+)"', page) if "0.0001" in link]
    inside = inside.replace("&amp;", "&")
    assert read_names(team, inside.removeprefix("?")) == ["run 3", "run 2", "run 1"]
    part = as_owner.get(f"/runs/{inside}&part=group").content.decode()
    assert part.count("<tr data-run") == 3
    assert part.count('colspan="3"') == 3  # the reward under its three statistics
    assert "learning_rate: 0.0001" in as_owner.get(f"/runs/{inside}").content.decode()  # a chip takes the value away
    assert "run 1" not in as_stranger.get(f"/runs/{inside}").content.decode()


@pytest.mark.parametrize("field", grouping.PLAIN)
def test_runs_are_grouped_by_every_fact_of_theirs(field: str, team: Team, owner: User) -> None:
    make_run(team, 1, created_by=owner)
    groups = collect(team, field, "").groups
    assert [group.numbers for group in groups] == [[1]]
    assert read_names(team, f"value={quote(str(groups[0].value))}") == ["run 1"]
    assert groups[0].label == {"base": "dapo", "methods": "kimi-k2.5", "project": "none", "who": owner.email}.get(field) or groups[0].label != "none"


def test_values_add_up_and_bad_ones_are_said(team: Team, as_owner: Client) -> None:
    for number, rate in ((1, 1e-4), (2, 1e-4), (3, 3e-4)):
        make_run(team, number, rate)
    both = quote(f"{LR}:0.0001\nconfig.seed:2")
    assert read_names(team, f"value={both}") == ["run 2"]
    for url, said in (("value=recipe", "Unknown value"), ("value=config.seed%3A%7B", "Unknown value"), ("group=spec", "cannot be grouped by")):
        assert said in as_owner.get(f"/runs/?{url}").content.decode()
    assert as_owner.get("/runs/?value=recipe%3A%22%5Cu0000%22").status_code == 200


def test_groups_cost_the_same_queries_however_many_runs(team: Team) -> None:
    def count_queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            collect(team, "config.seed", "heldout_best,seconds,config.seed")
        return len(captured)

    make_run(team, 1)
    few = count_queries()
    for number in range(2, 30):
        make_run(team, number, reward=0.5)
    assert count_queries() == few == 4
