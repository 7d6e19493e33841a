"""PaLRS: a steering vector from preference pairs, added to one layer while the policy writes; no weight changes (arXiv 2509.23982).

    v_l = mean over pairs of h_l(x, chosen) - h_l(x, rejected),        h_l <- h_l + alpha v_l while the answer is written
(``trainers/policies/steering_vector.py``). Layer and alpha are chosen on a grid: round r of R adds alpha = most (r - 1) / (R - 1) in each of the
compared layers, and measures
    reward           mean total reward of answers to the same training prompts, with the same random numbers in every cell
    preference       share of held-out pairs whose chosen answer is likelier a token than the rejected one, under the steered policy
    log-perplexity   of the held-out chosen answers, nats a token
Chosen is the cell with the highest reward (or preference) of those whose log-perplexity is at most ``drift`` above the unsteered policy's; of equal
ones that of the smallest alpha. Held-out prompts are answered under the cell chosen so far, and its vector lies beside the exported policy.

The first round adds nothing and is the frozen policy, bit for bit. Vectors are made from all pairs but the held-out ones, which share no prompt with
them, and are not normalised: alpha 1 is the whole way from a rejected answer to a chosen one. An answer's last token is the one that the chat
template ends it with.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from trainers.attempt.context import BESIDE
from trainers.attempt.evaluate import own_randomness
from trainers.attempt.inputs import digest_weights, find_hub_revision
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.contract.steering_file import SteeringFacts
from trainers.data.datasets import PAIR, SIDES
from trainers.data.identity import check_dataset_digest
from trainers.data.pair_rows import tokenize_messages
from trainers.judges import rewards
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.steering_pairs import AnswerPair, PairLikelihood, measure_pairs, split_by_prompt
from trainers.policies.sampling import as_rows
from trainers.policies.steering_files import save_steering_vector
from trainers.policies.steering_vector import Answer, compute_steering_vectors, list_decoder_layers, steer_layer
from trainers.rollouts.engine import in_evaluation_mode

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.tasks.base import Example

MOST_LAYERS = 8  # compared; each has a curve


@dataclass(frozen=True)
class Cell:
    """Of the grid: ``place`` of the layer among those compared, and what was measured there."""

    place: int
    alpha: float
    reward: float
    preference: float
    log_perplexity: float


def space_layers(count: int, wanted: int) -> list[int]:
    """At most ``wanted`` of ``count`` layers, evenly over the depth, the last one among them."""
    wanted = min(wanted, count)
    return [(number + 1) * count // wanted - 1 for number in range(wanted)]


def find_round_alpha(number: int, rounds: int, most: float) -> float:
    """Of round ``number`` from 1: 0 in the first, ``most`` in the last one."""
    return most * (number - 1) / (rounds - 1) if rounds > 1 else most


def choose_cell(cells: Sequence[Cell], score: str, limit: float) -> Cell | None:
    """The cell with the highest ``score`` of those whose log-perplexity is at most ``limit``; of equal ones the smallest alpha. None without any."""
    allowed = [cell for cell in cells if cell.log_perplexity <= limit]
    return min(allowed, key=lambda cell: (-getattr(cell, score), cell.alpha, cell.place), default=None)


class Config(Strict):
    most: float = param(
        2.0, "Strength of the last round; rounds go up to it from 0 in equal steps (our value).", title="Largest alpha", gt=0, le=1000
    )
    layers: int = param(4, "Layers that are compared, evenly over the depth (our value).", title="Layers", ge=1, le=MOST_LAYERS)
    positions: Literal["last", "mean"] = param(
        "last", "States that the vector is made from: that of an answer's last token, or the mean over its tokens.", title="States"
    )
    select: Literal["reward", "preference"] = param(
        "reward",
        "What layer and alpha are chosen by: the rewards of sampled answers, or the share of held-out pairs in the right order.",
        title="Choose by",
    )
    drift: float = param(
        0.5, "Most that log-perplexity of held-out chosen answers may rise (our value).", title="Log-perplexity limit", unit="nats", ge=0, le=100
    )
    held_out: float = param(0.25, "Share of prompts whose pairs are only measured.", title="Held-out pairs", advanced=True, gt=0, le=0.9)
    measured: int = param(64, "Held-out pairs measured in each cell, at most.", title="Pairs a cell", advanced=True, ge=1, le=10_000)
    max_length: int = param(1024, "A prompt with its answer is cut after so many tokens.", title="Longest pair", unit="tokens", advanced=True, ge=8)


class PaLRS(Method):
    card = Card(
        name="palrs",
        title="Steering vector from preference pairs",
        arxiv="2509.23982",
        system="PaLRS",
        base="procedure",
        provenance="abstract",
        source="abstract; no public code was found",
        fit="variant",
        idea="Add the mean difference between the hidden states of chosen and rejected answers to one layer while the policy writes.",
        formula=(
            r"v_l = \frac{1}{N} \sum_i \left[ h_l(x_i, y_i^+) - h_l(x_i, y_i^-) \right]",
            r"h_{l^*} \leftarrow h_{l^*} + \alpha^* v_{l^*}",
        ),
        reading="the positions that are read and changed, no normalisation, the grid and the limit of log-perplexity that choose layer and alpha",
        departures=(
            "Layer and alpha are chosen by rewards of training prompts, or by held-out pairs; the abstract does not say by what.",
            "Shown log-probabilities are those of the steered policy; the exported weights are not steered, and the vector lies beside them.",
        ),
        claim=("heldout/reward", "higher"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"rollout"})
    roles = {"data": "makes"}
    reads_pairs = True

    def prepare(self, run: "RunContext") -> None:
        if run.task.max_turns > 1:
            message, fix = "it has several turns, and a vector is added to one answer", "choose a task of one turn"
            raise SpecError([Problem("task.name", run.task.name, message, fix)])
        self.run = run
        self.cells: list[Cell] = []

    # Once: the vectors.

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """Makes the vectors from the pairs; the rounds ask the task's own prompts."""
        pairs = self.tokenize_pairs([row for row in rows if PAIR in row.data])
        made, held = split_by_prompt(pairs, self.config.held_out, run.rng("palrs", "split"))
        if not made or not held:
            path = run.attempt.spec.dataset.path if run.attempt.spec.dataset else None
            raise SpecError([Problem("dataset.path", path, "palrs needs preference pairs of two prompts at least", "choose a dataset of such pairs")])
        self.made, self.held = made, held[: self.config.measured]
        count = len(list_decoder_layers(run.model))
        self.layers = space_layers(count, self.config.layers)
        pad, size = run.tokenizer.pad_token_id, run.attempt.sampling_batch
        with in_evaluation_mode(run.model):
            chosen, rejected = [pair.chosen for pair in made], [pair.rejected for pair in made]
            how = {"pad": pad, "size": size, "positions": self.config.positions}
            self.vectors = compute_steering_vectors(run.model, chosen, rejected, self.layers, **how)  # (L, D)
        self.unsteered = self.measure_held_pairs(0, 0.0)
        self.facts = self.collect_facts(count)
        return run.task.examples("train", run.training.prompts, run.seed, run.attempt.spec.task.difficulty)

    def tokenize_pairs(self, examples: "Sequence[Example]") -> list[AnswerPair]:
        """Cut to what the policy reads; pairs of which nothing is left to compare are left out."""
        context = getattr(self.run.model.config.get_text_config(), "max_position_embeddings", None) or self.config.max_length
        longest, found = min(self.config.max_length, context), list[AnswerPair]()
        for example in examples:
            prompt, sides = as_rows(example.prompt), list[Answer]()
            before = tokenize_messages(self.run, prompt, True)
            for side in SIDES:
                ids = tokenize_messages(self.run, [*prompt, *example.data[PAIR][side]], False)[:longest]
                begin = next((place for place, (one, other) in enumerate(zip(before, ids, strict=False)) if one != other), min(len(before), len(ids)))
                sides.append((ids, begin))
            if all(0 < begin < len(ids) for ids, begin in sides):
                found.append(AnswerPair("\n".join(message["content"] for message in prompt), *sides))
        return found

    def collect_facts(self, count: int) -> dict[str, Any]:
        """What the vector's file says besides layer and alpha."""
        folder, dataset = self.run.attempt.policy.folder, self.run.attempt.spec.dataset
        return {
            "layers": count,
            "hidden_size": self.vectors.shape[1],
            "pairs": len(self.made),
            "positions": self.config.positions,
            "weights": digest_weights(folder),
            "revision": find_hub_revision(folder),
            "dataset": check_dataset_digest(dataset) if dataset else "",
        }

    # Rounds: the grid.

    def measure_held_pairs(self, place: int, alpha: float) -> PairLikelihood:
        with in_evaluation_mode(self.run.model):
            return measure_pairs(self.run, self.held, self.layers[place], self.vectors[place], alpha)

    def rollout(self, session: "Session") -> "list[Completion]":
        if not session.learns:
            cell = self.chosen
            with steer_layer(session.model, self.layers[cell.place], self.vectors[cell.place], cell.alpha):
                return session.complete()
        alpha = find_round_alpha(session.step, session.total_steps, self.config.most)
        self.ask_the_same(session)
        made = [self.measure_cell(session, place, alpha) for place in range(len(self.layers) if alpha else 1)]
        self.cells += [cell for cell, _ in made]
        self.report(alpha, [cell for cell, _ in made])
        self.save_chosen()
        best = choose_cell([cell for cell, _ in made], self.config.select, float("inf"))  # none where no likelihood is a number
        return next((completions for cell, completions in made if cell == best), made[0][1])

    def ask_the_same(self, session: "Session") -> None:
        """Every round has the same prompts: the first of the run."""
        group = session.group_size
        count = len(session.examples) // group
        asked = [self.run.examples[number % len(self.run.examples)] for number in range(count)]
        session.examples[:] = [example for example in asked for _ in range(group)]
        session.prompts[:] = [list(example.prompt) for example in session.examples]

    def measure_cell(self, session: "Session", place: int, alpha: float) -> "tuple[Cell, list[Completion]]":
        seed = self.run.rng("palrs", "answers").randrange(2**31)
        with own_randomness(seed, self.run.device), steer_layer(session.model, self.layers[place], self.vectors[place], alpha):
            completions = session.complete()
        scores = self.score(session, completions)
        likelihood = self.measure_held_pairs(place, alpha) if alpha else self.unsteered
        return Cell(place, alpha, sum(scores) / len(scores), likelihood.preference, likelihood.log_perplexity), completions

    def score(self, session: "Session", completions: "Sequence[Completion]") -> list[float]:
        """Total rewards; all of a cell at once, as functions of the library want it."""
        attempt, rows = self.run.attempt, [(made.text, example) for made, example in zip(completions, session.examples, strict=True)]
        return [rewards.weighted_sum(score, attempt.weights) or 0.0 for score in attempt.columns.score_rows(rows, session.step)]

    @property
    def chosen(self) -> Cell:
        """The best cell so far; before the first one, and where all went too far, the policy as it is."""
        found = choose_cell(self.cells, self.config.select, self.unsteered.log_perplexity + self.config.drift)
        return found or Cell(0, 0.0, 0.0, self.unsteered.preference, self.unsteered.log_perplexity)

    def report(self, alpha: float, cells: Sequence[Cell]) -> None:
        """A curve for each layer: at alpha 0 they are all one cell."""
        for place in range(len(self.layers)):
            cell = cells[min(place, len(cells) - 1)]
            for name in ("reward", "preference", "log_perplexity"):
                self.log(f"{name}/{place + 1}", getattr(cell, name))
        self.log("alpha", alpha)
        self.log("chosen_alpha", self.chosen.alpha)
        self.log("chosen_layer", self.layers[self.chosen.place])
        self.log("length", self.vectors[self.chosen.place].norm())

    def save_chosen(self) -> None:
        cell = self.chosen
        facts = SteeringFacts(layer=self.layers[cell.place], alpha=cell.alpha, **self.facts)
        save_steering_vector(self.run.attempt.folder / BESIDE, self.vectors[cell.place], facts)

    def state(self) -> dict[str, Any]:
        return {"cells": [asdict(cell) for cell in self.cells]}

    def restore(self, state: dict[str, Any]) -> None:
        self.cells = [Cell(**cell) for cell in state["cells"]]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name

        def by_layer(metric: str) -> tuple[Series, ...]:
            return tuple(Series(f"{name}/{metric}/{place}", f"layer {place} of those compared") for place in range(1, MOST_LAYERS + 1))

        grid = "Each round adds a larger alpha; the first adds nothing."
        return (
            Panel("Reward by alpha", by_layer("reward"), help=grid),
            Panel("Held-out pairs in the right order", by_layer("preference"), help=grid),
            Panel("Log-perplexity of held-out chosen answers", by_layer("log_perplexity"), unit="nats", help=grid),
            Panel("Alpha", (Series(f"{name}/alpha", "of the round"), Series(f"{name}/chosen_alpha", "chosen so far", dashed=True))),
            Panel("Layer chosen so far", (Series(f"{name}/chosen_layer", "layer, from 0"),)),
        )
