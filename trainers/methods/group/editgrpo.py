"""EditGRPO: part of a group is edited with the reference after it was sampled (arXiv 2509.22812). A text stand-in for reports on X-ray images.

Of a group of G, floor(G/2) members are drawn as sources; the edited text of each replaces one of floor(G/2) others. One edit, of the first kind that
applies:
    1. a wrong line is replaced by the missing reference line r that is most like it, if mean_e max_{r'} cos(e, r') >= tau
    2. a wrong line is deleted
    3. a missing reference line is added
All G are scored and trained on together, A_i = r_i - mean(r). The old log-probabilities of an edited text are worked out anew by the policy that
sampled, so that its importance ratio begins at 1. It differs from Dr. GRPO in the edited members alone: where no edit applies, it is Dr. GRPO.

The published reports are sentences about findings, compared by a model of medical entities. Here a line is a step of the working, wrong where the
task's own solution has no such step; entities are its numbers and words, and the cosine of two is 1 if they are the same and 0 if not. The answer
after the working stays as the policy wrote it, and the reward is the task's own: it has to pay for single lines, as ``working`` of the word problems
does, for an edit to earn anything. Numbers of this method never stand beside the paper's.
"""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.group_rows import list_group_rows
from trainers.texts.segments import find_step_spans, gold_steps
from trainers.texts.spans import thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion

ENTITY = re.compile(r"[0-9]+|[^\W\d_]+")
KINDS = ("replace", "delete", "add")
NOTE = "edit"  # in the notes of a completion: which kind it was edited by


@dataclass(frozen=True)
class Edit:
    kind: str
    text: str


def compare_entities(line: str, reference: str) -> float:
    """Mean over the entities of a line of their largest cosine with one of the reference: the share that it has too; 0 without any."""
    own, known = ENTITY.findall(line.lower()), set(ENTITY.findall(reference.lower()))
    return sum(entity in known for entity in own) / len(own) if own else 0.0


def find_wrong_lines(lines: Sequence[str], gold: Sequence[str]) -> list[int]:
    """Places of the lines that the reference does not have, or not that often."""
    left, found = Counter(gold), list[int]()
    for place, line in enumerate(lines):
        if left[line] > 0:
            left[line] -= 1
        else:
            found.append(place)
    return found


def edit_text(text: str, gold: Sequence[str], threshold: float, rng: random.Random) -> Edit | None:
    """``text`` after one edit towards the reference lines; None where none applies."""
    spans = find_step_spans(text)
    lines = [text[start:end] for start, end in spans]
    wrong, missing = find_wrong_lines(lines, gold), [gold[place] for place in find_wrong_lines(gold, lines)]
    for place in wrong if missing else ():
        likest = max(missing, key=lambda line: compare_entities(lines[place], line))
        if compare_entities(lines[place], likest) >= threshold:
            start, end = spans[place]
            return Edit("replace", text[:start] + likest + text[end:])
    if wrong:
        return Edit("delete", cut_line(text, *spans[wrong[0]]))
    if not missing:
        return None
    added = insert_line(text, rng.choice(missing), gold)
    return None if added is None else Edit("add", added)


def cut_line(text: str, start: int, end: int) -> str:
    """Without the characters [start, end) and the space that parts them from the next line, or from the one before."""
    after = end
    while after < len(text) and text[after].isspace():
        after += 1
    if after == end:
        while start > 0 and text[start - 1].isspace():
            start -= 1
    return text[:start] + text[after:]


def insert_line(text: str, line: str, gold: Sequence[str]) -> str | None:
    """A reference line before the first line of the text that follows it in the reference, else after the last; None for a text without working."""
    spans, thought = find_step_spans(text), thought_span(text)
    joint = "\n" if "\n" in text.strip() else " "
    later = gold[gold.index(line) + 1 :]
    for start, end in spans:
        if text[start:end] in later:
            return f"{text[:start]}{line}{joint}{text[start:]}"
    if spans:
        return f"{text[: spans[-1][1]]}{joint}{line}{text[spans[-1][1] :]}"
    return None if thought is None else f"{text[: thought[0]]}{line}{text[thought[0] :]}"


