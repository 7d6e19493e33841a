"""WebExplorer: questions evolve from plain to blurred while a solver passes them less often; then GRPO on them (arXiv 2509.06501).

q_{n+1} = blur(q_n): one salient clue, a person's name, becomes a description. It is accepted if its answer stays unique and the solver's pass rate
falls; a question is done after ``rounds`` rounds, when its pass rate is below ``least``, or when no clue is left. The solver is the policy the run
starts from, its pass rate the share of right answers among ``samples``. R = 0.2 form + 1.0 right.

Stage 1 (trainer sft) trains on the solver's own right answers to evolved questions (rejection sampling), stage 2 (trainer grpo) by R. Whatever the
world's options say of held-out questions, those for training begin plain.

Our reading of the abstract and of the repository's overview: acceptance, weights and the stop. It differs from GRPO in the questions and the reward.
Before training, ``samples`` answers are sampled for each question and round.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainers.adapters.sft import tokenize_turns
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.base import POLICY, Said, World, replay_episode
from trainers.worlds.entity_search import EntitySearch, build_entity_example, read_clues
from trainers.worlds.question_building import blur_question

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from torch import Tensor

    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

FORM, RIGHT = 0.2, 1.0


def accept_rounds(rates: Sequence[float]) -> list[bool]:
    """Pass rates of a question and of its evolved forms, in their order -> which forms are accepted: those that lower the last accepted rate."""
    accepted, last = [], rates[0]
    for rate in rates[1:]:
        accepted.append(rate < last)
        last = min(last, rate)
    return accepted


def blur_example(world: EntitySearch, example: "Example", rng: "random.Random") -> "Example | None":
    """The question with one more clue blurred, still with one answer that the search engine leads to; None where there is none."""
    clues = blur_question(example.data["entities"], read_clues(example), rng)
    if clues is None:
        return None
    made = build_entity_example(example.data["entities"], example.reference, clues)
    return made if world.is_answerable(made) else None


def evolve_questions(
    world: EntitySearch,
    examples: "Sequence[Example]",
    measure: "Callable[[list[Example]], list[float]]",
    rounds: int,
    least: float,
    rng: "random.Random",
) -> "tuple[list[Example], list[float], list[float]]":
    """(questions, pass rates before, pass rates after). ``measure``: the solver's pass rate of each of some questions, asked once a round."""
    made = list(examples)
    before = measure(made) if rounds else [0.0] * len(made)
    rates = list(before)
    for _ in range(rounds):
        tried = {
            place: blurred
            for place, example in enumerate(made)
            if rates[place] >= least and (blurred := blur_example(world, example, rng)) is not None
        }
        if not tried:
            break
        for (place, blurred), rate in zip(tried.items(), measure(list(tried.values())), strict=True):
            if accept_rounds([rates[place], rate])[0]:
                made[place], rates[place] = blurred, rate
    return made, before, rates


def retell_episode(world: World, example: "Example", text: str) -> list[Said]:
    """A sampled episode turn by turn, as it can be trained on."""
    said = []
    for turn in replay_episode(world, example, text).turns:
        said += [Said(POLICY, turn.text), *([Said("", turn.step.text)] if turn.step.text and not turn.step.done else [])]
    return said


class Config(Strict):
    rounds: int = param(5, "Rounds in which a question can be blurred once more; 0: plain questions.", title="Rounds", ge=0, le=20)
    samples: int = param(4, "Answers of the solver from which a pass rate is estimated.", title="Samples", ge=1, le=64)
    least: float = param(0.25, "A question whose pass rate is below this is hard enough.", title="Least pass rate", ge=0, le=1)


class WebExplorer(Method):
    card = Card(
        name="webexplorer",
        title="Questions evolved by blurring",
        arxiv="2509.06501",
        system="WebExplorer",
        base="grpo",
        provenance="abstract",
        source="abstract; github hkust-nlp/WebExplorer: README and sample data",
        fit="needs-environment",
        idea="Blur the clues of a question one by one while it keeps its answer and gets harder for a solver; train on what comes out.",
        formula=(
            r"q_{n+1} = \mathrm{blur}(q_n) \ \mathrm{if}\ \mathrm{pass}(q_{n+1}) < \mathrm{pass}(q_n) \ \mathrm{and\ unique}",
            r"R = 0.2\, \mathrm{form} + 1.0\, \mathrm{right}",
        ),
        reading="when a blurred question is accepted, the weights of the reward, and when evolution stops",
        departures=(
            "Clues are blurred by a rule over a graph of six people, not by a model that explores the web.",
            "The schedule of context and turns is left out: an episode has six turns.",
            "Clues are blurred and never deleted.",
        ),
        parallel=False,
    )
    Config = Config
    worlds = frozenset({"entity_search"})
    trains = frozenset({"grpo", "sft"})
    requires = (Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),)
    roles = {"data": "makes", "rewards": "makes"}

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        world, spec = run.task, run.attempt.spec
        assert isinstance(world, EntitySearch)
        plain = type(world)({**world.options, "blurred": 0.0}, spec.seed)
        asked, rng = 0, run.rng("webexplorer", "blur")

        def measure(examples: "list[Example]") -> list[float]:
            nonlocal asked
            asked += 1
            texts = self.sample(run, examples, asked)
            return [sum(run.right(example, text) for text in own) / len(own) for example, own in zip(examples, texts, strict=True)]

        questions = plain.examples("train", len(rows), spec.seed, spec.task.difficulty)
        made, before, after = evolve_questions(world, questions, measure, self.config.rounds, self.config.least, rng)
        self.log("data_blurred", sum(clue.attribute != "" for example in made for clue in read_clues(example)) / len(made))
        self.log("data_pass_before", sum(before) / len(before))
        self.log("data_pass_after", sum(after) / len(after))
        if spec.training.trainer == "grpo":
            return made
        texts = self.sample(run, made, asked + 1)
        right = [(example, text) for example, own in zip(made, texts, strict=True) for text in own if run.right(example, text)]
        return [tokenize_turns(example.prompt, retell_episode(world, example, text), run.tokenizer) for example, text in right]

    def sample(self, run: "RunContext", examples: "Sequence[Example]", number: int) -> list[list[str]]:
        """The solver's answers to each question."""
        each = self.config.samples
        texts = [made.text for made in run.sample([example for example in examples for _ in range(each)], key=f"webexplorer/{number}")]
        return [texts[place * each : (place + 1) * each] for place in range(len(examples))]

    def rewards(self, batch: "RolloutBatch", rewards: "Tensor") -> "Tensor":
        form = batch.rewards[:, batch.reward_names.index("format")].nan_to_num(0.0)
        calls = [text.count("</search>") for text in batch.texts]
        self.log("searches", sum(calls) / len(calls))
        return (FORM * form + RIGHT * batch.correct).to(rewards)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (Panel("Searches per episode", (Series("webexplorer/searches", "searches"),)),)
