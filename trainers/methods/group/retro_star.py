"""Retro*: a judge that scores relevance from 0 to 100, rewarded for consistent scores and for the correct order (arXiv 2509.24869).

K trajectories score one (query, document) pair; their mean is the integrated score. R_intra is +1 for the trajectory closest to the mean, -1 for the
furthest and 0 for the others, and 0 for all unless the furthest is at least tau away. R_inter of a relevant document is the share of the trajectories
of the query's other documents with a lower score; for another document, it is the share of the relevant document's trajectories with a higher score.
R = alpha R_intra + (1 - alpha) R_inter. A GRPO group holds the trajectories of one document; the documents of a query are sampled in the same batch.

Section 3.2.2 and appendix C use alpha = 0.75, tau = 20, and one relevant and one other document per query; an earlier summary guessed 0.5 and had no
tau. The task's own reward is not used, and held-out accuracy, measured on the task, says nothing about this method; its metric ``auc`` does. Extra
step time: each prompt holds a query and a document, so prompts are longer than the task's own.
"""

from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.maths.thresholds import is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.base import Example
from trainers.texts.spans import extract_answer

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History

KEY = "retro"  # in Example.data: [number of the query, whether the document is relevant]
HIGHEST = 100


def score_of(text: str) -> float:
    """The relevance score in a completion; nan unless it is a whole number from 0 to 100."""
    said = extract_answer(text) or ""
    known = said.isascii() and said.isdigit() and len(said) <= 3 and int(said) <= HIGHEST
    return float(said) if known else float("nan")


def compute_agreement_rewards(scores: Tensor, least: float) -> Tensor:
    """(N, G) scores, nan where missing -> (N, G): +1 for the score closest to the group's mean, -1 for the furthest, -1 for a missing score."""
    distance = (scores - scores.nanmean(1, keepdim=True)).abs()
    far = distance.nan_to_num(-1.0).amax(1, keepdim=True)
    near = distance.nan_to_num(float("inf")).amin(1, keepdim=True)
    counts = is_at_least(far, least) & (far > near)
    found = ((distance == near).to(scores.dtype) - (distance == far).to(scores.dtype)) * counts
    return torch.where(scores.isnan(), -1.0, found)


def compute_order_rewards(scores: Tensor, queries: Tensor, relevant: Tensor) -> Tensor:
    """(B,) each -> (B,): for each score, the share of trajectories of the query's documents of the other class that it ranks correctly."""
    others = (queries[:, None] == queries) & (relevant[:, None] != relevant) & ~scores.isnan()  # (B, B)
    side = torch.where(relevant[:, None], scores < scores[:, None], scores > scores[:, None])
    share = (side & others).sum(1) / others.sum(1).clamp(min=1)
    return share.masked_fill(scores.isnan(), 0.0)


def compute_ordering_auc(scores: Tensor, queries: Tensor, relevant: Tensor) -> Tensor:
    """(N,) mean scores of documents -> scalar: how often a relevant document scores higher than another document of its query (AUC); nan without a
    pair.
    """
    pairs = (queries[:, None] == queries) & relevant[:, None] & ~relevant & ~scores.isnan() & ~scores.isnan()[:, None]
    gaps = (scores[:, None] - scores)[pairs]
    return ((gaps > 0).float() + 0.5 * (gaps == 0)).mean()


class Config(Strict):
    alpha: float = param(0.75, "Weight of consistency; 1 - alpha is the weight of the order.", title="Consistency (alpha)", ge=0, le=1)
    tau: float = param(
        20.0, "Consistency counts only if the furthest score is at least this far from the mean.", title="Min spread (tau)", ge=0, le=100
    )
    others: int = param(1, "Documents from other questions per relevant document.", ge=1, le=64)


