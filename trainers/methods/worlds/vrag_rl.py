"""VRAG-RL: the answer, the form and the order of retrieval are paid (arXiv 2505.22019). A text stand-in.

f = 1 if the episode has a search and ends with an answer, else 0
R = f (w_a r + w_f + w_n nDCG)                     r = 1 for a right answer; w = .7, .1, .2 as released
nDCG = sum_i (2^rel_i - 1) / log2(i + 1)  over the same sum of an order that begins with all that is needed

i counts the distinct documents in the order in which they were retrieved, rel_i is 1 for one that the answer needs. Episodes that retrieve what is
needed early, and little else before it, are paid more than others with the same answer. It differs from GRPO in the reward; with the answer's weight
alone and episodes without a search paid too it is GRPO on the right answer.

The authors' policy searches page images and crops them, and a model judges the answer. Here documents are the sentences of a world with a search
engine, which tells the sentences found and those that are needed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.ranking import compute_ndcg
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.worlds.base import Replay
from trainers.worlds.observations import Observation, holds_evidence, list_hits, list_observations
from trainers.worlds.replays import read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example


def count_searches_before(observations: Sequence[Observation], example: "Example") -> int:
    """Searches before the first one that finds a needed document; all of them where none does."""
    return next((place for place, one in enumerate(observations) if holds_evidence(one, example)), len(observations))


def has_search_and_answer(replay: Replay, observations: Sequence[Observation]) -> bool:
    return bool(observations) and read_final_answer(replay) is not None


def reward_retrieval(right: Tensor, form: Tensor, ndcg: Tensor, weights: tuple[float, float, float], gate: bool) -> Tensor:
    """(B,) each, right and form 0 or 1. ``weights``: of answer, form and order. ``gate``: nothing is paid without the form."""
    paid = weights[0] * right + weights[1] * form + weights[2] * ndcg
    return paid * form if gate else paid


class Config(Strict):
    answer: float = param(0.7, "Paid for the right answer.", title="Answer", ge=0, le=10)
    form: float = param(0.1, "Paid for a search and an answer in the right form.", title="Form", ge=0, le=10)
    retrieval: float = param(0.2, "Paid for the order of retrieval (nDCG); 0: answers and form alone.", title="Order of retrieval", ge=0, le=10)
    gate: bool = param(True, "Pay nothing for an episode without a search, or without an answer.", title="No pay without a search", advanced=True)


class VRAGRL(Method):
    card = Card(
        name="vrag-rl",
        title="Order of retrieval in the reward",
        arxiv="2505.22019",
        system="VRAG-RL",
        base="grpo",
        provenance="code",
        source="github Alibaba-NLP/VRAG: VRAG-RL/verl/workers/reward_manager/rm.py, utils/reward_score/vrag.py, vrag_agent/generation.py",
        fit="needs-modality",
        idea="Pay for retrieving early what the answer needs, by the nDCG of the order, beside answer and form. A text stand-in.",
        formula=(
            r"R = f\,(0.7\, r + 0.1 + 0.2\, \mathrm{nDCG})",
            r"\mathrm{nDCG} = \frac{\sum_i (2^{rel_i} - 1) / \log_2(i + 1)}{\sum_{i=1}^{n} 1 / \log_2(i + 1)}",
        ),
        departures=(
            "Text stand-in: sentences of a search engine take the place of page images, and nothing is cropped; no number compares with the paper's.",
            "Whether the answer is right is a rule of the world; the authors ask a model.",
            "A search shows all its hits, in their order; the authors' shows the best page that was not shown before.",
            "The form is the world's: every turn one call, the last one an answer. The authors look for both pairs of tags anywhere.",
        ),
        claim=("vrag-rl/searches_before", "lower"),
    )
    Config = Config
    roles = {"rewards": "makes"}
    worlds = frozenset({"judged_search", "paragraphs", "planned_search", "search", "two_corpora"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, replays = self.config, replay_texts(self.run.task, batch.examples, batch.texts)
        seen = [list_observations(replay) for replay in replays]
        orders = [compute_ndcg(list_hits(one), example.data.get("evidence", ())) for one, example in zip(seen, batch.examples, strict=True)]
        forms = [float(has_search_and_answer(replay, one)) for replay, one in zip(replays, seen, strict=True)]
        ndcg, form = torch.tensor(orders).to(rewards), torch.tensor(forms).to(rewards)
        self.report(batch, seen, ndcg, form)
        return reward_retrieval(batch.correct.to(rewards), form, ndcg, (config.answer, config.form, config.retrieval), config.gate)

    def report(self, batch: "RolloutBatch", seen: Sequence[Sequence[Observation]], ndcg: Tensor, form: Tensor) -> None:
        """Order and searches of the episodes that search, and the share that has the form."""
        self.log("form", form.mean())
        searching = [place for place, one in enumerate(seen) if one]
        if searching:
            self.log("ndcg", ndcg[searching].mean())
            self.log("searches", sum(len(seen[place]) for place in searching) / len(searching))
            before = [count_searches_before(seen[place], batch.examples[place]) for place in searching]
            self.log("searches_before", sum(before) / len(before))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Order of retrieval",
                (Series(f"{name}/ndcg", "nDCG"), Series(f"{name}/form", "search and answer", dashed=True)),
                help="nDCG of the episodes that search.",
            ),
            Panel(
                "Searches of an episode",
                (Series(f"{name}/searches_before", "before the first needed sentence"), Series(f"{name}/searches", "all", dashed=True)),
                help="Of the episodes that search; where none finds a needed sentence, all of them are before it.",
            ),
        )
