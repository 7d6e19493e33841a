"""VTPerception-R1: evidence is described before the thought, and covering it and inventing nothing are paid (arXiv 2509.24776). A text stand-in.

An episode is <describe> D </describe><think> X </think><answer> Y </answer>. K: the facts that the answer needs; F(.): the facts of a text.
R = R_acc + R_fmt + R_vkey + R_tkey + R_rep + R_cons
R_vkey, R_tkey: 1 where |K n F| / |K| >= tau_hi, 1/2 where it is >= tau_lo, else 0;  F = F(D) for the first, F(X) for the second
R_cons = |A n E| / max(1, |A|), A = F(X) and the answer, E = F(D);  0 where D, X or Y says of somebody what the prompt says otherwise
R_rep = (distinct n-grams / n-grams) - 1 <= 0

Then DAPO. It differs from DAPO on answer and form in the four terms; with their weights at 0 it is that. The published policy describes an image, and
facts that only the image shows are one set of key facts, those of the question another. Here the facts stand in the prompt of the world
``described_facts``, so that both sets are the same, and numbers of this method never stand beside the paper's.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.rewards.ngrams import count_ngrams
from trainers.tasks.answers import worked_answer
from trainers.worlds.described_facts import Triple, is_true_fact, list_needed_triples, list_told_triples, read_triples, split_description

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.tasks.base import Example

NGRAM = 4  # words


def band_coverage(covered: float, low: float, high: float) -> float:
    """R_key."""
    return 1.0 if covered >= high else 0.5 if covered >= low else 0.0


def measure_coverage(needed: Sequence[Triple], found: Sequence[Triple]) -> float:
    """1 where nothing is needed."""
    return len(set(needed) & set(found)) / len(set(needed)) if needed else 1.0


def penalize_repetition(text: str, size: int = NGRAM) -> float:
    """R_rep, from -1 to 0, over words."""
    found = count_ngrams(text.split(), size)
    return len(found) / found.total() - 1 if found else 0.0


def contradicts_prompt(said: Sequence[Triple], told: Sequence[Triple]) -> bool:
    """Whether something is said of somebody that is told otherwise. Everybody has one value of each edge and feature."""
    known = {(whose, edge): value for whose, edge, value in told}
    return any(known.get((whose, edge), value) != value for whose, edge, value in said)


def measure_support(described: Sequence[Triple], used: Sequence[Triple], answer: str) -> float:
    """|A n E| / max(1, |A|): the answer is supported where it is the value, or the person, of something described."""
    words = {word for whose, _, value in described for word in (whose, value)}
    supported = sum(one in described for one in used) + (answer in words)
    return supported / max(1, len(used) + bool(answer))


def list_parts(text: str) -> tuple[list[Triple], list[Triple], str] | None:
    """Facts of D, facts of X, and Y; None for a text of another form."""
    description, rest = split_description(text)
    parts = worked_answer(rest) if description is not None else None
    return (read_triples(description or ""), read_triples(parts[0]), parts[1]) if parts else None


def score_terms(text: str, example: "Example", low: float, high: float) -> dict[str, float]:
    """All terms but the answer's; those that read the parts are 0 in another form."""
    parts = list_parts(text)
    if parts is None:
        return {"format": 0.0, "described": 0.0, "thought": 0.0, "repetition": penalize_repetition(text), "support": 0.0}
    described, used, answer = parts
    needed, is_conflict = list_needed_triples(example), contradicts_prompt([*described, *used], list_told_triples(example))
    return {
        "format": 1.0,
        "described": band_coverage(measure_coverage(needed, described), low, high),
        "thought": band_coverage(measure_coverage(needed, used), low, high),
        "repetition": penalize_repetition(text),
        "support": 0.0 if is_conflict else measure_support(described, used, answer),
    }


class Config(Strict):
    coverage: float = param(1.0, "Weight of the key facts in description and thought.", title="Coverage (R_vkey, R_tkey)", ge=0, le=10)
    support: float = param(1.0, "Weight of what is used being described.", title="Consistency (R_cons)", ge=0, le=10)
    repetition: float = param(1.0, "Weight of the penalty for repeated n-grams.", title="Repetition (R_rep)", ge=0, le=10)
    low: float = param(0.4, "Coverage from which half is paid (our value).", title="Lower band (tau_lo)", gt=0, le=1)
    high: float = param(0.8, "Coverage from which all is paid (our value).", title="Upper band (tau_hi)", gt=0, le=1)


class VTPerceptionR1(Method):
    card = Card(
        name="vtperception-r1",
        title="Evidence described first",
        arxiv="2509.24776",
        system="VTPerception-R1",
        base="dapo",
        provenance="paper",
        source="arXiv 2509.24776, section 4, equations 2 to 6",
        fit="needs-modality",
        idea="Have the evidence described before the thought, and pay for covering what is needed and using nothing else. A text stand-in.",
        formula=(
            r"R = R_{acc} + R_{fmt} + R_{vkey} + R_{tkey} + R_{rep} + R_{cons}",
            r"R_{key} = 1 \text{ if } \frac{|K \cap F|}{|K|} \ge \tau_{hi}, \quad \tfrac{1}{2} \text{ if } \ge \tau_{lo}, \quad \text{else } 0",
            r"R_{cons} = \frac{|F_{ans} \cap E|}{\max(1, |F_{ans}|)}, \quad 0 \text{ on a conflict}",
        ),
        departures=(
            "Text stand-in: facts in the prompt are described, not an image; no number compares with the paper's.",
            "The key facts of image and question are the same set here.",
            "A conflict is a fact that the prompt tells otherwise; what is described counts as observed, whether it is true or not.",
            "Both thresholds and the n-grams of 4 words are ours: the paper's are not known.",
            "The supervised stage before it is the world's cold start.",
        ),
        claim=("vtperception-r1/invented", "lower"),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "makes"}
    worlds = frozenset({"described_facts"})
    requires = (Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, made = self.config, []
        for right, example, text in zip(batch.correct.tolist(), batch.examples, batch.texts, strict=True):
            terms = score_terms(text, example, config.low, config.high)
            made.append(
                right
                + terms["format"]
                + config.coverage * (terms["described"] + terms["thought"])
                + config.repetition * terms["repetition"]
                + config.support * terms["support"]
            )
            self.report(text, example, terms)
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def report(self, text: str, example: "Example", terms: dict[str, float]) -> None:
        for name, value in terms.items():
            self.log(name, value)
        described, used, _ = list_parts(text) or ([], [], "")
        if told := {*described, *used}:
            self.log("invented", sum(not is_true_fact(one, example) for one in told) / len(told))
        self.log("facts", float(len(described)))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Key facts and support",
                (
                    Series(f"{name}/described", "described"),
                    Series(f"{name}/thought", "in the thought"),
                    Series(f"{name}/support", "used and described", dashed=True),
                ),
            ),
            Panel("Facts that are not true", (Series(f"{name}/invented", "share of the facts told"),)),
            Panel("Repetition", (Series(f"{name}/repetition", "penalty"),)),
            Panel("Facts of a description", (Series(f"{name}/facts", "facts"),)),
        )
