"""Span credit: spans of answers that people marked as good or bad are token weights, after the dense DPO of RLHF-V (arXiv 2312.00849).

Unmarked tokens have weight 1. Spans that support the label (good ones of a chosen answer or a completion, bad ones of a rejected answer) have weight
w+, spans that contradict it (bad ones of a chosen answer or a completion, good ones of a rejected answer) have w-. A token that a span's edge cuts
has the mean weight of its characters. In DPO the weights multiply the token log-ratios of both answers; in SFT they multiply the token losses. With
w+ = w- = 1, and for rows without spans, it is DPO or SFT. RLHF-V weights the words that a correction changed by 5 on both sides, which is w+.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spans import METHOD, Row, has_spans
from trainers.data.token_spans import TokenSpans, mark_tokens
from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch, TokenBatch
    from trainers.methods.context import RunContext

REWRITTEN = "it rewrites answers: spans that were marked in a text it replaces have no effect"


def compute_span_weights(supporting: Tensor, opposing: Tensor, mask: Tensor, weights: tuple[float, float], normalise: bool) -> Tensor:
    """Shares (B, T) of each token's characters in supporting and opposing spans, and w+ and w- -> (B, T) weights; 1 where masked.

    ``normalise``: the weights of a row's tokens have mean 1; a row whose weights are all 0 stays at 0.
    """
    found = 1 + supporting * (weights[0] - 1) + opposing * (weights[1] - 1)
    if normalise:
        total = (found * mask).sum(1, keepdim=True)
        found = found * mask.sum(1, keepdim=True) / torch.where(total > 0, total, torch.ones_like(total))
    return torch.where(mask > 0, found, torch.ones_like(found))


class Config(Strict):
    supporting: float = param(
        2.0,
        "Weight of marked spans that support the label: good spans of chosen answers and completions, bad spans of rejected answers. Unmarked: 1.",
        title="Weight of supporting spans (w+)",
        ge=0,
        le=10,
    )
    opposing: float = param(
        0.0,
        "Weight of marked spans that contradict the label: bad spans of chosen answers and completions, good spans of rejected answers. Unmarked: 1.",
        title="Weight of opposing spans (w-)",
        ge=0,
        le=10,
    )
    normalise: bool = param(
        False,
        "Scale the weights of each answer to mean 1, so that an answer counts as much with spans as without.",
        title="Normalise",
        advanced=True,
    )


class SpanCredit(Method):
    card = Card(
        name=METHOD,
        title="Credit for marked spans",
        arxiv="2312.00849",
        system="RLHF-V (DDPO)",
        base="dpo",
        provenance="code",
        source="the authors' code (RLAIF-V, muffin/train/trainers.py: compute_weighted_logp), which sums weighted token log-probabilities",
        fit="variant",
        idea="Learn from which part of an answer is good or bad: tokens in the spans that people marked count more, or not at all.",
        formula=(
            r"w_t = 1 + s_t (w_+ - 1) + o_t (w_- - 1)",
            r"r(y) = \sum_t w_t \log\frac{\pi_\theta(y_t \mid y_{<t})}{\pi_{ref}(y_t \mid y_{<t})}",
            r"L = -\log \sigma\left(\beta \left[r(y^+) - r(y^-)\right]\right)",
        ),
        departures=(
            "Spans are those that people marked; the authors take the words that a correction changed.",
            "Spans that contradict the label have a weight of their own; the authors have none.",
            "The default weight is 2; in the paper it is 5.",
            "Weights are not normalised unless chosen; then they have mean 1, where the paper divides by their sum.",
            "Supervised training with the same weights is our addition.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"pair_ratios": "maps"}
    trains = frozenset({"dpo", "sft"})
    cautions = dict.fromkeys(("pns", "rlhi", "scpo-semantic-curriculum", "seapo"), REWRITTEN)

    def prepare(self, run: "RunContext") -> None:
        self.tokenizer = run.tokenizer
        self.found: dict[tuple[int, str], tuple[Row, TokenSpans]] = {}
        if not getattr(self.tokenizer, "is_fast", False):
            fix = "train a policy with a fast tokenizer (tokenizer.json), or remove span-credit"
            raise SpecError([Problem("methods", self.card.name, "the policy's tokenizer does not say which characters a token covers", fix)])

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        good, bad, lost = self.token_shares(batch.rows, "chosen", batch.chosen_ids, batch.chosen_mask)
        other_good, other_bad, other_lost = self.token_shares(batch.rows, "rejected", batch.rejected_ids, batch.rejected_mask)
        own, other = self.weights(good, bad, batch.chosen_mask), self.weights(other_bad, other_good, batch.rejected_mask)
        mask = torch.cat([batch.chosen_mask, batch.rejected_mask], 1)
        self.log("token_weight", masked_mean(torch.cat([own, other], 1), mask))
        self.report(torch.cat([good, other_good], 1), torch.cat([bad, other_bad], 1), mask, lost + other_lost)
        return chosen * own, rejected * other

    def sft_weights(self, batch: "TokenBatch") -> Tensor:
        good, bad, lost = self.token_shares(batch.rows, "completion", batch.ids, batch.mask)
        self.report(good, bad, batch.mask, lost)
        return self.weights(good, bad, batch.mask)

    def weights(self, supporting: Tensor, opposing: Tensor, mask: Tensor) -> Tensor:
        return compute_span_weights(supporting, opposing, mask, (self.config.supporting, self.config.opposing), self.config.normalise)

    def report(self, good: Tensor, bad: Tensor, mask: Tensor, lost: int) -> None:
        self.log("good", masked_mean(good, mask))
        self.log("bad", masked_mean(bad, mask))
        self.log("marked_rows", (((good + bad) * mask).sum(1) > 0).float().mean())
        self.log("unmapped", float(lost))

    def token_shares(self, rows: list[Row], side: str, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, int]:
        """(B, T) shares of each token's characters in good and in bad spans of the rows' answers on this side, and how many spans have no token."""
        shares = torch.zeros(2, *ids.shape)
        lost = 0
        for place, (row, own, there) in enumerate(zip(rows, ids.tolist(), mask.tolist(), strict=True)):
            if not has_spans(row):
                continue
            marked = self.tokens_of(row, side)
            positions = [position for position, counts in enumerate(there) if counts]
            sources = align_tokens(marked, own, positions)
            lost += marked.lost + sum(first not in sources for first in marked.firsts)
            for position, source in zip(positions, sources, strict=False):
                shares[0, place, position], shares[1, place, position] = marked.good[source], marked.bad[source]
        return shares[0].to(mask), shares[1].to(mask), lost

    def tokens_of(self, row: Row, side: str) -> TokenSpans:
        """Worked out once a row and side. The row is kept with it, so that its identity stays its own."""
        key = (id(row), side)
        if key not in self.found:
            self.found[key] = (row, mark_tokens(self.tokenizer, row, side))
        return self.found[key][1]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Tokens in marked spans",
                (Series("span-credit/good", "good"), Series("span-credit/bad", "bad")),
                unit="share of answer tokens",
                help="Share of the step's answer tokens inside spans that people marked.",
            ),
            Panel("Mean token weight", (Series("span-credit/token_weight", "mean weight"),), help="1 is training without spans."),
            Panel(
                "Spans without effect",
                (Series("span-credit/unmapped", "spans, mean of micro-batches"),),
                help="Marked spans that match no token in training: their text was rewritten, rendered otherwise by the chat template, or cut off.",
            ),
        )


def align_tokens(marked: TokenSpans, ids: list[int], positions: list[int]) -> range:
    """Where in ``marked`` the tokens at ``positions`` stand; empty where they are others. A batch leaves out the first token, or the prompt."""
    for start in (positions[0] + 1, marked.start) if positions else ():
        if [ids[position] for position in positions] == marked.ids[start : start + len(positions)]:
            return range(start, start + len(positions))
    return range(0)
