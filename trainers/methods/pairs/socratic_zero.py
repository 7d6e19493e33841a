"""Socratic-Zero: solver, teacher and generator of problems develop together (arXiv 2509.24726). A run trains one of the two that learn.

Solver, on the dpo trainer: k answers to every question. W are the right ones, or the reference answer where none is right; L the wrong ones. Every
pair of W x L is a row of the base's loss. s = share right: mastered at 1, too hard at 0, learning in between. From an answer to each question that is
not too hard (a wrong one if there is one) somebody writes a new question, which is answered and paired in the same way.

Generator, on the sft trainer: questions are answered by the solver, the teacher writes q' from an answer y, and the generator learns to write q' from
(q, y), weighted by how near the solver's success rate on q' is to mu:
    U(q') = exp(-(s(q') - mu)^2 / (2 sigma^2)),   L = -E[U(q') log pi(q' | q, y)].

The teacher is a rule that changes one step of a question; the policy that an earlier run has trained as the generator writes in its place where its
folder is given. Whether q' is a problem and what its answer is, the task says. A round is a run of each kind; the next round starts from their
policies. It differs from the bases in what they train on and, for the generator, in the weights of rows. sigma is not stated by the authors.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example
from trainers.texts.problems import can_read, change_one_step, read_problem
from trainers.texts.spans import extract_answer
from trainers.texts.stories import parse_story

if TYPE_CHECKING:
    from trainers.methods.batch import TokenBatch
    from trainers.methods.context import RunContext

Row = dict[str, Any]
Zone = Literal["mastered", "learning", "too_hard"]

REQUEST = "Write a new problem."
ZONES: tuple[Zone, ...] = ("mastered", "learning", "too_hard")


def compute_utility(success: float, mu: float, sigma: float) -> float:
    """U in (0, 1]: 1 for a problem that is solved in a share ``mu`` of the attempts."""
    return math.exp(-((success - mu) ** 2) / (2 * sigma**2))


def find_zone(success: float) -> Zone:
    return "mastered" if success >= 1 else "learning" if success > 0 else "too_hard"


def cross_answers(texts: Sequence[str], right: Sequence[bool], reference: str | None) -> list[tuple[str, str]]:
    """(chosen, rejected): every right answer with every wrong one; the reference in the place of right ones where there are none."""
    winners = [text for text, fine in zip(texts, right, strict=True) if fine] or ([reference] if reference is not None else [])
    losers = [text for text, fine in zip(texts, right, strict=True) if not fine and text]
    return [(chosen, rejected) for chosen in winners for rejected in losers]


def ask_for_problem(question: Sequence[Message], answer: str) -> list[Message]:
    """The chat in which a new problem is written."""
    return [*question, Message("assistant", answer), Message("user", REQUEST)]


class Config(Strict):
    samples: int = param(8, "Answers to each question.", title="Answers (k)", ge=2, le=64)
    mu: float = param(0.5, "Generator: success rate of the solver at which a problem is worth most.", title="Best success rate (mu)", ge=0, le=1)
    sigma: float = param(
        0.2, "Generator: width of the utility (our value); with a large one all problems are worth the same.", title="Width (sigma)", gt=0, le=1000
    )
    questions: int = param(400, "Generator: questions that the teacher varies.", title="Questions", ge=1, le=100_000)
    variations: int = param(2, "New problems written from each question.", title="New problems", ge=0, le=64)
    solver: str = param("", "Generator: folder of the solver's policy; empty = the policy that the run starts from.", title="Solver")
    generator: str = param("", "Solver: folder of the policy that writes new problems; empty = the teacher's rule.", title="Generator")
    temperature: float = param(1.0, "Sampling temperature of answers and problems.", title="Temperature", gt=0, le=10, advanced=True)


class SocraticZero(Method):
    card = Card(
        name="socratic-zero",
        title="Solver, teacher and generator",
        arxiv="2509.24726",
        system="Socratic-Zero",
        base="dpo",
        provenance="code",
        source="github Frostlinx/Socratic-Zero: README, docs (its training modules are placeholders); a note on the utility",
        fit="core",
        idea="Learn from right against wrong answers to problems that keep being rewritten, and learn to write those that are solved half the time.",
        formula=(
            r"L_{solver} = -\mathrm{mean}_{y^+ \in W,\, y^- \in L} \log \sigma\left(\beta \left[\log\frac{\pi(y^+|q)}{\pi_{ref}(y^+|q)}"
            r" - \log\frac{\pi(y^-|q)}{\pi_{ref}(y^-|q)}\right]\right)",
            r"U(q') = \exp\left(-\frac{(s(q') - \mu)^2}{2\sigma^2}\right)",
            r"L_{gen} = -E\left[U(q') \log \pi_G(q' | q, y)\right]",
        ),
        reading="sigma, and from which answer of a mastered question a problem is written",
        departures=(
            "A rule that changes one step writes the teacher's problems, and the task verifies answers; the authors ask a large model.",
            "A run trains the solver or the generator; a round is a chain of two runs.",
            "The generator's loss is averaged over tokens, not over problems.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"data": "makes"}
    trains = frozenset({"sft", "dpo"})
    excludes = {"prefcleanbench": "its pairs are verified answers of the policy, and no given labels are left to clean"}
    cautions = {"span-credit": "both sides of a pair are written anew, and spans that people marked are gone"}

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        if not can_read(run.task):
            message = "it cannot read problems that are written while training"
            raise SpecError([Problem("task.name", run.task.name, message, "choose mini_gsm, or a world that reads problems")])
        build = self.build_problem_rows if run.attempt.spec.training.trainer == "sft" else self.build_pairs
        made: list[Row] = ranks.done_by_first(lambda: build(rows, run))
        return made

    def build_pairs(self, rows: list[Row], run: "RunContext") -> list[Row]:
        """The solver's pairs, of the questions and of those written from them."""
        examples = self.list_questions(rows, run)
        answers = self.answer(examples, run, "questions")
        made = self.pair_answers(examples, answers, run, "question")
        asks = [ask for ask in self.list_asks(examples, answers) for _ in range(self.config.variations)]
        fresh = self.write_problems(asks, run)
        if fresh:
            made += self.pair_answers(fresh, self.answer(fresh, run, "fresh"), run, "fresh")
        self.log("pairs", float(len(made)))
        return made

    def build_problem_rows(self, rows: list[Row], run: "RunContext") -> list[Row]:
        """The generator's rows: (q, y) -> q', with the utility of q'."""
        spec, config = run.attempt.spec, self.config
        examples = run.task.draw_demonstrations(config.questions, spec.seed, spec.task.difficulty)
        solver = run.frozen(config.solver) if config.solver else None
        answers = self.answer(examples, run, "questions", solver)
        asks = [ask for ask in self.list_asks(examples, answers) for _ in range(config.variations)]
        written = [(ask, self.teach(ask, place, run)) for place, ask in enumerate(asks)]
        known = [(ask, problem) for ask, problem in written if problem is not None]
        success = [sum(right) / len(right) for _, right in self.answer([problem for _, problem in known], run, "fresh", solver)]
        worth = [compute_utility(share, config.mu, config.sigma) for share in success]
        if success:
            self.log("success", sum(success) / len(success))
            self.log("utility", sum(worth) / len(worth))
            self.log_histogram("success_of_problems", torch.tensor(success), 0.0, 1.0)
        return [
            {"prompt": as_rows(ask), "completion": as_rows([Message("assistant", problem.prompt[-1].content)]), "utility": value, "success": share}
            for (ask, problem), value, share in zip(known, worth, success, strict=True)
        ]

    def list_questions(self, rows: list[Row], run: "RunContext") -> list[Example]:
        """The prompts of the rows as the task reads them; one that it cannot read has the result of the chosen answer as the reference."""
        found = [read_problem(run.task, row["prompt"][-1]["content"]) for row in rows]
        return [problem or read_row(row) for problem, row in zip(found, rows, strict=True)]

    def answer(self, examples: Sequence[Example], run: "RunContext", key: str, model: Any = None) -> list[tuple[list[str], list[bool]]]:
        """For each example its k answers, and which of them are right."""
        count = self.config.samples
        asked = [example for example in examples for _ in range(count)]
        texts = [one.text for one in run.sample(asked, self.config.temperature, f"socratic-zero/{key}", model)] if asked else []
        right = [run.right(example, text) for example, text in zip(asked, texts, strict=True)]
        return [(texts[start : start + count], right[start : start + count]) for start in range(0, len(asked), count)]

    def pair_answers(self, examples: Sequence[Example], answers: Sequence[tuple[list[str], list[bool]]], run: "RunContext", source: str) -> list[Row]:
        made, zones = [], []
        for example, (texts, right) in zip(examples, answers, strict=True):
            zones.append(find_zone(sum(right) / len(right)))
            for chosen, rejected in cross_answers(texts, right, write_reference(run, example)):
                sides = {"chosen": as_rows([Message("assistant", chosen)]), "rejected": as_rows([Message("assistant", rejected)])}
                made.append({"prompt": as_rows(example.prompt), **sides, "source": source, "zone": zones[-1]})
        for zone in ZONES:
            self.log(f"{source}/{zone}", zones.count(zone) / len(zones))
        return made

    def list_asks(self, examples: Sequence[Example], answers: Sequence[tuple[list[str], list[bool]]]) -> list[list[Message]]:
        """What a new problem is written from: a question that is not too hard, with its first wrong answer, or the first where all are right."""
        asks = []
        for example, (texts, right) in zip(examples, answers, strict=True):
            if any(right):
                asks.append(ask_for_problem(example.prompt, texts[right.index(False)] if not all(right) else texts[0]))
        return asks

    def write_problems(self, asks: Sequence[list[Message]], run: "RunContext") -> list[Example]:
        """New problems by the generator, or by the teacher's rule without one; those that the task cannot read are dropped."""
        if not asks:
            return []
        if not self.config.generator:
            made = [self.teach(ask, place, run) for place, ask in enumerate(asks)]
        else:
            model = run.frozen(self.config.generator)
            texts = [one.text for one in run.sample([Example(ask, "") for ask in asks], self.config.temperature, "socratic-zero/problems", model)]
            made = [read_problem(run.task, text) for text in texts]
        valid = [problem for problem in made if problem is not None]
        self.log("valid", len(valid) / len(made))
        return valid

    def teach(self, ask: Sequence[Message], place: int, run: "RunContext") -> Example | None:
        """The teacher's problem: a word problem with one step changed; a world's problem drawn anew."""
        rng = run.rng("socratic-zero", "teacher", place)
        story = parse_story(ask[-3].content)
        if story is None:
            return run.task.example(rng, run.attempt.spec.task.difficulty)
        return read_problem(run.task, str(change_one_step(story, rng)))

    def sft_weights(self, batch: "TokenBatch") -> Tensor | None:
        """(B, T): the utility of each row's problem on all of its tokens."""
        if any("utility" not in row for row in batch.rows):
            return None
        utility = torch.tensor([float(row["utility"]) for row in batch.rows], device=batch.mask.device)
        return utility[:, None].expand_as(batch.mask)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Questions by zone",
                tuple(Series(f"socratic-zero/question/{zone}", zone.replace("_", " ")) for zone in ZONES),
                "stack",
                help="Solver, measured once before training: all answers right, some, none.",
            ),
            Panel("New problems by zone", tuple(Series(f"socratic-zero/fresh/{zone}", zone.replace("_", " ")) for zone in ZONES), "stack"),
            Panel("Success rates of new problems", (Series("socratic-zero/success_of_problems"),), "histogram", low=0.0, high=1.0),
            Panel("Utility", (Series("socratic-zero/utility", "mean utility"), Series("socratic-zero/success", "mean success rate"))),
        )


def write_reference(run: "RunContext", example: Example) -> str | None:
    """A right answer that the task knows; None for an example of a dataset that does not say how it is reached."""
    try:
        return run.task.gold(example)
    except LookupError:
        return None


def read_row(row: Row) -> Example:
    """A pair of a dataset as an example whose reference is the result of its chosen answer."""
    prompt = [Message(message["role"], message["content"]) for message in row["prompt"]]
    return Example(prompt, extract_answer(row["chosen"][-1]["content"]) or "", row.get("data") or {})
