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
    id: str = Field(description="Kind and key; what edges name.", examples=["version:3"])
    kind: str = Field(description="data, run, policy, queue or version.")
    key: str = Field(description="Of a run, a queue or a version its id; of a policy the run's id and which.")
    title: str
    about: str
    flag: str = Field(description="Why it is marked, such as `recalled labels`; empty when it is not.")
    url: str


class EdgeOut(Schema):
    source: str
    target: str
    what: str = Field(examples=["trained on"])


class LineageOut(Schema):
    root: str | None = Field(description="The node that was asked about.")
    nodes: list[NodeOut]
    edges: list[EdgeOut]
    left_out: int = Field(description="Objects further away that are not shown.")


@router.get("/lineage", auth=require_permission("datasets.read"), response=LineageOut, summary="Lineage of a run, a version or a queue")
def get_lineage(
    request: HttpRequest,
    run: str = Query("", max_length=50, description="Number or id of a run.", examples=["17"]),
    version: str = Query("", max_length=50, description="Id of a dataset version."),
    queue: str = Query("", max_length=50, description="Id of a queue."),
) -> object:
    """What one of them came from and what was made of it: the nearest objects. Without any of the three, around the team's newest labels."""
    team = caller_of(request).team
    roots = {"run": run, "version": version, "queue": queue}
    if sum(bool(key.strip()) for key in roots.values()) > 1:
        raise make_invalid_problem("run", "goes alone", "ask for one of run, version and queue")
    try:
        root, _ = root_of(team, request.GET)
    except Http404 as error:
        raise make_invalid_problem(
            next(name for name, key in roots.items() if key.strip()), str(error), "give one of its own, or remove it"
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
