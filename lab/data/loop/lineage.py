"""The lineage page: a graph of what came out of what, around one object or around all labels of the team, and the same as a table."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe

from lab.data.datasets.models import Version
from lab.data.loop.graph import Graph, GraphNode, graph_of
from lab.data.loop.graph_layout import HEIGHT, WIDTH, compute_graph_layout
from lab.labelling.labels.models import Queue
from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.models import Run

TEXT_WIDTH = WIDTH - 22  # of a node, pixels; the browser cuts what is longer
MOST_ROOTS = 40  # newest versions and queues the team's page starts from


@dataclass(frozen=True)
class NodeDrawing:
    node: GraphNode
    x: float
    y: float
    root: bool


@require_safe
def show_lineage(request: LabRequest) -> HttpResponse:
    """``?run=`` (number or id), ``?version=``, ``?queue=``: around that; without them around the team's newest labels."""
    root, title = root_of(request.team, request.GET)
    graph, left_out = build_lineage_graph(request.team, root)
    context = {"room": "datasets", "focus": title, "root": root, "left_out": left_out, **build_lineage_drawing(graph, {root} if root else set())}
    return render(request, "loop/lineage.html", context)


def build_lineage_graph(team: Team, root: tuple[str, str] | None) -> tuple[Graph, int]:
    """What came out of what around ``root`` or, without one, around the team's newest labels; how much is left out."""
    whole = graph_of(team)
    if root is not None:
        return whole.around([root])
    labels = [key for key in whole.nodes if key[0] in ("version", "queue")]
    return whole.around(labels[:MOST_ROOTS] or [key for key in whole.nodes if key[0] == "run"][:MOST_ROOTS])


def root_of(team: Team, query: QueryDict) -> tuple[tuple[str, str] | None, str]:
    """The node somebody asks about and what it is called. Raises Http404 for what the team does not have."""
    for kind in ("run", "version", "queue"):
        text = query.get(kind, "").strip()
        if not text:
            continue
        number = parse_whole_number(text) or 0
        root: Run | Version | Queue | None
        if kind == "run":
            root = run_named(team, text, number)
        elif kind == "version":
            root = Version.objects.of(team).select_related("dataset").filter(pk=number).first()
        else:
            root = Queue.objects.of(team).filter(pk=number).first()
        if root is None:
            raise Http404(f"your team has no such {kind}")
        return (kind, str(root.pk)), str(root)
    return None, ""


def run_named(team: Team, text: str, number: int) -> Run | None:
    runs = Run.objects.of(team)
    if number or text == "0":
        return runs.filter(number=number).first() if number < 2**31 else None
    try:
        return runs.filter(pk=UUID(text)).first()
    except ValueError:
        return None


def build_lineage_drawing(graph: Graph, roots: set[tuple[str, str]]) -> dict[str, object]:
    placed = compute_graph_layout(list(graph.nodes), list(graph.edges))
    nodes = [NodeDrawing(graph.nodes[key], *at, key in roots) for key, at in placed.at.items()]  # type: ignore[index]
    nodes.sort(key=lambda node: (node.x, node.y))
    flagged = {key for key, node in graph.nodes.items() if node.flag}
    lines = [(drawn, pair[0] in flagged and pair[1] in flagged) for pair, drawn in placed.paths.items()]  # type: ignore[comparison-overlap]
    table = [(graph.nodes[source], words, graph.nodes[target]) for (source, target), words in graph.edges.items()]
    return {
        "nodes": nodes,
        "lines": lines,
        "table": table,
        "width": placed.width,
        "height": placed.height,
        "node_width": WIDTH,
        "node_height": HEIGHT,
        "text_width": TEXT_WIDTH,
    }
