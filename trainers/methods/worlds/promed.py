"""ProMed: a question is paid by the Shapley values of the facts that it brings out, an answer by being right (arXiv 2508.13514).

v(S) = P(right answer | prompt, facts S) under the policy that the run starts from
phi_f = sum over S without f of |S|! (n - |S| - 1)! / n! (v(S + f) - v(S)),   w = softmax(phi / T) over the n facts that the prompt hides
SIG(q_t) = sum of w_f over the facts that turn t has brought out
question tokens: a SIG(q_t) + b 1[the final answer is right] + form;   answer tokens: c 1[right] + form;   form: 1[every turn in the right form]
A = the reward of the token's turn minus the mean over turns of its kind in the group

It differs from GRPO in the advantages. With ``measure`` at "count" every fact weighs 1 / n, what w becomes where T is large. A turn that is neither a
question nor an answer ends the episode and counts as an answer of reward 0. Step time: 2^n short forward passes for a new case; equal ones are kept.

Formula of SIG and advantages: our reading. The world ``interview`` has the case as a table of facts and says itself which are known; the paper
extracts them with a large model, and estimates phi from 30 orders where it is exact here.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.data.episode_samples import encode_pieces
from trainers.data.turn_masks import list_own_spans
from trainers.maths.credit import centre_by_key
from trainers.maths.shapley import Coalition, compute_shapley_values, list_coalitions
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.tasks.base import Example
from trainers.worlds.base import Replay
from trainers.worlds.interview import SYMPTOMS, find_decisive
from trainers.worlds.replays import replay_texts
from trainers.worlds.tool_use import write_answer, write_call, write_information

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

QUESTION, ANSWER = "question", "answer"
KNOWN = 50_000  # worths that are remembered


def weigh_facts(values: Mapping[str, float], temperature: float) -> dict[str, float]:
    """softmax(phi / T)."""
    top = max(values.values(), default=0.0)
    raised = {fact: math.exp((value - top) / temperature) for fact, value in values.items()}
    return {fact: one / sum(raised.values()) for fact, one in raised.items()}


def list_hidden_facts(example: Example) -> list[str]:
    """Those that the prompt does not tell, in the order of the world."""
    return [fact for fact in SYMPTOMS if fact in example.data["facts"] and fact not in example.data["told"]]


def list_gains(replay: Replay, told: Sequence[str]) -> list[list[str]]:
    """The facts that each turn has brought out."""
    known, gains = set(told), list[list[str]]()
    for turn in replay.turns:
        after = turn.step.state["known"]
        gains.append([fact for fact in after if fact not in known])
        known |= set(after)
    return gains


def reward_turns(replay: Replay, told: Sequence[str], weights: Mapping[str, float], right: bool, config: "Config") -> list[tuple[str, float]]:
    """(kind, reward) of each turn."""
    form = config.form * float(not replay.state["errors"] and replay.done)
    made = []
    for turn, gains in zip(replay.turns, list_gains(replay, told), strict=True):
        if "tool" in turn.step.facts:
            made.append((QUESTION, config.question * sum(weights[fact] for fact in gains) + config.final * right + form))
        else:
            made.append((ANSWER, config.answer * right + form))
    return made


class Config(Strict):
    measure: Literal["shapley", "count"] = param(
        "shapley", "What a new fact weighs: by its Shapley value, or each the same.", title="Weight of a fact"
    )
    temperature: float = param(2.0, "T of the softmax; small: the most important fact has all the weight.", title="Temperature (T)", gt=0, le=100)
    question: float = param(2.0, "Weight of the facts that a question brings out.", title="Facts (a)", ge=0, le=100)
    final: float = param(1.0, "Added to each question of an episode that ends in the right answer.", title="Right, for questions (b)", ge=0, le=100)
    answer: float = param(3.0, "Reward of a right answer.", title="Right, for answers (c)", ge=0, le=100)
    form: float = param(1.0, "Added to every turn of an episode in the right form.", title="Form", ge=0, le=100)


class ProMed(Method):
    card = Card(
        name="promed",
        title="Questions paid by Shapley values of facts",
        arxiv="2508.13514",
        system="ProMed",
        base="grpo",
        provenance="abstract",
        source="abstract; a copy of the official README with reward weights, and a review page",
        fit="needs-environment",
        idea="A question earns the importance of the facts that it brings out: how much they raise the chance of the right answer.",
        formula=(
            r"\phi_f = \sum_{S \not\ni f} \frac{|S|!\,(n-|S|-1)!}{n!}\,\left(v(S \cup f) - v(S)\right), \quad v(S) = P(\mathrm{right} \mid S)",
            r"\mathrm{SIG}(q_t) = \sum_{f \in K_t \setminus K_{t-1}} \mathrm{softmax}(\phi / T)_f",
            r"r_{question} = a\,\mathrm{SIG} + b\,1[\mathrm{right}] + f, \quad r_{answer} = c\,1[\mathrm{right}] + f",
        ),
        reading="SIG and its softmax, T = 2 from another's port, and that a turn is compared with turns of its kind in the group",
        departures=(
            "Shapley values are exact; the paper draws 30 orders.",
            "The world says which facts are known; the paper has a model write what is understood, and checks it.",
            "The dialogues of a tree search that the paper trains on first are the cold start's demonstrations here.",
        ),
        claim=("heldout/thrift", "higher"),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"advantages"})
    roles = {"advantages": "makes"}
    worlds = frozenset({"interview"})
    requires = (
        Requirement("task.options.about", "differs from", "stance", "facts that decide are in the world's default"),
        Requirement("task.options.about", "differs from", "intents", "facts that decide are in the world's default"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.worths: dict[tuple[str, ...], float] = {}  # of a context and an answer; the model behind them never changes

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        replays = replay_texts(self.run.task, batch.examples, batch.texts)
        weights = self.weigh_examples(batch.examples)
        paid = [
            reward_turns(replay, example.data["told"], own, right, self.config)
            for replay, example, own, right in zip(replays, batch.examples, weights, batch.correct.tolist(), strict=True)
        ]
        places = [(row, turn) for row, own in enumerate(paid) for turn in range(len(own))]
        rewards = torch.tensor([paid[row][turn][1] for row, turn in places])
        centred = centre_by_key(rewards, [(row // batch.group_size, paid[row][turn][0]) for row, turn in places]).to(advantages)
        spans = [list_own_spans(replay) for replay in replays]
        made = torch.zeros_like(batch.mask)
        for (row, turn), value in zip(places, centred, strict=True):
            if turn < len(spans[row]):
                made[row] += value * batch.span(row, *spans[row][turn])
        self.report(batch, replays, weights, rewards, [paid[row][turn][0] for row, turn in places])
        return made * batch.mask

    def weigh_examples(self, examples: Sequence[Example]) -> list[dict[str, float]]:
        """Of each, what its hidden facts weigh."""
        hidden = [list_hidden_facts(example) for example in examples]
        if self.config.measure == "count":
            return [{fact: 1 / len(facts) for fact in facts} for facts in hidden]
        self.learn_worths([(example, some) for example, facts in zip(examples, hidden, strict=True) for some in list_coalitions(facts)])
        made = []
        for example, facts in zip(examples, hidden, strict=True):
            worth = {some: self.worths[self.name_worth(example, some)] for some in list_coalitions(facts)}
            made.append(weigh_facts(compute_shapley_values(facts, worth), self.config.temperature))
        return made

    def name_worth(self, example: Example, some: Coalition) -> tuple[str, ...]:
        """The pieces of the context in which the facts are known, and the answer; its own key among the worths."""
        asked = [fact for fact in SYMPTOMS if fact in some]
        pieces = [piece for fact in asked for piece in (write_call("ask", fact), write_information("yes" if example.data["facts"][fact] else "no"))]
        return (example.prompt[-1].content, *pieces, write_answer(example.reference))

    @torch.no_grad()
    def learn_worths(self, asked: Sequence[tuple[Example, Coalition]]) -> None:
        """v of what is not known so far: the probability of the right answer's tokens."""
        if len(self.worths) > KNOWN:
            self.worths.clear()
        fresh = {key: example for example, some in asked if (key := self.name_worth(example, some)) not in self.worths}
        if not fresh:
            return
        keys, size, tokenizer = list(fresh), self.run.attempt.sampling_batch, self.run.tokenizer
        for start in range(0, len(keys), size):
            some = keys[start : start + size]
            prompts = self.run.prompt_ids([fresh[key].prompt for key in some])
            answers = [encode_pieces(tokenizer, key[-1:]) for key in some]
            completions = [[*encode_pieces(tokenizer, key[1:-1]), *answer] for key, answer in zip(some, answers, strict=True)]
            logprobs, _ = self.run.logprobs(prompts, completions, self.run.reference)
            for key, row, completion, answer in zip(some, logprobs.tolist(), completions, answers, strict=True):
                self.worths[key] = math.exp(sum(row[len(completion) - len(answer) + 1 : len(completion)]))  # after the opening tag

    def report(
        self, batch: "RolloutBatch", replays: Sequence[Replay], weights: Sequence[dict[str, float]], rewards: Tensor, kinds: list[str]
    ) -> None:
        for kind in (QUESTION, ANSWER):
            own = torch.tensor([one == kind for one in kinds])
            if own.any():
                self.log(f"reward/{kind}", rewards[own].mean())
        decisive = [sum(own.get(fact, 0.0) for fact in find_decisive(one)) for one, own in zip(batch.examples, weights, strict=True)]
        self.log("weight_decisive", sum(decisive) / len(decisive))
        firsts = [replay.turns[0].step.facts for replay in replays if replay.turns and "tool" in replay.turns[0].step.facts]
        if firsts:
            self.log("decisive_first", sum(bool(facts.get("evidence")) for facts in firsts) / len(firsts))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Reward of a turn", (Series(f"{name}/reward/{QUESTION}", "questions"), Series(f"{name}/reward/{ANSWER}", "answers"))),
            Panel(
                "Facts that decide",
                (Series(f"{name}/weight_decisive", "their weight"), Series(f"{name}/decisive_first", "share of first questions", dashed=True)),
            ),
        )
