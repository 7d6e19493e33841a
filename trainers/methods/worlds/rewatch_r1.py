"""ReWatch-R1: a right answer is worth more when its observations are true and enough to answer (arXiv 2509.23652). A text stand-in.

{(Act_i, Obs_i)}, i = 1..N: what the policy looked at, and what it says it saw
r_obs = (1/N) sum_i [the text supports Obs_i]              0 for N = 0
r_rea = 1 where the policy, asked again with its observations alone, answers right
r = r_acc (1 + w_o r_obs + w_r r_rea) + w_f [right form]              w_o = w_r = 1

Neither truth nor sufficiency is paid without the right answer; without this gate, r = r_acc + w_o r_obs + w_r r_rea + w_f [form]. It differs from
GRPO in the reward; with w_o = w_r = w_f = 0 it is GRPO on the right answer, with the second answers as a measure.

This is our interpretation of the abstract and of a public note on the paper. There, a chain of thought about a video holds the observations, a model
checks them against detailed captions, and a model answers from them. Here the world is ``reader``: the policy looks at a text chunk by chunk and
writes a few words after each one, its memory. A note is true when the chunks read so far say each value that it names, of the topic that it names
with it; a note without a value says nothing and is no observation. The second answer is given from the last memory and what was recalled, without the
text. Step time: one short answer more for each episode.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.second_answers import ask_again
from trainers.worlds.base import Replay
from trainers.worlds.facts import ATTRIBUTES, split_words
from trainers.worlds.reader import Reader
from trainers.worlds.replays import read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.contract.events import Message
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node
    from trainers.tasks.base import Example

SECOND = "second_answer"  # in the notes of a completion: whether its second answer is right, 0 without a memory
TOPIC_OF = {value.lower(): topic for topic, values in ATTRIBUTES.items() for value in values}


def list_claims(note: str) -> list[tuple[str, str]]:
    """(topic, value) of each value that a note names, in lower case: of the last topic named before it, or of its own where none was."""
    found, topic = list[tuple[str, str]](), ""
    for word in split_words(note):
        if word in ATTRIBUTES:
            topic = word
        elif word in TOPIC_OF:
            found.append((topic or TOPIC_OF[word], word))
    return found


def is_supported(note: str, lines: Sequence[Sequence[str]]) -> bool:
    """Whether the (topic, value) lines that were read say all that a note claims."""
    return set(list_claims(note)) <= {(topic, value.lower()) for topic, value in lines}


def check_observations(replay: Replay, example: "Example") -> list[bool]:
    """For each note that claims something, whether the text read until then supports it."""
    chunks, found, read = example.data.get("lines", ()), list[bool](), 1
    for turn in replay.turns:
        facts = turn.step.facts
        if facts.get("tool") == "memory" and list_claims(turn.step.state["memory"]):
            found.append(is_supported(turn.step.state["memory"], [line for chunk in chunks[:read] for line in chunk]))
        read = turn.step.state["read"]
    return found


def reward_observations(right: Tensor, true: Tensor, enough: Tensor, form: Tensor, weights: tuple[float, float, float], gate: bool) -> Tensor:
    """(B,) each: r_acc, r_obs, r_rea and the form; ``weights``: w_o, w_r, w_f."""
    process = weights[0] * true + weights[1] * enough
    return right + (right * process if gate else process) + weights[2] * form


class Config(Strict):
    observations: float = param(1.0, "Paid for the share of true notes.", title="True observations (w_o)", ge=0, le=10)
    reasoning: float = param(1.0, "Paid where the notes alone are enough for the right answer.", title="Enough to answer (w_r)", ge=0, le=10)
    form: float = param(0.1, "Paid for the right form (the paper's weight is not known).", title="Form (w_f)", ge=0, le=10)
    gate: bool = param(True, "Pay observations of right answers only.", title="Only if right")


class ReWatchR1(Method):
    card = Card(
        name="rewatch-r1",
        title="Observations that are true and enough",
        arxiv="2509.23652",
        system="ReWatch-R1 (O&R reward)",
        base="grpo",
        provenance="abstract",
        source="abstract; a public note on the paper with the reward",
        fit="needs-modality",
        idea="Beside the right answer, and only with it, pay for observations that are true and enough to answer. A text stand-in.",
        formula=(
            r"r = r_{acc} (1 + r_{obs} + r_{rea}) + r_{fmt}",
            r"r_{obs} = \frac{1}{N} \sum_{i=1}^{N} [\text{the source supports } (Act_i, Obs_i)]",
            r"r_{rea} = [a' \text{ right}], \quad a' \sim \pi(\cdot \mid x, Obs_1..Obs_N)",
        ),
        reading="the weight of the form, what a note claims, and the reward without the gate",
        departures=(
            "Text stand-in: a text read in chunks takes the place of a video, and notes that of observations; no number compares with the paper's.",
            "A rule of the world checks observations; the paper asks a model with detailed captions.",
            "The policy itself answers again, from its last memory and what it recalled: each note replaces the one before.",
            "The synthesis of captions, questions and traces, and the supervised stage before, are the world's own demonstrations.",
        ),
        claim=("rewatch-r1/unsupported", "lower"),
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"rewards": "makes"}
    worlds = frozenset({"reader"})
    requires = (
        Requirement("task.options.fold", "differs from", True, "the text is read in one context, and the memory alone asked afterwards"),
        Requirement("task.options.windows", "at least", 0.05, "a policy that never saw a memory alone reads nothing in it", hard=False),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        leaves = session.play([episode.root for episode in session.begin()])
        asked = [place for place, leaf in enumerate(leaves) if leaf.state["memory"] or leaf.state["recalled"]]
        questions = [self.write_question(leaves[place]) for place in asked]
        shares = ask_again(session, [leaves[place] for place in asked], questions, [""] * len(asked))
        second = dict(zip(asked, shares, strict=True))
        self.log("policy_tokens", sum(len(node.ids) for leaf in leaves for node in leaf.episode.nodes if node.by == "policy"))
        return session.finish(leaves, notes={place: {SECOND: second.get(place, 0.0)} for place in range(len(leaves))})

    def write_question(self, leaf: "Node") -> "list[Message]":
        """The question and the memory, after the end of the text."""
        world, example = self.run.task, leaf.episode.example
        assert isinstance(world, Reader)
        return world.write_window(example, {**leaf.state, "read": len(example.data.get("chunks", ())) + 1})

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        if not all(SECOND in note for note in batch.notes):  # a replay of stored rollouts does not know the second answers
            return rewards
        config, replays = self.config, replay_texts(self.run.task, batch.examples, batch.texts)
        checked = [check_observations(replay, example) for replay, example in zip(replays, batch.examples, strict=True)]
        true = torch.tensor([sum(own) / len(own) if own else 0.0 for own in checked]).to(rewards)
        enough = torch.tensor([note[SECOND] for note in batch.notes]).to(rewards)
        form = torch.tensor([float(read_final_answer(replay) is not None) for replay in replays]).to(rewards)
        right = batch.correct.to(rewards)
        self.report(checked, right, enough)
        return reward_observations(right, true, enough, form, (config.observations, config.reasoning, config.form), config.gate)

    def report(self, checked: Sequence[Sequence[bool]], right: Tensor, enough: Tensor) -> None:
        self.log("right", right.mean())
        self.log("enough", enough.mean())
        self.log("right_and_enough", (right * enough).mean())
        every = [one for own in checked for one in own]
        self.log("observations", len(every) / len(checked))
        if every:
            self.log("unsupported", 1 - sum(every) / len(every))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Answers",
                (
                    Series(f"{name}/right", "right"),
                    Series(f"{name}/right_and_enough", "right, and again from the notes"),
                    Series(f"{name}/enough", "right from the notes", dashed=True),
                ),
            ),
            Panel("Notes that the text does not support", (Series(f"{name}/unsupported", "share of the notes that claim something"),)),
            Panel("Notes of an episode that claim something", (Series(f"{name}/observations", "notes"),)),
        )
