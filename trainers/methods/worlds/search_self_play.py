"""Search self-play: one policy writes questions that it then has to answer by searching (arXiv 2510.18821).

For each group a proposer is given an answer and facts, and writes a question. It enters the game only if these facts answer it with the given answer;
otherwise a stored question of the last ``keep_steps`` steps takes its place. The G members of the group are the solver's attempts.
p = share of right attempts
r_solver = 1[right],         A = the base's, within the group
r_proposer = 1 - p           (or 4 p (1 - p) for 0 < p < 1);  0 for a question that did not enter;   A = r_proposer, as it is: one sample, no baseline

Both seats are the weights in training, and their rows one update. Training prompts are slots that the questions fill, held-out questions are the
world's own. It differs from the base in what is asked, in the reward and in the rows of the proposer.

In the paper the proposer searches for its facts, and the policy itself is asked whether they, with four documents of noise among them, answer the
question. Here they stand in its prompt, with four facts of noise, and the world ``graph_questions`` says what they answer. ``filter`` off asks
whatever can be read as a question: then one that nobody can answer pays best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.question_slots import fill_group, make_slots
from trainers.rollouts.adoption import adopt_episode
from trainers.tasks.base import Example
from trainers.worlds.graph_questions import GraphQuestions
from trainers.worlds.graph_texts import Question, parse_question

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch, RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Episode, Node

PROPOSER = "proposer"
QUESTIONS = "search-self-play"  # list of the store
REWARD = "reward"  # in the notes of the proposer's last node
LEFT_OUT = "no question was found for the group (search-self-play)"


@dataclass
class Proposal:
    """What the proposer wrote for a group. ``fault``: why it is not asked; ``question``: None where it cannot be read."""

    request: Example
    leaf: "Node"
    question: Question | None
    fault: str


def reward_proposer(success: float, kind: str) -> float:
    """Of a question that was asked."""
    if kind == "intermediate":
        return 4 * success * (1 - success) if 0 < success < 1 else 0.0
    return 1 - success


class Config(Strict):
    reward: Literal["failure", "intermediate"] = param(
        "failure", "What the proposer is paid: 1 - p, or 4 p (1 - p).", title="Proposer's reward", advanced=True
    )
    filter: bool = param(True, "Ask only questions that the proposer's facts answer with the given answer.", title="Filter")
    keep_steps: int = param(10, "Steps after which the stored questions are dropped.", title="Steps a question is stored", ge=1, le=100_000)
    temperature: float = param(0.8, "Sampling temperature of the proposer.", title="Proposer's temperature", gt=0, le=10)


class SearchSelfPlay(Method):
    card = Card(
        name="search-self-play",
        title="Search self-play",
        arxiv="2510.18821",
        system="SSP",
        base="dapo",
        provenance="code",
        source="github Alibaba-Quark/SSP: quarl/trainer/ppo/ssp_ray_trainer.py, quarl/utils/ssp_data_manager.py, examples/train_ssp.sh",
        fit="needs-environment",
        idea="Let one policy write questions and answer them by searching: it is paid for questions that it fails at, and for answering them.",
        formula=(
            r"r_{solver} = 1[\mathrm{right}], \quad p = \frac{1}{G} \sum_i r_i",
            r"r_{proposer} = 1 - p, \quad A_{proposer} = r_{proposer}",
        ),
        departures=(
            "The proposer's facts stand in its prompt; the authors' proposer searches for them.",
            "The world says what the facts answer; the authors ask the policy, with the facts and four documents of noise.",
            "Both seats are trained in one update; the authors update for the proposer, then for the solver.",
            "Where no question is stored the group is left out; the authors ask a dummy question.",
            "Answers that hold several answers cannot occur in this world, and are not paid less.",
        ),
        claim=("search-self-play/hops", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "maps", "rewards": "makes", "row_advantages": "maps"}
    owns = frozenset({"rollout"})
    worlds = frozenset({"graph_questions"})
    several_rows = True
    requires = (
        Requirement("task.options.ask", "equals", "answer", "the prompts are slots for questions, and held-out ones the world's own"),
        Requirement(
            "task.options.in_context", "differs from", True, "the solver looks facts up; with facts in the prompt there is nothing to search"
        ),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        return make_slots(rows)

    @property
    def world(self) -> GraphQuestions:
        assert isinstance(self.run.task, GraphQuestions)
        return self.run.task

    def rollout(self, session: "Session") -> "list[Episode]":
        starts = list(range(0, len(session.examples), session.group_size))
        if session.step % self.config.keep_steps == 0 and session.store.size(QUESTIONS):
            session.store.replace(QUESTIONS, [])
        proposals = self.write_proposals(session, len(starts))
        asked = [self.ask_group(session, start, proposal) for start, proposal in zip(starts, proposals, strict=True)]
        episodes = session.begin()
        leaves = session.play([episode.root for episode in episodes])
        for place, (start, proposal) in enumerate(zip(starts, proposals, strict=True)):
            own = leaves[start : start + session.group_size]
            self.judge_group(session, proposal, own, asked[place])
            adopt_episode(own[0].episode, proposal.leaf.episode, own[0].episode.root, PROPOSER)
        self.log("stored", session.store.size(QUESTIONS))
        self.log("policy_tokens", sum(len(node.ids) for episode in episodes for node in episode.nodes if node.by == "policy"))
        return episodes

    def write_proposals(self, session: "Session", count: int) -> list[Proposal]:
        """A question for each group, or what was written in its place."""
        writing = GraphQuestions({**self.world.options, "ask": "write"})
        difficulty = self.run.attempt.spec.task.difficulty
        requests = [writing.example(session.rng, difficulty) for _ in range(count)]
        leaves = session.play([session.begin_at(request).root for request in requests], temperature=self.config.temperature)
        made = []
        for request, leaf in zip(requests, leaves, strict=True):
            text = leaf.state["answer"] or ""
            question = self.world.read_proposal(request, text)[0]
            made.append(Proposal(request, leaf, question, self.world.judge_proposal(request, text)))
        for fault in ("no question", "nobody of this name", "another answer", "not in the documents"):
            self.log(f"fault/{fault.replace(' ', '_')}", sum(one.fault == fault for one in made) / len(made))
        self.log("valid", sum(not one.fault for one in made) / len(made))
        return made

    def ask_group(self, session: "Session", start: int, proposal: Proposal) -> Literal["fresh", "stored", ""]:
        """Puts the proposer's question into the group's rows, or a stored one; what it is."""
        nodes, answer, kind = proposal.request.data["nodes"], proposal.request.data["answer"], "fresh"
        question = proposal.question
        if question is None or (self.config.filter and proposal.fault) or question.person not in nodes:
            stored = session.store.draw(QUESTIONS, 1, session.rng)
            if not stored:
                return ""
            nodes, answer, question, kind = stored[0]["nodes"], stored[0]["answer"], parse_question(stored[0]["question"]), "stored"
        assert question is not None
        fill_group(session, start, self.world.pose_question(nodes, question, answer, session.rng))
        return "fresh" if kind == "fresh" else "stored"

    def judge_group(self, session: "Session", proposal: Proposal, leaves: "Sequence[Node]", asked: str) -> None:
        """Pays the proposer, stores its question, and leaves out a group that got none."""
        success = sum(map(session.is_right, leaves)) / len(leaves)
        proposal.leaf.notes[REWARD] = reward_proposer(success, self.config.reward) if asked == "fresh" else 0.0
        self.log("proposer_reward", proposal.leaf.notes[REWARD])
        self.log("reused", float(asked == "stored"))
        if asked == "fresh":
            question = proposal.question
            assert question is not None
            self.log("success", success)
            self.log("hops", len(question.chain))
            self.log("unanswerable", float(bool(proposal.fault)))
            data = proposal.request.data
            session.store.add(QUESTIONS, {"nodes": data["nodes"], "question": str(question), "answer": data["answer"]})
        if not asked:
            for leaf in leaves:
                leaf.episode.notes["filtered"] = LEFT_OUT

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        return batch.correct.to(rewards.dtype)

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        """(R, T): the proposer's rows have its reward as it is."""
        made = advantages.clone()
        for place, row in enumerate(batch.rows):
            if row is not None and row.seat == PROPOSER:
                made[place] = row.leaf.notes[REWARD]
        return torch.where(batch.mask > 0, made, torch.zeros_like(made))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Solver's success",
                (Series(f"{name}/success", "on fresh questions"), Series(f"{name}/proposer_reward", "proposer's reward", dashed=True)),
            ),
            Panel("Edges that a question follows", (Series(f"{name}/hops", "of those asked"),)),
            Panel(
                "Questions that are not asked",
                (
                    Series(f"{name}/fault/no_question", "no question"),
                    Series(f"{name}/fault/nobody_of_this_name", "nobody of this name"),
                    Series(f"{name}/fault/another_answer", "another answer"),
                    Series(f"{name}/fault/not_in_the_documents", "not in the documents"),
                ),
                "stack",
            ),
            Panel(
                "Questions asked",
                (Series(f"{name}/reused", "stored ones"), Series(f"{name}/unanswerable", "unanswerable, of the fresh ones", dashed=True)),
            ),
        )
