"""SpaceTools' DIRL: reinforcement with one tool, then imitation of what came of it and of a teacher, then reinforcement with all tools (2512.04069).

Stage 1 (``first`` of the steps): GRPO on questions that one tool answers. Right episodes are kept.
Stage 2 (``distil`` of the steps): each row is a given episode, a kept one with probability 1/4 and else the teacher's for any question;
    A = 1 for all of its tokens, so that the gradient is that of their mean log-likelihood, reduced as the base reduces its own loss
Stage 3 (the rest): GRPO on all questions.

What the world writes is in no loss. It differs from GRPO in what is asked and given in the first two stages; without them it is GRPO. The stages are
the paper's, and what they are stages of is a text stand-in: its tools see images, and its teacher is a large model. Here the tools are functions of
the world ``toolbox``, and the teacher is the way that the world knows. One run takes all stages and the policy goes on from one to the next; the
paper trains the specialist apart and starts stage 2 from the base model again. The rate of learning is the run's in all stages.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.tasks.base import Example
from trainers.worlds.base import World
from trainers.worlds.replays import replay_texts
from trainers.worlds.toolbox import SINGLE, Toolbox, draw_question

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node

ONE_TOOL, DISTIL, ALL_TOOLS = 1, 2, 3
NAMES = ("", "one tool", "imitation", "all tools")
GIVEN = "given"  # in the notes of a completion: whose episode it is, "own" or "teacher"
KEPT = 256  # right episodes of the first stage, the newest


def find_stage(step: int, total: int, first: float, distil: float) -> int:
    """Of a step from 1."""
    if step <= round(first * total):
        return ONE_TOOL
    return DISTIL if step <= round((first + distil) * total) else ALL_TOOLS


class Config(Strict):
    first: float = param(0.25, "Share of the steps with one tool (ours).", title="One tool", ge=0, le=1)
    distil: float = param(0.25, "Share of the steps that imitate (ours).", title="Imitation", ge=0, le=1)
    singles: int = param(256, "Questions for one tool (ours).", title="Questions for one tool", ge=1, le=100_000)
    own: float = param(0.25, "Share of the imitated episodes that are the policy's own from the first stage.", title="Own episodes", ge=0, le=1)


class SpaceToolsDIRL(Method):
    card = Card(
        name="spacetools-dirl",
        title="One tool first, then all",
        arxiv="2512.04069",
        system="SpaceTools (DIRL)",
        base="grpo",
        provenance="abstract",
        source="abstract; a public note for the mix of data and the rewards",
        fit="needs-modality",
        idea="Train with one tool, imitate what came of it together with a teacher's episodes, then train with all tools. A text stand-in.",
        formula=(
            r"D = D_{one} \cup D_{teacher}, \quad |D_{one}| : |D_{teacher}| = 1 : 3",
            r"\mathrm{GRPO}(\text{one tool}) \to \max_\theta E_D\, \log \pi_\theta(y | x) \to \mathrm{GRPO}(\text{all tools})",
        ),
        reading="how the steps are shared out",
        departures=(
            "Text stand-in: functions of people and places in place of tools of computer vision; no number compares with the paper's.",
            "The teacher is the world's own way, not a large model.",
            "All stages are one run, and imitation goes on from the specialist's weights.",
            "Answers are right or not; the paper grades boxes, points and grasps.",
        ),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"rollout", "stage"})
    roles = {"data": "maps", "advantages": "maps"}
    idle = {"advantages": ("distil", 0.0)}
    worlds = frozenset({"toolbox"})
    requires = (
        Requirement("dataset", "equals", None, "it asks questions of its own and needs the world's way to answer them"),
        Requirement("training.num_iterations", "equals", 1, "in later passes the clip would stop imitation"),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.kept: list[tuple[int, list[str]]] = []  # number of the question and turns of right episodes with one tool
        self.questions = 0  # that were there before those for one tool

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    @property
    def world(self) -> World:
        assert isinstance(self.run.task, World)
        return self.run.task

    def find_stage(self, step: int, total: int) -> int:
        return find_stage(step, total, self.config.first, self.config.distil)

    def data(self, rows: "list[Example]", run: "RunContext") -> list[Any]:
        """Questions for one tool are added where there is a stage for them."""
        self.questions = len(rows)
        count = self.config.singles if self.config.first else 0
        return [*rows, *(draw_question(run.rng(self.card.name, "single", number), SINGLE) for number in range(count))]

    def curriculum(self, history: "History") -> Tensor | None:
        if history.size == self.questions:
            return None
        is_single = torch.arange(history.size) >= self.questions
        return (is_single if self.find_stage(history.step, history.total_steps) == ONE_TOOL else ~is_single).float()

    def rollout(self, session: "Session") -> "Sequence[Completion]":
        stage = self.find_stage(session.step, session.total_steps)
        self.log("stage", float(stage))
        made = self.give_episodes(session) if stage == DISTIL else session.complete()
        if stage != DISTIL:
            self.log("policy_tokens", sum(sum(one.mask) for one in made))
        return made

    def give_episodes(self, session: "Session") -> "list[Completion]":
        """A given episode for each row, with the log-probabilities that the policy gives it."""
        notes, turns = dict[int, dict[str, Any]](), list[list[str]]()
        for row in range(len(session.examples)):
            rng = self.run.rng(self.card.name, "given", session.step, session.first_row + row)
            is_own = bool(self.kept) and rng.random() < self.config.own
            number, own = rng.choice(self.kept) if is_own else (rng.randrange(self.questions), [])
            example: Example = self.run.examples[number]
            session.examples[row], session.prompts[row] = example, list(example.prompt)
            turns.append(own if is_own else self.world.way(example, self.world.begin(example)))
            notes[row] = {GIVEN: "own" if is_own else "teacher"}
        leaves = [write_turns(session, episode.root, own) for episode, own in zip(session.begin(), turns, strict=True)]
        written = [node for leaf in leaves for turn in leaf.episode.turns(leaf) for node in turn]
        above = [node.episode.parent(node) for node in written]
        scored = session.likelihood([node for node in above if node is not None], [node.ids for node in written], session.temperature)
        for node, logprobs in zip(written, scored, strict=True):
            node.logprobs = logprobs
        self.log("own_given", sum(note[GIVEN] == "own" for note in notes.values()) / len(notes))
        return session.finish(leaves, notes=notes)

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        if self.find_stage(batch.step, batch.total_steps) != DISTIL:
            return advantages
        return torch.ones_like(advantages)

    def observe(self, batch: "RolloutBatch") -> None:
        stage = self.find_stage(batch.step, batch.total_steps)
        replays, calls = replay_texts(self.run.task, batch.examples, batch.texts), Counter[str]()
        for place, replay in enumerate(replays):
            calls.update(turn.step.facts["tool"] for turn in replay.turns if "tool" in turn.step.facts)
            if stage == ONE_TOOL and batch.correct[place] and not replay.rest:
                self.kept.append((batch.example_ids[place], [turn.text for turn in replay.turns]))
        self.kept = self.kept[-KEPT:]
        if stage != DISTIL:
            self.log(f"right/{NAMES[stage].replace(' ', '_')}", batch.correct.float().mean())
            for tool in Toolbox.tools:
                self.log(f"calls/{tool.name}", calls[tool.name] / len(replays))

    def state(self) -> dict[str, Any]:
        return {"kept": list(self.kept)}

    def restore(self, state: dict[str, Any]) -> None:
        self.kept = [(number, turns) for number, turns in state["kept"]]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        right = tuple(Series(f"{name}/right/{one.replace(' ', '_')}", one) for one in NAMES if one and one != NAMES[DISTIL])
        return (
            Panel("Right answers by stage", right, "phases", phase=f"{name}/stage", phase_names=NAMES),
            Panel("Calls of an episode by tool", tuple(Series(f"{name}/calls/{tool.name}", tool.name) for tool in Toolbox.tools), "stack"),
            Panel("Imitated episodes", (Series(f"{name}/own_given", "share that is the policy's own"),)),
        )


def write_turns(session: "Session", root: "Node", turns: Sequence[str]) -> "Node":
    """The episode with these turns, which are trained on; it ends where they no longer fit."""
    node = root
    for text in turns:
        if node.finish:
            break
        node = session.force(node, text, train=True, whole=True)
    return node
