"""Questions over a graph of people, written by one seat and answered by another.

``Ask for Rome. Rome houses Mia. Mia befriended Leo.`` wants a question that these facts answer with Rome, and the more edges it follows the harder it
is: ``<think>Rome houses Mia. Mia befriended Leo.</think><answer>What is the city of the friend of Leo?</answer>``. Who answers sees the graph through
the functions of the world ``graph``. With the option ``in_context`` the facts stand in both prompts, the writer chooses the answer and says it behind
the question, and there is a third kind of prompt, ``Same: Rome, Oslo?``, which compares two answers. Self-play of search is SSP's (arXiv 2510.18821),
of long contexts SPELL's (arXiv 2509.23863).
"""

import random
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, make_rewards
from trainers.worlds.graph import FEATURES, Graph, GraphConfig
from trainers.worlds.graph_context import describe_context, keep_support, tell_inverse
from trainers.worlds.graph_texts import (
    Fact,
    Nodes,
    Question,
    draw_documents,
    draw_question,
    find_fault,
    follow_question,
    list_calls,
    list_needed,
    parse_question,
    shorten_question,
)
from trainers.worlds.tool_use import FORMAT, write_answer

WRITE, COMPARE = "write", "compare"  # kinds of prompts beside questions
MOST_HOPS, NOISE = 2, 4
YES, NO = "yes", "no"


class GraphQuestionsConfig(GraphConfig):
    ask: Literal["both", "answer", "write"] = Field(
        "both", title="Prompts", description="Questions to answer, requests to write one, or half of each. Demonstrations show all kinds."
    )


