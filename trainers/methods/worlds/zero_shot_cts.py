"""CTS-LLM: a policy that is not trained walks a fixed dialogue graph, and says nothing that is not in it (arXiv 2410.05821).

At question n, with history h (the prompt, and what was asked and said since):
    C_h(n) = the next nodes of the edges whose value the user has said, or of all edges where none was      (``prune``; else all next nodes)
    skip n where the user has answered it and C_h(n) has one node; else ask n and prune again by the reply
    go to  argmax_{c in C_h(n)} log pi(turn(c) | h),   turn(c): <ask>c</ask> for a question, <answer>c</answer> for an answer
until an answer is reached, which is given. Nothing is sampled and no weight changes. With ``walk`` at "random" the next node is drawn from C_h(n)
and the policy is asked nothing.

That the user has answered is read by rule: the word of an edge stands in the prompt or in a reply. Another wording of it is left to the policy, which
ranks what the rule cannot tell apart. Step time: one forward pass over each next node at every question where more than one is left.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.interview import Interview
from trainers.worlds.interview_dialogue import Dialogue, DialogueGraph
from trainers.worlds.tool_use import write_answer, write_call

if TYPE_CHECKING:
    import random

    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node
    from trainers.tasks.base import Task

WORD = re.compile(r"\w+")


def read_words(text: str) -> set[str]:
    return set(WORD.findall(text.lower()))


def write_visit(graph: DialogueGraph, node: str) -> str:
    """The policy's turn that goes to a node of the graph."""
    return write_answer(node) if graph.is_answer(node) else write_call("ask", node)


def get_dialogue_graph(task: "Task") -> DialogueGraph:
    """Raises TypeError for a task without one, which the preflight refuses."""
    if not isinstance(task, Interview) or not isinstance(task.subject, Dialogue):
        raise TypeError(f"{task.name} has no dialogue graph to walk")
    return task.subject.graph


@dataclass
class Walk:
    """Of one row. ``node``: of the graph, where the walk is; ``at``: where its episode goes on; ``said``: the user's words so far."""

    node: str
    at: "Node"
    said: set[str]
    candidates: list[str] = field(default_factory=list)  # next nodes
    asked: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    ranked: int = 0  # choices between several next nodes
    margin: float = 0.0  # sum over them of how far the best was above the second, nats


class Config(Strict):
    walk: Literal["likelihood", "random"] = param(
        "likelihood", "How a next node is chosen: the one that the policy finds most likely, or by a draw that asks it nothing.", title="Walk"
    )
    prune: bool = param(True, "Leave out next nodes that the user's words speak against, and questions whose reply is known.", title="Prune and skip")