class RetroStar(Method):
    card = Card(
        name="retro-star",
        title="Consistent and ordered relevance scores",
        arxiv="2509.24869",
        system="Retro*",
        base="grpo",
        provenance="paper",
        source="arXiv 2509.24869, section 3.2.2 and appendix C",
        fit="core",
        idea="Score a document several times; reward scores close to the mean and scores that rank relevant documents above others.",
        formula=(
            r"R_{\mathrm{inter}}(i) = \frac{1}{|O|}\sum_{j \in O} 1[s_j < s_i]",
            r"R = \alpha R_{\mathrm{intra}} + (1 - \alpha) R_{\mathrm{inter}}",
        ),
        departures=(
            (
                "Queries are the task's questions; the relevant document is the question's solution, and the other documents are "
                "solutions of other questions."
            ),
            "All ties for closest or furthest count; if all scores are equally far from the mean, the consistency reward is 0.",
            "A trajectory without a score gets the lowest reward and is excluded from every mean.",
            "The lab's cold start replaces the supervised start on consensus trajectories; it teaches nothing about relevance.",
        ),
        claim=("retro-star/auc", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "makes", "rewards": "makes"}
    owns = frozenset({"curriculum"})
    excludes = {
        "critique-coder": "both replace the training prompts: retro-star with documents, critique-coder with questions about a solution",
        "rest-rl": "retro-star replaces the training prompts with documents, so the filtering and the prefixes of rest-rl would be lost",
    }

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """Documents of a query are adjacent: the relevant one first."""
        solutions = [(example, text) for example in rows if (text := solution_of(run, example))]
        rng, made = run.rng(self.card.name, "documents"), list[Example]()
        if len(solutions) <= self.config.others:
            message = f"documents are solutions, and {len(solutions)} of {len(rows)} examples say how they are solved"
            raise SpecError([Problem("methods", self.card.name, message, "train on a task of the lab, or give the examples its data")])
        for query, (example, own) in enumerate(solutions):
            places = rng.sample([place for place in range(len(solutions)) if place != query], self.config.others)
            for document, relevant in [(own, True), *((solutions[place][1], False) for place in places)]:
                question = f"{example.prompt[-1].content}\n{document}\nScore 0 to {HIGHEST}?"
                prompt = [*example.prompt[:-1], Message("user", question)]
                made.append(Example(prompt, str(HIGHEST if relevant else 0), {KEY: [query, relevant]}))
        return made

    def curriculum(self, history: "History") -> Tensor:
        """Draws all documents of a few queries and no others, because their scores are compared."""
        documents = 1 + self.config.others
        rng = self.run.rng(self.card.name, history.step)
        queries = history.size // documents
        chosen = rng.sample(range(queries), min(queries, ceil(self.run.training.prompts_per_batch() / documents)))
        weights = torch.zeros(queries, documents)
        weights[chosen] = 1.0
        return weights.flatten()

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        scores = torch.tensor([score_of(text) for text in batch.texts], device=rewards.device)
        facts = [example.data[KEY] for example in batch.examples]
        queries = torch.tensor([query for query, _ in facts], device=rewards.device)
        relevant = torch.tensor([bool(one) for _, one in facts], device=rewards.device)
        self.report(batch, scores, queries, relevant)
        agreeing = compute_agreement_rewards(batch.grouped(scores), self.config.tau).flatten()
        return self.config.alpha * agreeing + (1 - self.config.alpha) * compute_order_rewards(scores, queries, relevant)

    def report(self, batch: "RolloutBatch", scores: Tensor, queries: Tensor, relevant: Tensor) -> None:
        groups = batch.grouped(scores)
        auc = compute_ordering_auc(groups.nanmean(1), batch.grouped(queries)[:, 0], batch.grouped(relevant)[:, 0])
        self.log("scored", (~scores.isnan()).float().mean())
        spread = (groups - groups.nanmean(1, keepdim=True)).square().nanmean(1).sqrt().nanmean()
        for name, value in (("auc", auc), ("relevant", scores[relevant].nanmean()), ("others", scores[~relevant].nanmean()), ("spread", spread)):
            if not value.isnan():
                self.log(name, value)
        for name, chosen in (("scores_relevant", relevant), ("scores_others", ~relevant)):
            self.log_histogram(name, scores[chosen & ~scores.isnan()], 0.0, HIGHEST)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Document ranking", (Series(f"{name}/auc", "AUC of mean scores"), Series(f"{name}/scored", "gave a score", dashed=True))),
            Panel(
                "Scores",
                (Series(f"{name}/relevant", "relevant"), Series(f"{name}/others", "others"), Series(f"{name}/spread", "spread", dashed=True)),
                help="The spread is the standard deviation of one document's scores.",
            ),
            Panel("Scores of relevant documents", (Series(f"{name}/scores_relevant"),), "histogram"),
            Panel("Scores of other documents", (Series(f"{name}/scores_others"),), "histogram"),
        )


def solution_of(run: "RunContext", example: Example) -> str:
    """The task's solution; empty for an example without one."""
    try:
        return run.task.gold(example)
    except LookupError:
        return ""
