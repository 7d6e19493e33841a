"""BatCoder: a policy documents programs and rebuilds them from its own words, and how alike they are pays for both (arXiv 2602.02554).

c is a program, d ~ pi(. | "document", c) its documentation, c' ~ pi(. | "implement", d) what is rebuilt of it, without c at hand.
S(c, c') in [0, 1]     share of the tests of c that c' passes
R_doc(d) in {0, 1/2, 1}   all parts of d tell something / some do / none does, or d holds words of the programs' language
documentation:  R = R_doc(d) mean_k S(c, c'_k),   A = the base's, over the documents of c
rebuilds:       A = z-score of S(c, c'_k) over the rebuilds of d

The G members of a group are documents of one program, and each has K rebuilds, which are further rows; a document with R_doc = 0 is not rebuilt.
Both are the weights in training, one update. No pair of program and words is given: training prompts are programs to document, whatever the world
asks. Without ``documenter`` only the rebuilds are trained on.

This is our reading of an abstract and notes on the paper, which has one reward S R_doc for both stages; the split of the credit is ours. The paper's
S compares program dependence graphs, and its R_doc looks for a description, typed parameters and an example.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import z_score_by_key
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.list_programs import OPERATIONS, THEN, ProgramError, read_document
from trainers.worlds.programs import Programs, clean_text, count_passed

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch, RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Episode, Node

IMPLEMENTER = "implementer"
AGREEMENT, STRUCTURE = "agreement", "structure"  # notes: S of a rebuild, its mean of a document; R_doc


def copies_code(words: str) -> bool:
    """Whether names of operations stand in the words."""
    return any(word in OPERATIONS for word in words.replace(",", " ").split())


def grade_structure(words: str | None) -> float:
    """R_doc. None: what was written is no document."""
    if words is None or copies_code(words):
        return 0.0
    told = [tells_something(part) for part in words.split(THEN)]
    return 1.0 if all(told) else 0.5 if any(told) else 0.0


def tells_something(part: str) -> bool:
    try:
        return bool(read_document(part))
    except ProgramError:
        return False


def reward_document(structure: float, agreements: Sequence[float]) -> float:
    """R of a document; 0 for one that was not rebuilt."""
    return structure * sum(agreements) / len(agreements) if agreements else 0.0


class Config(Strict):
    rebuilds: int = param(4, "Programs that are rebuilt from each document (K, ours).", title="Rebuilds (K)", ge=1, le=64)
    documenter: bool = param(True, "Train the documents too, not their rebuilds alone.", title="Train documents")


class BatCoder(Method):
    card = Card(
        name="batcoder",
        title="Documentation and code by back-translation",
        arxiv="2602.02554",
        system="BatCoder",
        base="dapo",
        provenance="abstract",
        source="the abstract, and notes of others on section 3: R = R_sim R_doc, R_doc in {0, 0.5, 1}",
        fit="core",
        idea="Document a program, rebuild it from the words alone, and reward both directions by how alike the programs are.",
        formula=(
            r"R(d) = R_{doc}(d)\, \frac{1}{K} \sum_k S(c, c'_k), \quad A(d) = z_{N}(R)",
            r"A(c'_k) = z_{K}(S(c, c'_k)), \quad c'_k \sim \pi(\cdot | \mathrm{implement}, d)",
        ),
        reading="credit by stage: documents are compared with documents of the same program, rebuilds with rebuilds of the same document",
        departures=(
            "Similarity is the share of tests that both programs agree on, in place of that of program dependence graphs.",
            "A document is sound when a rule of the world reads its parts; the paper looks for a description, parameters and an example.",
            "Documents that are not sound are not rebuilt.",
        ),
        claim=("batcoder/agreement", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "maps", "rewards": "makes", "row_advantages": "maps"}
    owns = frozenset({"rollout"})
    worlds = frozenset({"programs"})
    several_rows = True
    requires = (
        Requirement("task.options.write", "equals", "both", "one policy documents and implements: its demonstrations show both"),
        Requirement("task.options.language", "differs from", "python", "a rule reads the documents of list programs"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    @property
    def world(self) -> Programs:
        assert isinstance(self.run.task, Programs)
        return self.run.task

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        assert isinstance(run.task, Programs)
        return [run.task.ask_for_words(example) for example in rows]

    def rollout(self, session: "Session") -> "list[Episode]":
        leaves = session.play([episode.root for episode in session.begin()])
        words = [None if leaf.state["errors"] or not leaf.state["over"] else leaf.state["last"] for leaf in leaves]
        structure = [grade_structure(one) for one in words]
        sound = [place for place, grade in enumerate(structure) if grade]
        asked = [[Message("user", self.world.write_request(clean_text(words[place] or "")))] for place in sound]
        rebuilt = session.ask(IMPLEMENTER, [leaves[place] for place in sound], asked, self.config.rebuilds) if sound else []
        agreements: list[list[float]] = [[] for _ in leaves]
        for place, nodes in zip(sound, rebuilt, strict=True):
            agreements[place] = [self.compare_programs(leaves[place], node) for node in nodes]
        for leaf, grade, own in zip(leaves, structure, agreements, strict=True):
            leaf.episode.notes |= {STRUCTURE: grade, AGREEMENT: sum(own) / len(own) if own else 0.0}
        self.report(leaves, words, agreements)
        return [leaf.episode for leaf in leaves]

    def compare_programs(self, leaf: "Node", node: "Node") -> float:
        """S of the rebuild that ends at ``node``, which is noted there."""
        cases, code = leaf.episode.example.data["cases"], self.world.parse_code(node.text)
        node.notes[AGREEMENT] = 0.0 if code is None else count_passed(self.world.run_code(code, cases), cases) / len(cases)
        return node.notes[AGREEMENT]

    def report(self, leaves: "Sequence[Node]", words: Sequence[str | None], agreements: Sequence[Sequence[float]]) -> None:
        made = [value for own in agreements for value in own]
        if made:
            self.log(AGREEMENT, sum(made) / len(made))
            self.log("rebuilt", sum(value == 1 for value in made) / len(made))
        self.log("copied", sum(one is not None and copies_code(one) for one in words) / len(words))
        self.log(STRUCTURE, sum(leaf.episode.notes[STRUCTURE] for leaf in leaves) / len(leaves))
        self.log("policy_tokens", sum(len(node.ids) for leaf in leaves for node in leaf.episode.nodes if node.by == "policy"))

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        if not all(STRUCTURE in note for note in batch.notes):  # a replay of stored rollouts does not know the rebuilds
            return rewards
        return rewards.new_tensor([reward_document(note[STRUCTURE], [note[AGREEMENT]]) for note in batch.notes])

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        """(R, T): rebuilds are compared with the others of their document."""
        made = advantages if self.config.documenter else torch.zeros_like(advantages)
        places = [place for place, row in enumerate(batch.rows) if row is not None and row.seat == IMPLEMENTER]
        if not places:
            return made
        leaves = [row.leaf for place in places if (row := batch.rows[place]) is not None]
        own = z_score_by_key(advantages.new_tensor([leaf.notes[AGREEMENT] for leaf in leaves]), [id(leaf.episode) for leaf in leaves])
        made = made.clone()
        made[places] = own[:, None] * batch.mask[places]
        return made

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Rebuilt programs",
                (Series(f"{name}/{AGREEMENT}", "tests that agree"), Series(f"{name}/rebuilt", "rebuilt as they were", dashed=True)),
            ),
            Panel("Documents", (Series(f"{name}/{STRUCTURE}", "soundness"), Series(f"{name}/copied", "copy code", dashed=True))),
        )