class GraphQuestions(Graph):
    name = "graph_questions"
    title = "Questions to write and to answer"
    summary = "Some prompts ask for a question that given facts answer, others for the answer of one, by functions on a graph."
    Config = GraphQuestionsConfig  # type: ignore[assignment]
    config: GraphQuestionsConfig
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between. Answering: as in the world graph. Writing: 70 % ask what"
        " the facts answer, by as many edges as it happens, 30 % ask something else."
    )

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.max_turn_tokens = 48  # type: ignore[misc]  # of this object alone
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 for the right answer, or for a question that the facts in the prompt answer as they should.", 1.0),
                "far": ("Share of the edges that a question can follow which it follows; of an answer, 1 when it is right.", 0.0),
                "format": (FORMAT[0], 0.2),
            },
        )

    @property
    def cache_key(self) -> str:
        """Demonstrations show all kinds whatever is asked: one cold start serves all."""
        return type(self)({name: value for name, value in self.options.items() if name != "ask"}).plain_cache_key

    @property
    def plain_cache_key(self) -> str:
        return super().cache_key

    def draw_demonstrations(self, count: int, seed: int, difficulty: str) -> list[Example]:
        """Questions, requests, and where facts stand in the prompt comparisons."""
        world = type(self)({**self.options, "ask": "both"})
        found = world.examples("train", count, seed, difficulty)
        if not self.config.in_context:
            return found
        return [compare_answers(*draw_answers(random.Random(f"{seed}/{place}"))) if place % 5 == 4 else one for place, one in enumerate(found)]

    def example(self, rng: random.Random, difficulty: str) -> Example:
        found, writes = super().example(rng, difficulty), rng.random() < 0.5
        if self.config.ask == "answer" or (self.config.ask == "both" and not writes):
            return found
        nodes = found.data["nodes"]
        shown, question = draw_documents(nodes, MOST_HOPS, NOISE, rng)
        remembered = [str(draw_question(nodes, MOST_HOPS, rng)) for _ in range(rng.choice((0, 0, 1, 2)) if self.config.in_context else 0)]
        return self.request_question(nodes, shown, question, remembered)

    def request_question(self, nodes: Nodes, shown: Sequence[Fact], gold: Question, remembered: Sequence[str] = ()) -> Example:
        """Asks for a question that the facts ``shown`` answer. ``gold``: one of them. ``remembered``: questions that have been asked already."""
        answer, facts = follow_question(nodes, gold), " ".join(tell_inverse(nodes, who, relation) for who, relation in shown)
        data: dict[str, Any] = {"kind": WRITE, "nodes": nodes, "shown": [list(fact) for fact in shown], "gold": str(gold), "answer": answer}
        if not self.config.in_context:
            return Example([Message("user", f"Ask for {answer}. {facts}")], str(gold), data)
        asked = "".join(f" Not: {question}" for question in remembered)
        return Example([Message("user", f"Ask.{asked} {facts}")], f"{gold} {answer}", data)

    def pose_question(self, nodes: Nodes, question: Question, answer: str, rng: random.Random) -> Example:
        """A question as a prompt, with ``answer`` as its reference, whether that is right or not.

        Raises LookupError for one about somebody who is not in the graph.
        """
        needed = list_calls(list_needed(nodes, question))
        data = {"nodes": nodes, "needed": needed, "person": question.person, "asked": question.asked}
        if not self.config.in_context:
            return Example([Message("user", str(question))], answer, data)
        data |= {"question": str(question), **describe_context(nodes, needed, self.config.distractors, rng)}
        return keep_support(Example([], answer, data), self.config.support, rng)

    def read_proposal(self, example: Example, text: str) -> tuple[Question | None, str]:
        """The question that was written to a request, and the answer that it is to have."""
        if not self.config.in_context:
            return parse_question(text), example.data["answer"]
        question, mark, answer = text.rpartition("? ")
        return parse_question(question + mark.strip()), answer

    def judge_proposal(self, example: Example, text: str) -> str:
        """Why what was written is no question as the request asks for one; empty where it is."""
        question, answer = self.read_proposal(example, text)
        return find_fault(example.data["nodes"], question, example.data["shown"], answer)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        scores = self.score_answer(example, state)
        if example.data.get("kind") != WRITE:
            return {POLICY: {**scores, "far": scores["correct"]}}
        text, gold = state["answer"], parse_question(example.data["gold"])
        asked = self.read_proposal(example, text)[0] if text is not None and not self.judge_proposal(example, text) else None
        far = len(asked.chain) / max(1, len(gold.chain)) if asked is not None and gold is not None and gold.chain else float(asked is not None)
        return {POLICY: {**scores, "correct": float(asked is not None), "far": min(1.0, far)}}

    def way(self, example: Example, state: State) -> list[str]:
        if "kind" not in example.data:
            return super().way(example, state)
        self.check_open(state)
        question = parse_question(example.data.get("gold", ""))
        return [(write_thought(example.data["nodes"], question) if question else "") + write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        if "kind" not in example.data:
            return super().turns(example, rng, seat)
        if example.data["kind"] == COMPARE:
            other = NO if example.reference == YES else YES
            return self.tell_turns(example, [write_answer(example.reference if rng.random() < 0.8 else other)])
        nodes, gold = example.data["nodes"], parse_question(example.data["gold"])
        assert gold is not None
        is_right = rng.random() < 0.7
        question = shorten_question(nodes, gold, rng.randint(0, MOST_HOPS)) if is_right else draw_question(nodes, MOST_HOPS, rng)
        answer = f" {follow_question(nodes, question)}" if self.config.in_context else ""
        return self.tell_turns(example, [(write_thought(nodes, question) if is_right else "") + write_answer(f"{question}{answer}")])


def write_thought(nodes: Nodes, question: Question) -> str:
    """The facts that a question is made of, from its answer back to whom it names."""
    return f"<think>{' '.join(tell_inverse(nodes, who, relation) for who, relation in reversed(list_needed(nodes, question)))}</think>"


def compare_answers(one: str, other: str) -> Example:
    """Whether two answers say the same."""
    said = (" ".join(text.replace("<", " ").replace(">", " ").split())[:40] for text in (one, other))
    return Example([Message("user", f"Same: {', '.join(said)}?")], YES if one == other else NO, {"kind": COMPARE})


def draw_answers(rng: random.Random) -> tuple[str, str]:
    """Two answers to one question, the same ones half of the time."""
    values = FEATURES[rng.choice(list(FEATURES))]
    one = rng.choice(values)
    return one, one if rng.random() < 0.5 else rng.choice([value for value in values if value != one])
