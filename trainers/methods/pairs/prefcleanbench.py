"""PrefCleanBench: thirteen methods that clean preference data before training (arXiv 2509.23564).

Every pair (x, c, d) of prompt, chosen and rejected gets a score; bad pairs are removed (_r) or have their sides swapped (_f):

- llm_judge: a judge scores both answers; a pair is bad if J(c) < J(d).
- rw_gap: g = mean over proxy reward models of R(c) - R(d), here implicit rewards log pi_k / pi_ref of policies trained on preferences; bad: the
  lowest share p of g.
- vote_all, vote_maj: each reward model votes; a pair is bad if none prefers c, or if fewer than half do.
- ifd_r: IFD(c) = PPL(c|x) / PPL(c) = exp(mean log p(c) - mean log p(c|x)); removes pairs with IFD(c) > 1 and the lowest share p of the others.
  ifd_gap: bad are the pairs in the lowest share p of IFD(c) - IFD(d).
- ins_tag: prompts are tagged; in order of decreasing number of tags, a pair is kept if its prompt adds a new tag; _cmp fills up to the budget at
  random, _div stops when all tags are covered.

The judge is the run's reward or an endpoint. The paper uses p from .1 to .4.

It differs from its parent only in the data. ``flipped``, where the data marks wrong labels, is used for precision and recall, never to clean.
"""

import re
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.data import pair_rows
from trainers.judges import rewards
from trainers.maths.reduce import masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    import random

    from trainers.methods.context import RunContext

Row = dict[str, Any]
Cleaner = Literal[
    "llm_judge_r", "llm_judge_f", "rw_gap_r", "rw_gap_f", "vote_all_r", "vote_all_f", "vote_maj_r", "vote_maj_f",
    "ins_tag_cmp", "ins_tag_div", "ifd_r", "ifd_gap_r", "ifd_gap_f",
]  # fmt: skip
WORD = re.compile(r"[^\W\d_]+")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SIDES = ("chosen", "rejected")
QUESTION = "Rate the answer to the question from 0 (useless or wrong) to 10 (right and helpful). Write the number only.\n\nQuestion: {}\n\nAnswer: {}"


def instruction_difficulty(given: Tensor, alone: Tensor) -> Tensor:
    """Mean log-probabilities (K,) of answers with and without their prompts -> (K,): IFD."""
    return torch.exp(alone - given)


def mark_lowest_share(scores: Tensor, share: float) -> Tensor:
    """(K,) -> (K,) bool: the lowest share, rounded down; of equal values, the earlier row first."""
    bad = torch.zeros_like(scores, dtype=torch.bool)
    bad[scores.argsort(stable=True)[: int(len(scores) * share)]] = True
    return bad


def mark_easiest_pairs(scores: Tensor, share: float) -> Tensor:
    """(K,) IFD -> (K,) bool: values above 1, and the lowest share of the others."""
    bad = scores > 1
    inside = (~bad).nonzero()[:, 0]
    bad[inside[mark_lowest_share(scores[inside], share)]] = True
    return bad


def mark_outvoted_pairs(votes: Tensor, voters: Tensor, rule: str) -> Tensor:
    """(K,) votes for the chosen side out of (K,) voters -> (K,) bool: none ("all"), or fewer than half ("maj"); never without voters."""
    few = votes == 0 if rule == "all" else votes < voters / 2
    return few & (voters > 0)


def select_covering_rows(tags: list[set[str]], budget: int, fill: bool, rng: "random.Random") -> list[int]:
    """Indices of the rows to keep, in the order of the data."""
    kept, covered = list[int](), set[str]()
    for place in sorted(range(len(tags)), key=lambda place: -len(tags[place])):
        if len(kept) < budget and not tags[place] <= covered:
            kept.append(place)
            covered |= tags[place]
    if fill:
        rest = sorted(set(range(len(tags))) - set(kept))
        kept += rng.sample(rest, min(budget - len(kept), len(rest)))
    return sorted(kept)


class Config(Strict):
    cleaner: Cleaner = param("vote_maj_f", "_r removes bad pairs, _f swaps their sides; ins_tag keeps a diverse subset.", title="Cleaner")
    share: float = param(0.2, "Share of pairs that rw_gap and ifd mark as bad (p); the paper tries 0.1 to 0.4.", title="Bad share (p)", ge=0, lt=1)
    budget: int = param(6000, "Number of pairs that ins_tag keeps.", title="Pairs to keep", advanced=True, ge=1)
    folders: str = param(
        "",
        "Reward models for rw_gap and voting: folders of policies trained on preferences, separated by commas. rw_gap needs at least one.",
        title="Reward models",
    )
    judge: Literal["rule", "endpoint"] = param(
        "rule", "Judge for llm_judge: the run's reward, or the worker's endpoint.", title="Judge", advanced=True
    )


