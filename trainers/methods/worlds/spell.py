"""SPELL: one policy asks about documents, answers from them, and votes on its answers (arXiv 2509.23863).

For each group a questioner reads facts, with up to ``memory`` questions about them that were solved before, and writes a question and its answer. It
is asked if it can be read and if the policy does not hit the answer without the facts. The G members of the group answer it from the facts, among
others that are beside the point, and a verifier votes ``votes`` times on whether an answer says the same as the questioner's:
R_responder = max(rule, majority)                         rule: the answers are equal; without a majority that can be read, rule alone
R_questioner = exp(-(p - 1/2)^2 / (2 / 36)),  p = mean R_responder;   0 for p in {0, 1}, -1/2 answered without the facts, -1 no question
R_vote = 1 like the majority, 0 not, -1 unreadable        only where 51 to 99 % agree and the majority says what the rule says

Advantages: responders by the base, within their group; votes by z-score among the votes on one answer; questioners by z-score over the batch. All
are the weights in training and one update. A question is written anew up to ``tries`` times; failed ones are trained on too, no more than there are
good ones. After a question that was solved at times its facts show one more. Held-out questions are the world's own.

It differs from the base in what is asked, in the reward and in the rows of two seats. Documents are facts over a graph of people.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import z_score_by_key
from trainers.maths.votes import UNREADABLE, find_majority, is_worth_training, reward_responder, reward_votes
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.question_slots import fill_group, make_slots
from trainers.rollouts.adoption import adopt_episode
from trainers.tasks.base import Example, digest_example
from trainers.worlds.graph_questions import MOST_HOPS, NO, NOISE, YES, GraphQuestions, compare_answers
from trainers.worlds.graph_texts import Question, draw_documents, follow_question

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch, RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Episode, Node

QUESTIONER, VERIFIER = "questioner", "verifier"
REWARD = "reward"  # in the notes of the last node of a questioner or a vote, and of a responder's episode
CLUSTER = "cluster"  # key of a slot's data: which facts it is about
WIDTH = 0.5 / 3  # of the questioner's reward
BAD_FORMAT, BAD_GROUND = -1.0, -0.5
EPSILON = 1e-6
LEFT_OUT = "no question was found for the group (spell)"


def reward_questioner(success: float, kind: str) -> float:
    """Of a question that was asked; 0 where all or none answer it."""
    if not 0 < success < 1:
        return 0.0
    if kind == "reverse":
        return 1 - success
    return 1 - 2 * abs(success - 0.5) if kind == "distance" else exp(-((success - 0.5) ** 2) / (2 * WIDTH**2))


def read_vote(text: str) -> int:
    """1 for yes, 0 for no, -1 for anything else."""
    return {f"<answer>{YES}</answer>": 1, f"<answer>{NO}</answer>": 0}.get(text.strip(), UNREADABLE)


@dataclass
class Asked:
    """What a questioner wrote. ``reward``: of one that is not asked."""

    request: Example
    leaf: "Node"
    question: Question | None
    answer: str
    reward: float = 0.0


class Config(Strict):
    votes: int = param(8, "Votes on each answer.", title="Votes", ge=1, le=64)
    verifier_share: float = param(0.125, "Rows of votes that are trained on, as a share of the responders' rows.", title="Vote share", ge=0, le=8)
    reward: Literal["gaussian", "reverse", "distance"] = param(
        "gaussian", "Of the questioner: around one half, 1 - p, or 1 - 2 |p - 1/2|.", title="Questioner's reward", advanced=True
    )
    memory: int = param(3, "Solved questions about the same facts that the questioner sees.", title="Memory", ge=0, le=3)
    tries: int = param(4, "Times a question is written for a group (ours).", title="Tries", ge=1, le=64)
    temperature: float = param(0.7, "Sampling temperature of questioner and verifier.", title="Temperature of the other seats", gt=0, le=10)


class Spell(Method):
    card = Card(
        name="spell",
        title="Questioner, responder and verifier",
        arxiv="2509.23863",
        system="SPELL",
        base="dapo",
        provenance="code",
        source="github Tongyi-Zhiwen/Qwen-Doc: SPELL/verl/verl/trainer/ppo/core_algos.py, ray_spell_trainer.py, scripts",
        fit="core",
        idea="Let one policy ask about documents, answer and judge: questions pay best where half of the answers are right, answers by votes.",
        formula=(
            r"R_{res} = \max(\mathrm{rule}, \mathrm{maj}(v_1..v_8))",
            r"R_{q} = \exp\left(-\frac{(p - 0.5)^2}{2 (0.5/3)^2}\right), \quad p = \frac{1}{G} \sum_i R_{res,i}",
            r"A_{res}, A_{ver}: \text{z-score in the group}, \quad A_{q}: \text{z-score over the batch}",
        ),
        departures=(
            "Documents are facts over a graph of people; there is one type of question.",
            "The responder sees the facts its question needs, their inverses and others, not the questioner's prompt again.",
            "A question is tried again for its group; the authors sample more questions than they need.",
            "Groups whose answers all earn the same keep their place in the number of tokens.",
            "The base's temperature is the responder's, and nothing is cut off the distribution (top-p).",
        ),
        claim=("spell/needed", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "maps", "rewards": "makes", "row_advantages": "maps"}
    owns = frozenset({"rollout"})
    worlds = frozenset({"graph_questions"})
    several_rows = True
    requires = (
        Requirement("task.options.in_context", "equals", True, "documents stand in the prompt"),
        Requirement("task.options.ask", "equals", "answer", "the prompts are slots for questions, and held-out ones the world's own"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        slots = make_slots(rows)
        for slot, example in zip(slots, rows, strict=True):
            slot.data[CLUSTER] = digest_example(example).hex()
        return slots

    @property
    def world(self) -> GraphQuestions:
        assert isinstance(self.run.task, GraphQuestions)
        return self.run.task

    def rollout(self, session: "Session") -> "list[Episode]":
        size = session.group_size
        starts = list(range(0, len(session.examples), size))
        good, bad = self.ask_questions(session, starts)
        episodes = session.begin()
        leaves = session.play([episode.root for episode in episodes])
        voted = self.collect_votes(session, [leaf for start in good for leaf in leaves[start : start + size]])
        for start in starts:
            own = leaves[start : start + size]
            if start in good:
                self.judge_group(session, good[start], own)
            else:
                for leaf in own:
                    leaf.episode.notes |= {"filtered": LEFT_OUT, REWARD: 0.0}
        self.keep_votes(session, voted)
        hosts = [leaves[start].episode for start in good]
        for place, one in enumerate([*good.values(), *bad[: len(good)]]):
            host = hosts[place % len(hosts)]
            one.leaf.notes[REWARD] = one.reward
            adopt_episode(host, one.leaf.episode, host.root, QUESTIONER)
        self.log("policy_tokens", sum(len(node.ids) for episode in episodes for node in episode.nodes if node.by == "policy"))
        return episodes

    def ask_questions(self, session: "Session", starts: Sequence[int]) -> tuple[dict[int, Asked], list[Asked]]:
        """(the question of each group that has one, by its first row; those that were not asked)."""
        good, bad, waiting = dict[int, Asked](), list[Asked](), list(starts)
        for _ in range(self.config.tries):
            written = self.write_questions(session, waiting)
            known = self.answer_without_facts(session, [one for one in written if not one.reward])
            for start, one in zip(waiting, written, strict=True):
                if not one.reward and id(one) in known:
                    one.reward = BAD_GROUND
                if one.reward:
                    bad.append(one)
                    continue
                good[start] = one
                assert one.question is not None
                cluster = session.examples[start].data[CLUSTER]
                nodes = one.request.data["nodes"]
                fill_group(session, start, self.world.pose_question(nodes, one.question, one.answer, session.rng))
                session.examples[start].data[CLUSTER] = cluster
            waiting = [start for start in waiting if start not in good]
            if not waiting:
                break
        made = [*good.values(), *bad]
        self.log("valid", len(good) / len(made))
        self.log("bad_format", sum(one.reward == BAD_FORMAT for one in bad) / len(made))
        self.log("bad_ground", sum(one.reward == BAD_GROUND for one in bad) / len(made))
        return good, bad

    def write_questions(self, session: "Session", starts: Sequence[int]) -> list[Asked]:
        """One for each group, about the facts of its slot."""
        requests = [self.build_request(session, session.examples[start]) for start in starts]
        leaves = session.play([session.begin_at(request).root for request in requests], temperature=self.config.temperature)
        made = []
        for request, leaf in zip(requests, leaves, strict=True):
            question, answer = self.world.read_proposal(request, leaf.state["answer"] or "")
            valid = question is not None and question.person in request.data["nodes"] and answer.isalpha()
            made.append(Asked(request, leaf, question, answer, 0.0 if valid else BAD_FORMAT))
        return made

    def build_request(self, session: "Session", slot: Example) -> Example:
        """Asks for a question about a slot's facts: more of them, and other than before, the more have been solved."""
        nodes, cluster = slot.data["nodes"], slot.data[CLUSTER]
        solved = session.store.items(f"spell/{cluster}")
        shown, gold = draw_documents(nodes, MOST_HOPS, NOISE + len(solved), self.run.rng("spell", cluster))
        self.log("documents", len(shown))
        return self.world.request_question(nodes, shown, gold, solved)

    def answer_without_facts(self, session: "Session", asked: Sequence[Asked]) -> set[int]:
        """Which of them, by identity, the policy answers as the questioner did without having seen the facts."""
        examples = [Example([Message("user", str(one.question))], one.answer, {"nodes": one.request.data["nodes"], "needed": []}) for one in asked]
        leaves = session.play([session.begin_at(example).root for example in examples])
        return {id(one) for one, leaf in zip(asked, leaves, strict=True) if session.is_right(leaf)}

    def collect_votes(self, session: "Session", leaves: "Sequence[Node]") -> "list[tuple[Node, list[Node], list[int]]]":
        """(an answer, the votes' nodes, the votes) of each leaf that has an answer; notes the responder's reward."""
        for leaf in leaves:
            leaf.episode.notes[REWARD] = float(session.is_right(leaf))
        said = [leaf for leaf in leaves if leaf.state["answer"] is not None]
        questions = [compare_answers(leaf.state["answer"], leaf.episode.example.reference).prompt for leaf in said]
        nodes = session.ask(VERIFIER, said, questions, self.config.votes, temperature=self.config.temperature) if said else []
        made = [(leaf, own, [read_vote(node.text) for node in own]) for leaf, own in zip(said, nodes, strict=True)]
        for leaf, _, votes in made:
            rule = session.is_right(leaf)
            leaf.episode.notes[REWARD] = reward_responder(rule, find_majority(votes))
            self.log("votes_right", sum(vote == int(rule) for vote in votes) / len(votes))
        return made

    def keep_votes(self, session: "Session", voted: "list[tuple[Node, list[Node], list[int]]]") -> None:
        """Draws the answers whose votes are trained on; the others are given up."""
        able = [place for place, (leaf, _, votes) in enumerate(voted) if is_worth_training(votes, session.is_right(leaf))]
        wanted = -(-int(self.config.verifier_share * len(voted)) // self.config.votes)
        kept = set(session.rng.sample(able, min(wanted, len(able))))
        for place, (_, nodes, votes) in enumerate(voted):
            for node, reward in zip(nodes, reward_votes(votes), strict=True):
                node.notes[REWARD] = reward
                if place not in kept:
                    prompt = node.episode.parent(node)
                    assert prompt is not None
                    node.fate = prompt.fate = "abandoned"
                    node.why = "votes on another answer are trained on"
        self.log("votes_trained", len(kept) / max(1, len(voted)))

    def judge_group(self, session: "Session", one: Asked, leaves: "Sequence[Node]") -> None:
        """Pays the questioner, and remembers its question if some have answered it."""
        success = sum(leaf.episode.notes[REWARD] for leaf in leaves) / len(leaves)
        one.reward = reward_questioner(success, self.config.reward)
        assert one.question is not None
        self.log("success", success)
        self.log("away_from_half", abs(success - 0.5))
        self.log("needed", len(one.question.chain) + 1)
        self.log("reference_right", float(follow_question(one.request.data["nodes"], one.question) == one.answer))
        self.log("questioner_reward", one.reward)
        if success and self.config.memory:
            name = f"spell/{leaves[0].episode.example.data[CLUSTER]}"
            session.store.limit(name, self.config.memory)
            session.store.add(name, str(one.question))

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        if not all(REWARD in note for note in batch.notes):  # a replay of stored rollouts does not know the votes
            return rewards
        return rewards.new_tensor([note[REWARD] for note in batch.notes])

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        """(R, T): questioners are compared over the batch, votes with the others on the same answer."""
        made = advantages.clone()
        rows = [(place, row) for place, row in enumerate(batch.rows) if row is not None and row.seat in (QUESTIONER, VERIFIER)]
        if not rows:
            return made
        keys = [QUESTIONER if row.seat == QUESTIONER else (id(row.episode), row.leaf.parent) for _, row in rows]
        own = z_score_by_key(advantages.new_tensor([row.leaf.notes[REWARD] for _, row in rows]), keys, EPSILON)
        places = [place for place, _ in rows]
        made[places] = own[:, None] * batch.mask[places]
        return made

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Answers of a group that are right", (Series(f"{name}/success", "p"), Series(f"{name}/away_from_half", "|p - 1/2|", dashed=True))),
            Panel(
                "Facts", (Series(f"{name}/needed", "that a question needs"), Series(f"{name}/documents", "that the questioner reads", dashed=True))
            ),
            Panel(
                "What the questioner writes",
                tuple(Series(f"{name}/{kind}", kind.replace("_", " ")) for kind in ("valid", "bad_format", "bad_ground")),
            ),
            Panel("Truth", (Series(f"{name}/reference_right", "answers of questioners"), Series(f"{name}/votes_right", "votes, by the rule"))),
        )