def draw_pairs(rows: Sequence[int], share: float, rng: random.Random) -> list[tuple[int, int]]:
    """(source, member it replaces): as many as ``share`` of the rows, no row in two pairs."""
    count = min(int(share * len(rows)), len(rows) // 2)
    drawn = rng.sample(list(rows), 2 * count)
    return list(zip(drawn[:count], drawn[count:], strict=True))


class Config(Strict):
    share: float = param(0.5, "Share of a group that edited texts replace; 0: Dr. GRPO.", title="Edited share", ge=0, le=0.5)
    threshold: float = param(0.6, "Share of its entities that a wrong line has in common with what replaces it.", title="Likeness (tau)", ge=0, le=1)


class EditGRPO(Method):
    card = Card(
        name="editgrpo",
        title="Edits after sampling",
        arxiv="2509.22812",
        system="EditGRPO",
        base="dr-grpo",
        provenance="code",
        source="github taokz/EditGRPO: vllm_rollout_spmd.py, RaTEscore_extractor.py, mimic_cxr_editgrpo_ops1_para_half_tau_0_6.sbatch",
        fit="needs-modality",
        idea="Text stand-in. Half of a group is replaced by other members' answers with one line corrected from the reference.",
        formula=(
            r"r^* = \arg\max_r \mathrm{mean}_e \max_{e' \in r} \cos(e, e') \ge \tau",
            r"A_i = r_i - \mathrm{mean}(r)",
        ),
        departures=(
            "A text stand-in: lines are steps of a working, not sentences of a report on an image.",
            "Entities are numbers and words that are the same or not, in place of embeddings of medical entities.",
            "A line that takes a wrong one's place is one that is missing; the authors' code takes any of the reference.",
            "An added line stands where the reference has it; the authors' code appends it.",
            "Likeness is compared with tau, as in the paper; the code compares it with tau times the number of entities.",
            "The loss is divided by the longest completion allowed; the authors' code divides by the batch's padded length.",
            "The KL penalty (0.01 in the paper) is the trainer's beta.",
        ),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"rollout"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        if run.task.max_turns > 1:
            message = "its answers go over several turns, and an edited text is one"
            raise SpecError([Problem("task.name", run.task.name, message, "choose a task that is answered in one turn")])

    def rollout(self, session: "Session") -> "list[Completion]":
        made, edits = session.complete(), dict[int, Edit]()
        for number, rows in list_group_rows(len(made), session.first_row, session.group_size).items():
            rng = self.run.rng(self.card.name, session.step, number)
            for source, target in draw_pairs(rows, self.config.share, rng):
                if session.prompts[source] != session.prompts[target]:  # another method asks members differently: it would be no answer
                    continue
                if (edit := self.edit_completion(session, source, made[source], rng)) is not None:
                    edits[target] = edit
        self.log("generated", sum(sum(one.mask) for one in made))
        for kind in KINDS:
            self.log(f"kind/{kind}", sum(edit.kind == kind for edit in edits.values()) / len(made))
        for target, completion in zip(edits, self.write_edited(session, edits), strict=True):
            made[target] = completion
        return made

    def edit_completion(self, session: "Session", row: int, made: "Completion", rng: random.Random) -> Edit | None:
        """None where nothing is to be edited, or the edited text would be too long."""
        gold = gold_steps(self.run.task, session.examples[row]) if made.finish_reason == "stop" else None
        edit = edit_text(made.text, gold, self.config.threshold, rng) if gold else None
        return edit if edit is not None and len(self.run.completion_ids(edit.text)) <= session.max_tokens else None

    def write_edited(self, session: "Session", edits: dict[int, Edit]) -> "list[Completion]":
        """Edited texts as completions of the rows that they replace, with the log-probabilities that the policy gives them."""
        roots = [episode.root for episode in session.begin(list(edits))]
        leaves = [session.force(root, edit.text, train=True, whole=True) for root, edit in zip(roots, edits.values(), strict=True)]
        scored = session.likelihood(roots, [leaf.ids for leaf in leaves], session.temperature) if leaves else []
        for leaf, logprobs in zip(leaves, scored, strict=True):
            leaf.logprobs = logprobs
        return session.finish(leaves, notes={place: {NOTE: edit.kind} for place, edit in enumerate(edits.values())})

    def observe(self, batch: "RolloutBatch") -> None:
        edited = torch.tensor([NOTE in note for note in batch.notes], device=batch.shaped.device)
        self.log("edited", edited.float().mean())
        means = batch.grouped(batch.shaped).mean(1).repeat_interleave(batch.group_size)
        for name, rows in (("edited", edited), ("sampled", ~edited)):
            if rows.any():
                self.log(f"reward_{name}", batch.shaped[rows].mean())
                self.log(f"above_mean_{name}", (batch.shaped > means)[rows].float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Edited members", tuple(Series(f"{name}/kind/{kind}", kind) for kind in KINDS), "stack", help="Share of all completions."),
            Panel("Reward", (Series(f"{name}/reward_edited", "edited"), Series(f"{name}/reward_sampled", "sampled"))),
            Panel(
                "Members above their group's mean",
                (Series(f"{name}/above_mean_edited", "of the edited"), Series(f"{name}/above_mean_sampled", "of the sampled")),
            ),
        )