class PrefCleanBench(Method):
    card = Card(
        name="prefcleanbench",
        title="Cleaning preference data",
        arxiv="2509.23564",
        system="PrefCleanBench (13 cleaners)",
        base="dpo",
        provenance="code",
        source="a public copy of the official repository: data_cleaning.py, clean_ifd.py, clean_rw_gap.py, clean_voting.py",
        fit="core",
        idea="Score every pair once before training; remove the ones that look mislabelled, or swap their sides.",
        formula=(
            r"\mathrm{bad}_{vote} = \left[\sum_k \left[R_k(c) > R_k(d)\right] < \frac{n}{2}\right]",
            r"g = \frac{1}{n} \sum_k R_k(c) - R_k(d)",
            r"\mathrm{IFD}(y|x) = \exp\left(\frac{1}{|y|} \sum_t \log p(y_t|y_{<t}) - \frac{1}{|y|} \sum_t \log p(y_t|x, y_{<t})\right)",
        ),
        departures=(
            "Log-probabilities are those of the tokens themselves; the IFD script reads them shifted by one position.",
            "ifd_r removes the pairs that it ranked; the script mixes up indices.",
            "ins_tag fills without repeating pairs, and _div does not fill.",
            "The voters are the task's reward functions and policies in folders; a tie is an abstention.",
            "Tags are the words of the prompt, without numbers.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"data": "gates"}
    trains = frozenset({"dpo"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        folders = [part.strip() for part in self.config.folders.split(",") if part.strip()]
        if self.config.cleaner.startswith("rw_gap") and not folders:
            message, fix = "rw_gap has no reward models", "give folders of policies trained on preferences, or choose another cleaner"
            raise SpecError([Problem("methods", "prefcleanbench", message, fix)])
        if self.config.cleaner.startswith("llm_judge") and self.config.judge == "endpoint" and run.judge is None:
            fix = "set LAB_JUDGE_URL where the worker runs, or use the rule"
            raise SpecError([Problem("methods", "prefcleanbench", "this worker has no judge", fix)])
        self.models = [run.frozen(folder) for folder in folders]

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        if self.config.cleaner.startswith("ins_tag"):
            tags = [{word.lower() for word in WORD.findall(pair_rows.join_message_texts(row["prompt"]))} for row in rows]
            kept = select_covering_rows(tags, self.config.budget, self.config.cleaner.endswith("cmp"), run.rng("prefcleanbench", "fill"))
            self.log("bad", 1 - len(kept) / len(rows))
            return [rows[place] for place in kept]
        scores, bad = self.judged(rows)
        self.report(rows, scores, bad)
        marked = [{**row, "cleaning_score": score} for row, score in zip(rows, scores.tolist(), strict=True)]
        if self.config.cleaner.endswith("_r"):
            return [row for row, out in zip(marked, bad.tolist(), strict=True) if not out]
        return [swap_pair_sides(row) if out else row for row, out in zip(marked, bad.tolist(), strict=True)]

    def judged(self, rows: list[Row]) -> tuple[Tensor, Tensor]:
        """Scores (K,), where low is bad, and which pairs are bad (K,)."""
        name = self.config.cleaner.rpartition("_")[0]
        if name == "llm_judge":
            gaps = self.judge_gaps(rows)
            return gaps, gaps < 0
        if name.startswith("vote"):
            votes, voters = self.votes(rows)
            return votes - voters / 2, mark_outvoted_pairs(votes, voters, name.removeprefix("vote_"))
        if name == "rw_gap":
            gaps = self.implicit_gaps(rows).mean(0)
            return gaps, mark_lowest_share(gaps, self.config.share)
        chosen, rejected = (self.difficulty(rows, side) for side in SIDES)
        if name == "ifd":
            return chosen, mark_easiest_pairs(chosen, self.config.share)
        return chosen - rejected, mark_lowest_share(chosen - rejected, self.config.share)

    def judge_gaps(self, rows: list[Row]) -> Tensor:
        """(K,) J(c) - J(d); 0 where the judge gives no score."""
        if self.config.judge == "endpoint":
            assert self.run.judge is not None
            asked = [
                QUESTION.format(pair_rows.join_message_texts(row["prompt"]), pair_rows.join_message_texts(row[side]))
                for row in rows
                for side in SIDES
            ]
            found = [NUMBER.search(answer) for answer in self.run.judge.ask(asked, max_tokens=8)]
            scores = torch.tensor([float(number[0]) if number else float("nan") for number in found])
        else:
            known = pair_rows.examples_of(rows, self.run)
            pairs = [(example, pair_rows.join_message_texts(row[side])) for row, example in zip(rows, known, strict=True) for side in SIDES]
            scores = torch.tensor([self.run.score(example, text) if example else float("nan") for example, text in pairs])
        scores = scores.view(-1, 2)
        return (scores[:, 0] - scores[:, 1]).nan_to_num(0.0)

    def votes(self, rows: list[Row]) -> tuple[Tensor, Tensor]:
        """(K,) votes for the chosen side, (K,) votes cast."""
        gaps = [self.reward_gaps(row, example) for row, example in zip(rows, pair_rows.examples_of(rows, self.run), strict=True)]
        if self.models:
            gaps = [own + more for own, more in zip(gaps, self.implicit_gaps(rows).T.tolist(), strict=True)]
        return torch.tensor([float(sum(gap > 0 for gap in own)) for own in gaps]), torch.tensor([float(sum(gap != 0 for gap in own)) for own in gaps])

    def reward_gaps(self, row: Row, example: Any) -> list[float]:
        """R(c) - R(d) of every reward function that scores both."""
        if example is None:
            return []
        chosen, rejected = (rewards.score_all(self.run.task, pair_rows.join_message_texts(row[side]), example) for side in SIDES)
        both = [(one, rejected[name]) for name, one in chosen.items()]
        return [one - other for one, other in both if one is not None and other is not None]

    def implicit_gaps(self, rows: list[Row]) -> Tensor:
        """(models, K) differences of implicit rewards."""
        own = [[torch.tensor(pair_rows.frozen_scores(self.run, rows, side, model)) for side in SIDES] for model in [self.run.reference, *self.models]]
        (start, end), *others = own
        return torch.stack([(chosen - start) - (rejected - end) for chosen, rejected in others])

    @torch.no_grad()
    def difficulty(self, rows: list[Row], side: str) -> Tensor:
        """(K,) IFD of one side under the policy; without its prompt, an answer follows only the template's start of an answer."""
        given, alone = pair_rows.frozen_scores(self.run, rows, side, mean=True), list[Tensor]()
        opening = [
            pair_rows.tokenize_messages(self.run, row["prompt"], True)[len(pair_rows.tokenize_messages(self.run, row["prompt"], False)) :]
            for row in rows
        ]
        for start in range(0, len(rows), pair_rows.AT_ONCE):
            some = slice(start, start + pair_rows.AT_ONCE)
            answers = [pair_rows.token_ids(self.run, row, side)[1] for row in rows[some]]
            begin = [ids or [self.run.tokenizer.eos_token_id] for ids in opening[some]]
            alone.append(masked_row_mean(*self.run.logprobs(begin, answers)).cpu())
        return instruction_difficulty(torch.tensor(given), torch.cat(alone))

    def report(self, rows: list[Row], scores: Tensor, bad: Tensor) -> None:
        self.log("bad", bad.float().mean())
        self.log_histogram("scores", (scores - scores.mean()) / scores.std(correction=0).clamp(min=1e-6), -3.0, 3.0)
        wrong = torch.tensor([bool(row.get("flipped", False)) for row in rows])
        if wrong.any():
            self.log("precision", (wrong & bad).sum() / bad.sum().clamp(min=1))
            self.log("recall", (wrong & bad).sum() / wrong.sum())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        found = (
            Series("prefcleanbench/bad", "marked as bad"),
            Series("prefcleanbench/precision", "precision"),
            Series("prefcleanbench/recall", "recall"),
        )
        return (
            Panel("Pairs marked as bad", found, help="Precision and recall are known only for synthetic data. Logged once, in the first step."),
            Panel("Scores of the pairs", (Series("prefcleanbench/scores"),), "histogram", unit="standard deviations", low=-3.0, high=3.0),
        )


def swap_pair_sides(row: Row) -> Row:
    """The pair with its sides swapped; a known mark of a wrong label is inverted too."""
    known = {"flipped": not row["flipped"]} if "flipped" in row else {}
    return {**row, "chosen": row["rejected"], "rejected": row["chosen"], "cleaned": True, **known}
