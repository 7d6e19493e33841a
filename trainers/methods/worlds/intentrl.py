"""IntentRL: learn to ask what a person wants, first question by question, then in whole dialogues (arXiv 2602.03468).

A question q_t earns r_t = r_c + r_f - gamma rep_t - delta irr_t: r_c is its largest cosine to an intent that is still open, r_f its form (1, 0.5, 0),
rep_t whether its cosine to an earlier question is above 0.92, irr_t whether its cosine to every intent is below 0.80. A simulated person replies to
what is neither repeated nor irrelevant and turns the rest away.

Stage 1: a dialogue of the offline set, unrolled from the tree of intents, is given up to a turn, and the policy asks one question: R = r_t. Stage 2:
only a first part of it is given, and the policy leads the dialogue to its end: R = mean of r_t over its own questions, for all its tokens. An episode
in which it asks nothing earns 0. What is given is context, not in the loss. It differs from GRPO in rollout and reward.

Our reading of the abstract and of notes; gamma = 2 is given there, delta = 1 and the sum are ours. The person and the intents are the world
``interview`` (option ``about: intents``), where the cosine is the share of a common path in the tree.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.base import Turn, World, replay_episode
from trainers.worlds.interview_intents import INTENTS, TOPICS
from trainers.worlds.tool_use import write_call

if TYPE_CHECKING:
    import random

    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.tasks.base import Example


def grade_question(content: float, form: float, repeats: bool, beside: bool, gamma: float, delta: float) -> float:
    """r_t of a question."""
    return content + form - gamma * repeats - delta * beside


def grade_dialogue(turns: Sequence[Turn], given: int, gamma: float, delta: float) -> float:
    """R: mean of r_t over the questions from turn ``given`` on. A turn that is neither question nor answer counts as one without form, irrelevant."""
    graded = []
    for turn in turns[given:]:
        facts = turn.step.facts
        if "content" in facts:
            graded.append(grade_question(facts["content"], facts["form"], facts["repeats"], facts["beside"], gamma, delta))
        elif facts.get("error"):
            graded.append(grade_question(0.0, 0.0, False, True, gamma, delta))
    return sum(graded) / len(graded) if graded else 0.0


def unroll_dialogue(example: "Example", rng: "random.Random") -> list[str]:
    """Questions of an offline dialogue: what the topic is known for, aspect by aspect as in the tree, the aspects in random order."""
    known = sorted(TOPICS[example.data["topic"]], key=INTENTS.index)
    aspects = list(dict.fromkeys(aspect for aspect, _ in known))
    rng.shuffle(aspects)
    return [write_call("ask", " ".join(intent)) for aspect in aspects for intent in known if intent[0] == aspect]


class Config(Strict):
    first: float = param(0.5, "Share of the steps in stage 1 (single questions); 1: nothing but stage 1.", title="Share of stage 1", ge=0, le=1)
    given: int = param(2, "Stage 2: at most so many turns of the offline dialogue are given.", title="Given turns", ge=0, le=4)
    gamma: float = param(2.0, "Price of a repeated question.", title="Repeat penalty (gamma)", ge=0, le=100)
    delta: float = param(1.0, "Price of an irrelevant question.", title="Irrelevance penalty (delta)", ge=0, le=100)


class IntentRL(Method):
    card = Card(
        name="intentrl",
        title="Proactive user-intent agents",
        arxiv="2602.03468",
        system="IntentRL",
        base="grpo",
        provenance="abstract",
        source="abstract; notes that quote the paper's page; no official code found",
        fit="needs-environment",
        idea="Ask a person for hidden intents: learn single questions on given dialogues first, then whole dialogues with a simulated person.",
        formula=(
            r"r_t = \max_{i \in I_{open}} \cos(q_t, i) + r_f - \gamma\, \mathrm{rep}_t - \delta\, \mathrm{irr}_t",
            r"R_1 = r_t, \qquad R_2 = \frac{1}{T} \sum_t r_t",
        ),
        reading="the sum of the parts, delta, and how much of a dialogue is given",
        departures=(
            "The cosine of sentence embeddings is the share of a common path in the tree of intents.",
            "The simulated person is a dictionary behind the paper's gate, not a language model.",
            "An episode without a question of the policy's own earns 0.",
        ),
        parallel=False,
    )
    Config = Config
    worlds = frozenset({"interview"})
    roles = {"rewards": "makes"}
    owns = frozenset({"rollout", "stage"})
    requires = (
        Requirement("task.options.about", "equals", "intents", "intents to ask for are in the world with this option"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    @property
    def world(self) -> World:
        assert isinstance(self.run.task, World)
        return self.run.task

    def is_first_stage(self, step: int, total: int) -> bool:
        return step <= round(self.config.first * total)

    def rollout(self, session: "Session") -> "list[Completion]":
        first = self.is_first_stage(session.step, session.total_steps)
        self.log("stage", 1 if first else 2)
        prefixes, given = [list[int]() for _ in session.examples], [0] * len(session.examples)
        for start in range(0, len(session.examples), session.group_size):
            example = session.examples[start]
            asked = unroll_dialogue(example, session.rng)
            count = session.rng.randrange(len(asked)) if first else session.rng.randint(0, min(self.config.given, len(asked)))
            ids = [id_ for said in self.world.tell_turns(example, asked[:count]) for id_ in self.run.completion_ids(said.text, end=False)]
            for row in range(start, start + session.group_size):
                prefixes[row], given[row] = ids, count
        made = session.complete(prefixes=prefixes, stop=self.world.stop if first else ())
        for completion, count in zip(made, given, strict=True):
            completion.notes["given"] = count
        return made

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        graded, facts = [], list[dict[str, Any]]()
        for text, example, note in zip(batch.texts, batch.examples, batch.notes, strict=True):
            turns, given = replay_episode(self.world, example, text).turns, int(note.get("given", 0))
            graded.append(grade_dialogue(turns, given, self.config.gamma, self.config.delta))
            facts += [turn.step.facts for turn in turns[given:] if "content" in turn.step.facts]
        self.log("questions", len(facts) / len(batch.texts))
        if facts:
            self.log("repeats", sum(one["repeats"] for one in facts) / len(facts))
            self.log("beside", sum(one["beside"] for one in facts) / len(facts))
            self.log("intents", sum(bool(one["evidence"]) for one in facts) / len(facts))
        return torch.tensor(graded).to(rewards)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Questions",
                (Series(f"{name}/intents", "bring out an intent"), Series(f"{name}/repeats", "repeated"), Series(f"{name}/beside", "irrelevant")),
                "phases",
                phase=f"{name}/stage",
                phase_names=("", "single questions", "dialogues"),
            ),
            Panel("Questions per episode", (Series(f"{name}/questions", "of the policy's own"),)),
        )