class ZeroShotCTS(Method):
    card = Card(
        name="zero-shot-cts",
        title="Zero-shot walk of a dialogue graph",
        arxiv="2410.05821",
        system="CTS-LLM",
        base="procedure",
        provenance="abstract",
        source="abstract; the published code (DigitalPhonetics/conversational-tree-search, branch llm-policy) was not read",
        fit="needs-environment",
        idea="Walk a fixed graph of questions by the likelihood of the next nodes, skip what the user has said, and answer from the graph only.",
        formula=(
            r"C_h(n) = \{c : (n \xrightarrow{v} c),\ v \text{ said in } h\} \text{ or } C(n) \text{ where none was}",
            r"n' = \arg\max_{c \in C_h(n)} \log \pi(\mathrm{turn}(c) \mid h), \quad n \text{ is skipped where it is answered and } |C_h(n)| = 1",
        ),
        reading="Nodes are ranked by the likelihood of the turn that visits them; a question is answered once an edge's word was said.",
        departures=(
            "The policy ranks nodes by the likelihood of its own turn; the paper instructs a large model to choose, after a search by embeddings.",
            "Whether the user has answered a question is a comparison of words; the paper asks the language model.",
            "The user is a rule of the world, with two wordings of every fact; the paper has a simulator with many paraphrases, and people.",
        ),
        claim=("procedure/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"rollout"})
    worlds = frozenset({"interview"})
    requires = (Requirement("task.options.about", "equals", "dialogue", "the walk needs a dialogue graph"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        graph = get_dialogue_graph(session.run.task)
        walks = [
            Walk(graph.start, episode.root, read_words(" ".join(message.content for message in prompt if message.role == "user")))
            for episode, prompt in zip(session.begin(), session.prompts, strict=True)
        ]
        while going := [walk for walk in walks if not graph.is_answer(walk.node) and not walk.at.finish]:
            for walk in going:
                self.pass_question(session, graph, walk)
            self.choose_nodes(session, graph, [walk for walk in going if not walk.at.finish])
        leaves = [walk.at if walk.at.finish else session.force(walk.at, write_visit(graph, walk.node), whole=True) for walk in walks]
        for walk, leaf in zip(walks, leaves, strict=True):
            leaf.facts = {**leaf.facts, "asked": walk.asked, "skipped": walk.skipped}
        self.report(session, walks, leaves)
        return session.finish(leaves)

    def pass_question(self, session: "Session", graph: DialogueGraph, walk: Walk) -> None:
        """Skips the question or asks it, and lists where it may lead. A walk whose question ended the episode stays where it is."""
        is_known = self.config.prune and graph.is_answered(walk.node, walk.said)
        if is_known and len(graph.list_children(walk.node, walk.said)) == 1:
            walk.skipped.append(walk.node)
        else:
            walk.asked.append(walk.node)
            walk.at = session.force(walk.at, write_visit(graph, walk.node))
            walk.said |= read_words(walk.at.text) if walk.at.by == "world" else set()
        walk.candidates = graph.list_children(walk.node, walk.said if self.config.prune else ())

    def choose_nodes(self, session: "Session", graph: DialogueGraph, walks: Sequence[Walk]) -> None:
        """Moves every walk to one of its candidates; all that have to be ranked are ranked in one batch."""
        several = [walk for walk in walks if len(walk.candidates) > 1]
        if self.config.walk == "random":
            draw_nodes(several, session.rng)
        else:
            rank_nodes(session, graph, several)
        for walk in walks:
            if len(walk.candidates) == 1:
                walk.node = walk.candidates[0]

    def report(self, session: "Session", walks: Sequence[Walk], leaves: "Sequence[Node]") -> None:
        count, skipped = len(walks), sum(len(walk.skipped) for walk in walks)
        passed = skipped + sum(len(walk.asked) for walk in walks)
        ranked = sum(walk.ranked for walk in walks)
        self.log("success", sum(map(session.is_right, leaves)) / count)
        self.log("turns", sum(len(leaf.episode.turns(leaf)) for leaf in leaves) / count)
        self.log("skipped", skipped / passed)
        self.log("ranked", ranked / count)
        if ranked and self.config.walk == "likelihood":
            self.log("margin", sum(walk.margin for walk in walks) / ranked)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Right answers", (Series(f"{name}/success", "in a round"), Series(f"heldout/{name}/success", "held out", dashed=True))),
            Panel("Turns of a dialogue", (Series(f"{name}/turns", "in a round"), Series(f"heldout/{name}/turns", "held out", dashed=True))),
            Panel(
                "Questions that were skipped",
                (Series(f"{name}/skipped", "share, in a round"), Series(f"heldout/{name}/skipped", "held out", dashed=True)),
            ),
            Panel("Choices of a dialogue that the user's words left open", (Series(f"{name}/ranked", "mean"),)),
            Panel("How far the best next node is above the second, nats", (Series(f"{name}/margin", "mean"),)),
        )


def draw_nodes(walks: Sequence[Walk], rng: "random.Random") -> None:
    """Moves each walk to one of its several candidates, drawn with equal chances."""
    for walk in walks:
        walk.node, walk.ranked = rng.choice(walk.candidates), walk.ranked + 1


def rank_nodes(session: "Session", graph: DialogueGraph, walks: Sequence[Walk]) -> None:
    """Moves each walk to the likeliest of its several candidates; of equally likely ones to the first."""
    places = [(walk, node) for walk in walks for node in walk.candidates]
    found = iter(session.likelihood([walk.at for walk, _ in places], [write_visit(graph, node) for _, node in places])) if places else iter(())
    for walk in walks:
        sums = {node: sum(next(found)) for node in walk.candidates}
        best, second = sorted(sums.values(), reverse=True)[:2]
        walk.node, walk.ranked, walk.margin = max(sums, key=sums.__getitem__), walk.ranked + 1, walk.margin + best - second
        walk.at.notes["margin"] = best - second
