"""COS(M+O)S: of steps that could follow in a story, prefer those that surprise a little and make sense (arXiv 2501.17104).

S(s) = mean over the tokens of a step s of -log pi_ref
c(S) = exp(-(S - S0)^2 / (2 w^2));  V(s) = c(S(s)) - lambda incoherence(s)
pairs (argmax V, argmin V) of siblings, steps of one state, where their V differ by more than delta
L = -log p_w + beta * -log sigmoid(log odds_w - log odds_l),  p = exp(mean log pi), odds = p / (1 - p): ORPO, the base's

A round of the authors' loop is one run: a story is gone on with by the best of ``siblings`` steps, and the pairs of all its states are what the run
trains on; the next round is a run from the policy that comes of it, with the same reference. It differs from ORPO in its pairs, which it makes
before training; the rows it is given say the prompts alone. The story before a step is in the prompt of its pair, so that odds are of the step.

Our forms of c and V, after the abstract and summaries. The world is ``stories``: a step is a sentence, and its rules say what is incoherent: what
could not happen, a forbidden word, what is no sentence. As a step ends a row, its end token is in the loss, though a story goes on after it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.data.pair_rows import examples_of
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.base import digest_example

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Node

Row = dict[str, Any]


def measure_curiosity(surprisal: float, best: float, width: float) -> float:
    """c(S), from 0 to 1. ``best``: S0, ``width``: w, both in nats a token."""
    return math.exp(-((surprisal - best) ** 2) / (2 * width**2))


def pair_siblings(values: Sequence[float], delta: float) -> tuple[int, int] | None:
    """(the best, the worst) of siblings; None where their values differ by ``delta`` or less."""
    if not values:
        return None
    best, worst = values.index(max(values)), values.index(min(values))
    return (best, worst) if values[best] - values[worst] > delta else None


@dataclass(frozen=True)
class Option:
    """A step that could follow ``above``, and the node of its turn."""

    above: "Node"
    turn: "Node"
    surprisal: float
    value: float

    @property
    def is_incoherent(self) -> bool:
        return "error" in self.turn.facts


class Config(Strict):
    prompts: int = param(128, "Stories that pairs are made from (ours).", ge=1, le=1_000_000)
    siblings: int = param(4, "Steps that are sampled in each state (ours).", title="Siblings", ge=2, le=64)
    depth: int = param(4, "Steps of a story that pairs are made of (ours).", title="Depth", ge=1, le=64)
    surprisal: float = param(3.0, "Surprisal that is worth most, nats a token.", title="Surprisal (S0)", ge=0, le=20)
    width: float = param(1.0, "How far from it a step is still worth something, nats a token.", title="Width (w)", gt=0, le=20)
    incoherence: float = param(0.5, "What an incoherent step costs.", title="Incoherence (lambda)", ge=0, le=10)
    delta: float = param(0.2, "Siblings are a pair where their values differ by more.", title="Least difference (delta)", ge=0, le=10)
    temperature: float = param(1.0, "Sampling temperature of the steps.", advanced=True, gt=0, le=10)
    reference: str = param("", "Folder of the policy that surprisal is measured by; empty: the one that the run starts from.", advanced=True)


class CosmosStory(Method):
    card = Card(
        name="cosmos-story",
        title="Steps of a story that surprise a little",
        arxiv="2501.17104",
        system="COS(M+O)S",
        base="orpo",
        provenance="abstract",
        source="abstract and summaries (an index of surprisal that is highest in the middle, a step-level search, ORPO on its pairs)",
        fit="variant",
        idea="Sample several next steps of a story, value moderate surprise and coherence, and prefer the best of them to the worst.",
        formula=(
            r"V(s) = \exp\left(-\frac{(S(s) - S_0)^2}{2 w^2}\right) - \lambda\, \mathrm{incoherence}(s)",
            r"S(s) = -\frac{1}{|s|} \sum_t \log \pi_{ref}(s_t | x, s_{<t})",
            r"L = -\log p_w - \beta \log \sigma\left(\log\frac{p_w}{1 - p_w} - \log\frac{p_l}{1 - p_l}\right)",
        ),
        reading="the forms of curiosity and of the value, and all numbers",
        departures=(
            "A story goes on with the best of several steps in place of a Monte Carlo tree search.",
            "The value of a step is its own, without what follows.",
            "Incoherence is said by the world's rules, not by a value model.",
            "The end token after a step is in the loss.",
        ),
        claim=("heldout/possible", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "makes"}
    trains = frozenset({"orpo"})
    worlds = frozenset({"stories"})

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        return ranks.done_by_first(lambda: self.make_pairs(rows, run))

    def make_pairs(self, rows: list[Row], run: "RunContext") -> list[Row]:
        known = {digest_example(example): example for example in examples_of(rows, run) if example is not None}
        examples = list(known.values())[: self.config.prompts]
        session = run.session(examples, "cosmos-story", temperature=self.config.temperature)
        reference = run.frozen(self.config.reference) if self.config.reference else None  # before training the policy is where the run starts
        judge = run.session(examples, "cosmos-story", model=reference)
        states = explore_stories(session, judge, self.config)
        made, options = [], [option for siblings in states for option in siblings]
        for siblings in states:
            if (pair := pair_siblings([option.value for option in siblings], self.config.delta)) is not None:
                chosen, rejected = (siblings[place] for place in pair)
                made.append(make_row(run, chosen, rejected))
                self.report("chosen", chosen)
                self.report("rejected", rejected)
        for option in options:
            self.report("all", option)
        self.log("pairs", len(made) / max(1, len(states)))
        return made

    def report(self, name: str, option: Option) -> None:
        self.log(f"surprisal/{name}", option.surprisal)
        self.log(f"incoherent/{name}", float(option.is_incoherent))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        kinds = (("chosen", False), ("rejected", True), ("all", True))
        return (
            Panel(
                "Surprisal of steps before training", tuple(Series(f"{name}/surprisal/{kind}", kind, dashed) for kind, dashed in kinds), unit="nats"
            ),
            Panel("Incoherent steps before training", tuple(Series(f"{name}/incoherent/{kind}", kind, dashed) for kind, dashed in kinds)),
            Panel("States whose steps make a pair", (Series(f"{name}/pairs", "share of the states"),)),
        )


def explore_stories(session: "Session", judge: "Session", config: Config) -> list[list[Option]]:
    """The options in each state that the stories of ``session`` go through, the best of them being gone on with. ``judge``: the same world with the
    reference's weights.
    """
    states, open_ = list[list[Option]](), [episode.root for episode in session.begin()]
    for _ in range(config.depth):
        if not open_:
            break
        turns = [session.branch(node, config.siblings, "sibling") for node in open_]
        played = iter(session.play([turn for siblings in turns for turn in siblings], turns=1))
        after = [[next(played) for _ in siblings] for siblings in turns]
        found = value_siblings(judge, open_, turns, config)
        best = [max(range(len(siblings)), key=lambda place: siblings[place].value) for siblings in found]
        open_ = [nodes[place] for nodes, place in zip(after, best, strict=True) if not nodes[place].finish]
        states += found
    return states


def value_siblings(judge: "Session", above: "Sequence[Node]", turns: "Sequence[Sequence[Node]]", config: Config) -> list[list[Option]]:
    pairs = [(node, turn) for node, siblings in zip(above, turns, strict=True) for turn in siblings]
    logprobs = judge.likelihood([node for node, _ in pairs], [turn.ids for _, turn in pairs])
    made = []
    for (node, turn), row in zip(pairs, logprobs, strict=True):
        surprisal = -sum(row) / max(1, len(row))
        value = measure_curiosity(surprisal, config.surprisal, config.width) - config.incoherence * ("error" in turn.facts)
        turn.notes |= {"surprisal": surprisal, "value": value}
        made.append(Option(node, turn, surprisal, value))
    options = iter(made)
    return [[next(options) for _ in siblings] for siblings in turns]


def make_row(run: "RunContext", chosen: Option, rejected: Option) -> Row:
    """A pair of steps as texts; the prompt is the chat up to where the story stands."""
    before, rest = chosen.above.episode.context_ids(chosen.above)
    steps = [run.tokenizer.decode(option.turn.ids, skip_special_tokens=True) for option in (chosen, rejected)]
    return {"prompt": run.tokenizer.decode([*before, *rest]), "chosen": steps[0], "rejected": steps[1]}
