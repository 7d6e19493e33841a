"""Traces that cite the clauses of a rule book, written knowing the verdict, and checked.

After Policy Reasoning Traces (arXiv 2509.23291): z ~ writer(. | rules, case, verdict), kept where it ends in the verdict and cites clauses that
exist; then supervised training on z, or z as a demonstration in the prompt. Here a rule writes the traces of cases of the built-in rule book; traces
that somebody else has written are checked in the same way.
"""

from __future__ import annotations

import random
import re
from typing import Any

from trainers.contract.dataset_tools.answers import read_answer_text, remove_columns
from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm, ToolCard
from trainers.contract.dataset_tools.questions import find_user_question, replace_question
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.rule_book import (
    BOOK,
    VERDICTS,
    Clause,
    ParcelCase,
    draw_case,
    find_cited_clauses,
    judge_case,
    list_standing_clauses,
    read_case,
    write_clause_steps,
)

NO_CASE, NO_VERDICT = "prompts without a case of the rule book", "rows without a known verdict"
OTHER_VERDICT, NO_CLAUSE = "traces that do not end in the verdict", "traces that cite a clause that does not exist"
UNCITED = "traces that cite no clause"


class Config(Strict):
    clauses: int = param(len(BOOK), "Clauses c1 to this one exist; of prompts the built-in book's ten.", title="Clauses", ge=1, le=999)
    must_cite: bool = param(False, "Traces that cite no clause are dropped.", title="Citations needed")
    slips: float = param(
        0.0, "Share of the written traces in which the writer errs: another verdict, or a clause that does not exist.", title="Errors", ge=0, le=1
    )
    shots: int = param(0, "Cases with their traces before each question, drawn at random.", title="Demonstrations in the prompt", ge=0, le=5)
    rules: bool = param(False, "Put the built-in rule book before each question.", title="Rules in the prompt")


class VerdictTraces(DatasetTool):
    card = ToolCard(
        name="prt",
        title="Traces that cite clauses",
        summary="Answers cases of a rule book with traces that cite the clauses their known verdict stands on; those that do not end in it or cite "
        "what does not exist are dropped. Train SFT on them, and compare with the verdicts alone.",
        arxiv="2509.23291",
        system="PRT",
        departures=(
            "The writer is a rule over an invented book of ten clauses; language models write the paper's traces over statutes and policies.",
            "Demonstrations in the prompt are drawn at random; the paper also has a model choose related ones.",
            "Traces as a step of self-refinement are left out.",
        ),
    )
    suffix = "with traces"
    forms = {"prompt": "completion", "completion": "completion"}
    Config = Config

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        place, question = find_user_question(row.get("prompt"))
        case = read_case(question)
        verdict = str(row.get("reference") or "").strip() or (judge_case(case) if case else "")
        if form == "prompt" and case is None:
            raise RowDropped(NO_CASE)
        if not verdict:
            raise RowDropped(NO_VERDICT)
        trace = self.write_trace(case, verdict, rng) if form == "prompt" and case else read_answer_text(row.get("completion"))
        cited = self.check_trace(trace, verdict)
        kept = row if form == "completion" else {**remove_columns(row, "data"), "completion": trace}
        prompt = replace_question(row["prompt"], place, self.write_prompt(question, rng))
        named = ", ".join(f"c{number}" for number in sorted(cited)) or "no clause"
        return [MadeRow({**remove_columns(kept, "reference"), "prompt": prompt}, f"cites {named}")]

    def write_trace(self, case: ParcelCase, verdict: str, rng: random.Random) -> str:
        """Of a writer who knows the verdict, and errs in a share of the traces."""
        clauses = list_standing_clauses(case)
        if rng.random() < self.config.slips:
            if rng.random() < 0.5:
                verdict = next(other for other in VERDICTS if other != verdict)
            else:
                clauses = [*clauses, invent_clause(self.config.clauses)]
        return write_trace(case, clauses, verdict)

    def check_trace(self, trace: str, verdict: str) -> set[int]:
        """The clauses that it cites. Raises RowDropped for a trace that is not kept."""
        if not re.search(rf"\b{re.escape(verdict)}\W*$", strip_tags(trace), re.IGNORECASE):
            raise RowDropped(OTHER_VERDICT)
        cited = find_cited_clauses(trace)
        if not all(1 <= number <= self.config.clauses for number in cited):
            raise RowDropped(NO_CLAUSE)
        if self.config.must_cite and not cited:
            raise RowDropped(UNCITED)
        return cited

    def write_prompt(self, question: str, rng: random.Random) -> str:
        rules = [f"{clause.id}: {clause.text}" for clause in BOOK] if self.config.rules else []
        shown = [draw_case(rng) for _ in range(self.config.shots)]
        shots = [f"{case.text}\n{write_trace(case, list_standing_clauses(case), judge_case(case))}" for case in shown]
        return "\n".join([*rules, *shots, question])


def write_trace(case: ParcelCase, clauses: list[Clause], verdict: str) -> str:
    return f"<think>{write_clause_steps(case, clauses)}</think><answer>{verdict}</answer>"


def invent_clause(last: int) -> Clause:
    return Clause(last + 1, "", lambda case: True, lambda case: case.day)


def strip_tags(text: Any) -> str:
    return re.sub(r"</?\w{1,20}>", " ", str(text)).strip()
