"""No URL of the project shows or changes anything of another team, whichever id or parameter names it. A new URL is covered by being there."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import transaction
from django.test import Client

from lab.teams.accounts.models import Team, User
from tests.lab.cast import Address, Cast, addresses, make_cast
from tests.lab.query_names import choose_queries, record_names

THEIRS, OURS = "xqsecretq", "zkminez"
ALLAUTH = ("account_", "socialaccount_", "openid_connect_", "saml_", "mfa_")
ALL = [address for address in addresses() if not address.public]


@pytest.fixture
def theirs(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, THEIRS)


@pytest.fixture
def ours(stranger: User) -> Cast:
    return make_cast(stranger.memberships.get().team, stranger, OURS)


def body_of(response: Any) -> str:
    content = b"".join(response.streaming_content) if response.streaming else response.content
    return content.decode(errors="replace") + str(dict(response.headers))


def undone(client: Client, url: str, data: dict[str, Any] | None = None) -> Any:
    """Posts and takes back what it did."""
    with transaction.atomic():
        response = client.post(url, data or {})
        body_of(response)
        transaction.set_rollback(True)
    return response


def test_the_cast_has_a_value_for_every_parameter_of_every_url() -> None:
    missing = {address.name: address.unknown() for address in ALL if address.unknown()}
    assert missing == {}, (
        "These URLs take parameters that tests/lab/cast.py does not know. Add an object of the team to Cast and OBJECTS (or KEYS for <id:key>), "
        "or a plain value that opens the page to PLAIN, so that the tests of tenancy cover them."
    )


def test_the_owner_reaches_every_url_of_the_cast(theirs: Cast, as_owner: Client) -> None:
    """Without this, a 404 for strangers would prove nothing."""
    lost = []
    for address in ALL:
        if not address.owned:
            continue
        url = address.of(theirs)
        response = as_owner.get(url)
        if response.status_code == 405:
            response = undone(as_owner, url)
        if response.status_code in (404, 405, 500):
            lost.append(f"{address.name}: {response.status_code} for {url}")
    assert lost == []


@pytest.mark.parametrize("method", ["get", "head", "post", "put", "delete"])
def test_another_teams_objects_are_not_found(method: str, theirs: Cast, as_stranger: Client) -> None:
    shown = []
    for address in ALL:
        if not address.owned:
            continue
        url = address.of(theirs)
        with transaction.atomic():
            response = getattr(as_stranger, method)(url)
            if response.status_code not in (404, 405) or THEIRS in body_of(response):
                shown.append(f"{address.name}: {response.status_code} for {method} {url}")
            transaction.set_rollback(True)
    assert shown == []


def test_one_of_get_and_post_reaches_the_object_and_does_not_find_it(theirs: Cast, as_stranger: Client) -> None:
    for address in ALL:
        if address.owned:
            url = address.of(theirs)
            assert 404 in (as_stranger.get(url).status_code, undone(as_stranger, url).status_code), address.name


def naming(cast: Cast) -> list[dict[str, Any]]:
    """Query parameters that name objects of a team: each a page reads by itself, the rest together."""
    run, number = str(cast.run.pk), str(cast.run.number)
    one, other = str(cast.rollout.pk), str(cast.other_rollout.pk)
    found: list[dict[str, Any]] = [{name: run} for name in ("run", "clone", "after", "from", "with")]
    found += [{"run": [number, run], "prompt": str(cast.prompt.pk)}, {"a": run, "b": number}, {"a": one, "b": other}, {"a": other, "b": one}]
    found += [{"ids": f"{one},{other}"}, {"view": str(cast.view.pk)}, {"saved": str(cast.recipe.versions.get().pk)}]
    found += [{"list": f"run={number}&q={cast.mark}", "rollout": one, "comment": str(cast.comment.pk), "before": str(cast.comment.pk + 1)}]
    labels = {
        "queue": cast.queue,
        "item": cast.item,
        "version": cast.version,
        "dataset": cast.dataset,
        "against": cast.version,
        "labeller": cast.user,
    }
    found += [
        {name: str(one.pk) for name, one in labels.items()},
        {"labeller": str(cast.user.pk), "policy": f"{run}:final", "elsewhere": f"{run}:final", "state": "all"},
    ]
    rest = ("from_run", "parent", "source", "policy", "base", "reference", "ablation", "tag", "key", "replay", "prompt")
    objects = {"ablation": cast.ablation, "tag": cast.tag, "key": cast.view, "replay": cast.replay, "prompt": cast.prompt}
    return [*found, {name: str(objects[name].pk) if name in objects else run for name in rest}]


PARTS = ("", "feed", "groups", "panel", "columns", "found", "live", "header", "state", "preview", "votes")


NAMES_READ: dict[Address, set[str]] = {}  # by page; the same for every cast


def readable(cast: Cast, client: Client) -> Iterator[tuple[Address, str, set[str]]]:
    """The pages, with the names they look up in a query; without addresses that are only posted to or lead elsewhere: these look at none."""
    if not NAMES_READ:
        NAMES_READ.update(find_names_read(cast, client))
    for address, names in NAMES_READ.items():
        yield address, address.of(cast), set(names)


def find_names_read(cast: Cast, client: Client) -> Iterator[tuple[Address, set[str]]]:
    for address in ALL:
        names: set[str] = set()
        with record_names(names):
            response = client.get(address.of(cast))
            body_of(response)
        if response.status_code == 200:
            yield address, names


def ask_what_is_read(client: Client, url: str, queries: list[dict[str, Any]], names: set[str]) -> Iterator[tuple[dict[str, Any], int, str]]:
    """Query, status and body of each query that holds a name the page looks up, also one that it looks up only because of another."""
    waiting = list(queries)
    while chosen := choose_queries(waiting, names):
        waiting = [query for query in waiting if query not in chosen]
        for query in chosen:
            with record_names(names):
                response = client.get(f"{url}?{urlencode(query, doseq=True)}")
                body = body_of(response)
            yield query, response.status_code, body


def test_a_query_that_names_another_teams_objects_leaks_nothing(theirs: Cast, ours: Cast, as_stranger: Client) -> None:
    leaked, walked = [], 0
    for address, url, names in readable(ours, as_stranger):
        for query, status, body in ask_what_is_read(as_stranger, url, naming(theirs), names):
            walked += 1
            asked = str(query.get("list", ""))  # what was typed may be shown again
            if status >= 500 or THEIRS in body.replace(asked, "").replace(f"q%3D{THEIRS}", "").replace(f"q={THEIRS}", ""):
                leaked.append(f"{address.name}: {status} with {query}")
    assert leaked == []
    assert walked > 150


def test_lists_searches_and_parts_of_pages_hold_nothing_of_another_team(theirs: Cast, ours: Cast, as_stranger: Client) -> None:
    part_of_mark = THEIRS[1:-1]
    queries: list[dict[str, Any]] = [{"part": part} for part in PARTS]
    queries += [dict.fromkeys(("q", "find", "words"), part_of_mark), {"re": part_of_mark}]
    leaked, walked = [], 0
    for address, url, names in readable(ours, as_stranger):
        for query, status, body in ask_what_is_read(as_stranger, url, queries, names):
            walked += 1
            if status >= 500 or THEIRS in body:
                leaked.append(f"{address.name}: {status} with {query}")
    assert leaked == []
    assert walked > 100


def test_posts_that_name_another_teams_objects_take_nothing_from_it(theirs: Cast, ours: Cast, as_stranger: Client) -> None:
    fields = {name: value for query in naming(theirs) for name, value in query.items() if name not in ("list",)}
    fields |= {"run": str(theirs.run.pk), "rollout": [theirs.rollout.pk], "rollouts": [theirs.rollout.pk], "name": OURS, "tag": OURS, "text": OURS}
    leaked = []
    for address in ALL:
        response = undone(as_stranger, address.of(ours), fields)
        if response.status_code >= 500 or (not response.streaming and THEIRS in response.content.decode(errors="replace")):
            leaked.append(f"{address.name}: {response.status_code}")
    assert leaked == []


def test_ids_that_no_database_holds_are_not_found(ours: Cast, as_stranger: Client) -> None:
    wrong = []
    for address in ALL:
        if not address.owned or not any(parameter not in ("run_id", "replay_id", "ablation_id", "sweep_id") for parameter in address.parameters):
            continue
        url = address.of(ours)
        for parameter in address.parameters:
            value = ours.value(address.name, parameter)
            if isinstance(value, int):
                huge = url.replace(f"/{value}/", f"/{10**25}/", 1)
                answers = (as_stranger.get(huge), undone(as_stranger, huge))
                wrong += [f"{huge}: {response.status_code}" for response in answers if response.status_code >= 500]
    assert wrong == []


def test_somebody_who_is_not_signed_in_is_sent_to_the_login(theirs: Cast) -> None:
    nobody = Client()
    shown = []
    for address in ALL:
        url = address.of(theirs)
        for response in (nobody.get(url), nobody.post(url)):
            if response.status_code != 302 or not response.headers["Location"].startswith("/accounts/login/"):
                shown.append(f"{address.name}: {response.status_code}")
    assert shown == []


def test_every_url_is_an_address_of_one_or_the_other_kind() -> None:
    """The walk sees the project's URLs at all, and the public ones are those that are meant to be."""
    public = {address.name for address in addresses() if address.public and not address.name.startswith(ALLAUTH)}
    assert public == {"health", "health-live", "health-ready", "metrics", "setup", "invited", "csp-report", "api-openapi", "client", "client-wheel"}
    assert {address.name for address in ALL if address.owned} >= {
        "rollout",
        "run",
        "group",
        "prompt",
        "comment-change",
        "view-delete",
        "recipe-saved",
    }
    assert Address("annotations", ("rollout_id",)) in ALL
