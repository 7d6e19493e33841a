"""What came out of what: data, runs, policies, labels, dataset versions."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest
from ninja import Field, Schema

from lab.data.loop.lineage import build_lineage_graph, root_of
from lab.edges.api.base import Query, caller_of, make_router, require_permission
from lab.edges.api.problems import make_invalid_problem
from lab.teams.accounts.addresses import build_absolute_url, in_team

router = make_router("Datasets and the loop")


class NodeOut(Schema):
    id: str = Field(description="Kind and key; edges refer to it.", examples=["version:3"])
    kind: str = Field(description="data, run, policy, queue or version.")
    key: str = Field(description="The id of a run, queue or version; for a policy, the id of its run and which policy.")
    title: str
    about: str
    flag: str = Field(description="Why it is flagged, such as `recalled labels`; empty if it is not.")
    url: str


class EdgeOut(Schema):
    source: str
    target: str
    what: str = Field(examples=["trained on"])


class LineageOut(Schema):
    root: str | None = Field(description="The requested node.")
    nodes: list[NodeOut]
    edges: list[EdgeOut]
    left_out: int = Field(description="Number of more distant objects that are not included.")


@router.get("/lineage", auth=require_permission("datasets.read"), response=LineageOut, summary="Lineage of a run, a version or a queue")
def get_lineage(
    request: HttpRequest,
    run: str = Query("", max_length=50, description="Number or id of a run.", examples=["17"]),
    version: str = Query("", max_length=50, description="Id of a dataset version."),
    queue: str = Query("", max_length=50, description="Id of a queue."),
) -> object:
    """What it came from and what was created from it: the nearest objects. Without parameters, starts from the team's newest labels."""
    team = caller_of(request).team
    roots = {"run": run, "version": version, "queue": queue}
    if sum(bool(key.strip()) for key in roots.values()) > 1:
        raise make_invalid_problem("run", "cannot be combined with the others", "give only one of run, version and queue")
    try:
        root, _ = root_of(team, request.GET)
    except Http404 as error:
        raise make_invalid_problem(
            next(name for name, key in roots.items() if key.strip()), str(error), "give one of your team's, or remove it"
        ) from None
    graph, left_out = build_lineage_graph(team, root)
    nodes = [
        {
            **{name: getattr(node, name) for name in ("kind", "title", "about", "flag")},
            **serialize_node_key(key),
            "url": build_absolute_url(in_team(team, node.url)),
        }
        for key, node in graph.nodes.items()
    ]
    edges = [
        {"source": serialize_node_key(source)["id"], "target": serialize_node_key(target)["id"], "what": what}
        for (source, target), what in graph.edges.items()
    ]
    return {"root": serialize_node_key(root)["id"] if root else None, "nodes": nodes, "edges": edges, "left_out": left_out}


def serialize_node_key(key: tuple[str, str]) -> dict[str, Any]:
    return {"id": ":".join(key), "key": key[1]}
