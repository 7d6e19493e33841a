"""What came out of what in a team: data → run → policy → labels → dataset version → run, from rows that are there anyway.

Queries are bounded: the newest objects, and of every queue a sample of its items (with the runs its selection names).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db import connection
from django.http import QueryDict
from django.urls import reverse

from lab.data.datasets.downstream import flags_of
from lab.data.datasets.models import Recall, RecallKind, Source, Version
from lab.data.datasets.tool_plan import ToolPlan
from lab.data.loop.policy_descent import LineageRun, RunLineage
from lab.labelling.labels.models import Purpose, Queue
from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.models import Team
from trainers.contract.spec import FINAL

MOST_QUEUES, MOST_VERSIONS = 150, 150  # newest of the team
SAMPLED_ITEMS = 40  # of a queue
MOST_NODES = 120  # drawn

SOURCES = """
SELECT asked.id, r.run_id, min(r.step), max(r.step)
FROM unnest(%s::bigint[]) AS asked(id)
CROSS JOIN LATERAL (SELECT rollouts FROM labels_item WHERE queue_id = asked.id LIMIT %s) AS item
CROSS JOIN LATERAL unnest(item.rollouts) AS answer(id)
JOIN trajectories_rollout AS r ON r.id = answer.id
GROUP BY 1, 2
"""

WORDS = {"data": "data", "run": "run", "policy": "policy", "queue": "labels", "version": "dataset"}


@dataclass(frozen=True)
class GraphNode:
    """``key``: (kind, what tells it apart); ``flag``: why it is marked."""

    key: tuple[str, str]
    title: str
    about: str
    url: str
    flag: str = ""

    @property
    def kind(self) -> str:
        return self.key[0]

    @property
    def word(self) -> str:
        return WORDS[self.kind]


@dataclass
class Graph:
    nodes: dict[tuple[str, str], GraphNode] = field(default_factory=dict)
    edges: dict[tuple[tuple[str, str], tuple[str, str]], str] = field(default_factory=dict)  # from, to → what was done

    def add(self, node: GraphNode) -> tuple[str, str]:
        self.nodes.setdefault(node.key, node)
        return node.key

    def join(self, source: tuple[str, str], target: tuple[str, str], words: str) -> None:
        self.edges.setdefault((source, target), words)

    def around(self, roots: Iterable[tuple[str, str]], most: int = MOST_NODES) -> tuple[Graph, int]:
        """What the roots came from and what was made of them, the nearest first; how many more there would be."""
        roots = [root for root in roots if root in self.nodes]
        up, down = defaultdict(list), defaultdict(list)
        for source, target in self.edges:
            up[target].append(source)
            down[source].append(target)
        reached = dict.fromkeys(roots)
        for near in interleave_lists(walk_breadth_first(roots, up), walk_breadth_first(roots, down)):
            reached.setdefault(near)
        kept = set(list(reached)[:most])
        nodes = {key: node for key, node in self.nodes.items() if key in kept}
        edges = {pair: words for pair, words in self.edges.items() if pair[0] in kept and pair[1] in kept}
        return Graph(nodes, edges), len(reached) - len(kept)


def walk_breadth_first(roots: Iterable[Any], neighbours: dict[Any, list[Any]]) -> list[Any]:
    """Everything that can be reached, nearest first."""
    seen, reached = set(roots), list(roots)
    for key in reached:
        for other in neighbours.get(key, ()):
            if other not in seen:
                seen.add(other)
                reached.append(other)
    return reached


def interleave_lists(first: list[Any], second: list[Any]) -> Iterable[Any]:
    for number in range(max(len(first), len(second))):
        yield from first[number : number + 1]
        yield from second[number : number + 1]


class GraphBuilder:
    """Puts the graph of a team together."""

    def __init__(self, team: Team) -> None:
        self.team, self.graph, self.descent = team, Graph(), RunLineage(team)
        self.numbers = {run.number: run for run in self.descent.runs.values()}
        versions = Version.objects.of(team).select_related("dataset__team").prefetch_related("dataset__queues")
        self.versions = list(versions.order_by("-pk")[:MOST_VERSIONS])
        self.queues = list(Queue.objects.of(team).order_by("-pk").only("pk", "name", "purpose", "selection", "kind", "team_id")[:MOST_QUEUES])
        flagged = flags_of(self.versions)
        self.flagged_versions = set(flagged)
        trained = self.descent.trained_on(version for version in self.versions if version.pk in flagged)
        self.flagged_runs = {run.pk for run in (*trained, *self.descent.below(trained))}
        recalls = Recall.objects.of(team).filter(undone_at=None, kind=RecallKind.QUEUE)
        self.flagged_queues = set(recalls.values_list("queue", flat=True))

    def build(self) -> Graph:
        self.add_versions()
        self.add_queues()
        for run in self.descent.runs.values():
            self.add_sources(run)
        return self.graph

    def run(self, run: LineageRun) -> tuple[str, str]:
        about = f"{run.trainer.upper()}, {run.status}"
        flag = "recalled labels" if run.pk in self.flagged_runs else ""
        return self.graph.add(GraphNode(("run", str(run.pk)), f"#{run.number} {run.name}", about, reverse("run", args=[run.pk]), flag))

    def policy(self, run: LineageRun, which: str, title: str, about: str) -> tuple[str, str]:
        """A policy of a run, as the step between the run and what was made with it."""
        flag = "recalled labels" if run.pk in self.flagged_runs else ""
        key = self.graph.add(GraphNode(("policy", f"{run.pk}:{which}"), title, about, reverse("run-config", args=[run.pk]), flag))
        self.graph.join(self.run(run), key, "trained")
        return key

    def add_sources(self, run: LineageRun) -> None:
        """What a run was made of: a policy of another run, a dataset version, or the data of its task."""
        source = self.descent.runs.get(run.source) if run.source else None
        if source is not None:
            final = run.checkpoint == FINAL
            title = f"#{source.number} {'final policy' if final else f'at step {run.checkpoint}'}"
            kept = self.policy(source, run.checkpoint, title, "final" if final else "checkpoint")
            self.graph.join(kept, self.run(run), "starts from")
        if run.file:
            version = next((version for version in self.versions if run.file in (version.train_file, version.test_file)), None)
            if version is not None:
                self.graph.join(self.version(version), self.run(run), "trained on")
                return
        if source is None:
            url = f"{reverse('runs')}?{urlencode({'task': run.task})}"
            data = GraphNode(("data", run.file or f"task {run.task}"), run.file or run.task, "file" if run.file else "task", url)
            self.graph.join(self.graph.add(data), self.run(run), "trained on")

    def version(self, version: Version) -> tuple[str, str]:
        rows = (version.counts or {}).get("train")
        about = f"{rows:,} rows" if isinstance(rows, int) else version.state
        flag = "recalled labels" if version.pk in self.flagged_versions else ""
        return self.graph.add(GraphNode(("version", str(version.pk)), str(version), about, reverse("version", args=[version.pk]), flag))

    def add_versions(self) -> None:
        known = {queue.pk: queue for queue in self.queues}
        for version in self.versions:
            key = self.version(version)
            if version.dataset.source == Source.IMPORT:
                data = GraphNode(("data", f"import {version.dataset_id}"), "Imported file", "import", reverse("dataset", args=[version.dataset_id]))
                self.graph.join(self.graph.add(data), key, "imported")
            if version.dataset.source == Source.TURNS:
                url = reverse("dataset", args=[version.dataset_id])
                data = GraphNode(("data", f"turns {version.dataset_id}"), "Labels on turns", "labels", url)
                self.graph.join(self.graph.add(data), key, "frozen into")
            if version.dataset.source == Source.TOOL:
                self.add_tool_source(version, key)
                continue
            named = version.rule.get("queues") or [queue.pk for queue in version.dataset.queues.all()]
            for pk in named:
                if pk in known:
                    self.graph.join(self.queue(known[pk]), key, "frozen into")

    def add_tool_source(self, version: Version, key: tuple[str, str]) -> None:
        """The version that a dataset tool made another of."""
        plan = ToolPlan.read(version.rule)
        source = next((other for other in self.versions if plan and other.pk == plan.version), None)
        if plan and source:
            self.graph.join(self.version(source), key, f"made by {plan.name}")

    def queue(self, queue: Queue) -> tuple[str, str]:
        about = {Purpose.AB: "blind A/B", Purpose.REWARD: "human reward"}.get(Purpose(queue.purpose), queue.get_kind_display().split(":")[0].lower())
        flag = "recalled" if queue.pk in self.flagged_queues else ""
        return self.graph.add(GraphNode(("queue", str(queue.pk)), queue.name, about, reverse("queue", args=[queue.pk]), flag))

    def add_queues(self) -> None:
        sources = sources_of(self.queues)
        for queue in self.queues:
            key, steps = self.queue(queue), sources.get(queue.pk, {})
            for text in QueryDict(queue.selection.removeprefix("?")).getlist("run"):
                run = self.numbers.get(parse_whole_number(text) or 0)
                if run is not None:
                    steps.setdefault(run.pk, None)
            for pk, span in steps.items():
                if pk in self.descent.runs:
                    self.graph.join(self.sampler(self.descent.runs[pk], span), key, "sampled")

    def sampler(self, run: LineageRun, span: tuple[int, int] | None) -> tuple[str, str]:
        """The policies of a run that wrote the answers of a queue."""
        if span is None:
            return self.policy(run, "answers", f"Answers of #{run.number}", "")
        first, last = span
        words = f"step {first}" if first == last else f"steps {first} to {last}"
        return self.policy(run, f"answers {first} {last}", f"Answers of #{run.number}", words)


def sources_of(queues: list[Queue]) -> dict[int, dict[UUID, tuple[int, int] | None]]:
    """Queue → run → the steps of its answers, from a sample of its items."""
    sources: dict[int, dict[UUID, tuple[int, int] | None]] = defaultdict(dict)
    with connection.cursor() as cursor:
        cursor.execute(SOURCES, [[queue.pk for queue in queues], SAMPLED_ITEMS])
        for queue, run, first, last in cursor.fetchall():
            sources[queue][run] = (first, last)
    return sources


def graph_of(team: Team) -> Graph:
    return GraphBuilder(team).build()
