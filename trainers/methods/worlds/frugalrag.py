"""FrugalRAG: when to stop searching, learnt from where exploration had found enough (arXiv 2507.07634).

c = recall of the needed documents at the stop, h = searches until the stop (h = B where c < tau), h* = searches after which an exploring rollout had
recall >= tau, B = most searches, D = |h - h*| / B

R       = R_max + alpha h* / B                              where c >= tau and D = 0
R       = clip(log((1 - D) / D), -R_max, R_max)             else
R_total = (R + R_f) / 2,   R_f = mean over the turns of +0.5, or -0.5 for one that cannot be read

Then GRPO; no answer is needed for it: a frozen reader answers. It differs from GRPO on the same world in the whole reward.

This is our interpretation of a public note on the paper that quotes the first equation; R_max and alpha are ours. Its first stage, supervised
training of an explorer that goes on after it has enough, is the cold start of the world ``search`` with the option ``reader``, two in five of whose
demonstrations search on. h* comes from that policy: before training it plays some prompts a few times, and h* is the least number of searches after
which one of these had enough. A prompt that no rollout solved has no h* and is dropped; prompts that were not played are not trained on.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.thresholds import is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.tasks.base import digest_example
from trainers.worlds.base import Replay
from trainers.worlds.replays import count_calls, read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

FORM = 0.5  # what a turn that can be read is paid, and one that cannot is charged


def score_stop(searches: int, enough: int, has_enough: bool, budget: int, most: float, alpha: float) -> float:
    """R of a stop after ``searches`` where exploration had enough after ``enough``; ``most`` is R_max."""
    distance = abs((searches if has_enough else budget) - enough) / budget
    if has_enough and distance == 0:
        return most + alpha * enough / budget
    if distance in (0, 1):
        return most if distance == 0 else -most
    return max(-most, min(most, math.log((1 - distance) / distance)))


def score_form(replay: Replay) -> float:
    """Mean over the turns; an episode without one is broken."""
    readable = ["error" not in turn.step.facts or "tool" in turn.step.facts for turn in replay.turns]
    return sum(FORM if fine else -FORM for fine in readable) / len(readable) if readable else -FORM


def count_searches_until(replay: Replay, needed: int, tau: float) -> int | None:
    """Searches after which recall was at least ``tau``; None where it never was."""
    searches = 0
    for turn in replay.turns:
        searches += "tool" in turn.step.facts
        if is_at_least(len(turn.step.state["found"]) / needed, tau):
            return searches
    return None


class Config(Strict):
    tau: float = param(0.8, "Recall of the needed sentences that counts as enough.", title="Enough (tau)", gt=0, le=1)
    most: float = param(2.0, "Bound of the reward of a stop (ours).", title="Bound (R_max)", gt=0, le=100)
    alpha: float = param(1.0, "Bonus for exact stops that take more searches (ours).", title="Bonus (alpha)", ge=0, le=100)
    prompts: int = param(256, "Prompts that are played before training, and trained on.", ge=1, le=1_000_000)
    samples: int = param(4, "Exploring rollouts of each.", ge=1, le=256)


class FrugalRAG(Method):
    card = Card(
        name="frugalrag",
        title="Learning when to stop searching",
        arxiv="2507.07634",
        system="FrugalRAG",
        base="grpo",
        provenance="abstract",
        source="abstract; a public note on the paper that quotes its first equation",
        fit="needs-environment",
        idea="Pay for stopping where an exploring rollout first had all that is needed: neither before nor after.",
        formula=(
            r"R = \begin{cases} R_{max} + \alpha h^{*} / B & c \ge \tau,\ \Delta = 0 \\"
            r" \mathrm{clip}\left(\log \frac{1 - \Delta}{\Delta}, -R_{max}, R_{max}\right) & \text{else} \end{cases}",
            r"\Delta = |h - h^{*}| / B, \qquad R_{total} = (R + R_f) / 2",
        ),
        reading="the bound and the bonus are our choices; the equation is second-hand",
        departures=(
            "The exploring policy is the world's cold start, in place of one trained on traces without a stop.",
            "Prompts that no exploring rollout solved are dropped.",
            "Recall counts the sentences of the world search that the answer needs.",
        ),
        claim=("heldout/useful", "higher"),
    )
    Config = Config
    roles = {"data": "maps", "rewards": "makes"}
    worlds = frozenset({"search"})
    requires = (Requirement("task.options.reader", "equals", True, "a frozen reader has to answer: the policy learns when to stop"),)

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.enough: dict[str, int] = {}  # h* by the digest of the example
        self.share_kept = 1.0

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        config = self.config
        some: list[Example] = rows if len(rows) <= config.prompts else run.rng(self.card.name).sample(rows, config.prompts)
        self.enough = ranks.done_by_first(lambda: self.explore_prompts(some, run))
        kept = [example for example in some if digest_example(example).hex() in self.enough]
        self.share_kept = len(kept) / len(some)
        return kept

    def explore_prompts(self, examples: "list[Example]", run: "RunContext") -> dict[str, int]:
        """h* of each example that a rollout solved, by its digest."""
        asked, enough = [example for example in examples for _ in range(self.config.samples)], dict[str, int]()
        made = run.sample(asked, 1.0, key=self.card.name)
        for example, replay in zip(asked, replay_texts(run.task, asked, [done.text for done in made]), strict=True):
            needed, key = example.data.get("evidence"), digest_example(example).hex()
            found = count_searches_until(replay, len(needed), self.config.tau) if needed else None
            if found is not None:
                enough[key] = min(found, enough.get(key, found))
        return enough

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, made, distances, recalls = self.config, [], [], []
        budget = self.run.task.max_turns - 1
        replays = replay_texts(self.run.task, batch.examples, batch.texts)
        for replay, example in zip(replays, batch.examples, strict=True):
            recall = len(replay.state["found"]) / len(example.data["evidence"])
            stopped = read_final_answer(replay) is not None
            searches, enough = count_calls(replay) if stopped else budget, self.enough[digest_example(example).hex()]
            stop = score_stop(searches, enough, is_at_least(recall, config.tau), budget, config.most, config.alpha)
            made.append((stop + score_form(replay)) / 2)
            distances.append(abs(searches - enough))
            recalls.append(recall)
        self.log("distance", sum(distances) / len(distances))
        self.log("recall", sum(recalls) / len(recalls))
        self.report_searches(batch, replays)
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def report_searches(self, batch: "RolloutBatch", replays: list[Replay]) -> None:
        by_needed = dict[int, list[int]]()
        for replay, example in zip(replays, batch.examples, strict=True):
            by_needed.setdefault(len(example.data["evidence"]), []).append(count_calls(replay))
        for needed, searches in by_needed.items():
            self.log(f"searches/{needed}", sum(searches) / len(searches))
        if batch.step == 1:
            self.log("prompts_kept", self.share_kept)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        needed = tuple(Series(f"{name}/searches/{count}", f"{count} sentence{'s' * (count > 1)} needed") for count in (1, 2, 3))
        return (
            Panel(
                "Stops",
                (Series(f"{name}/distance", "searches away from enough"), Series(f"{name}/recall", "recall at the stop", dashed=True)),
                help="Enough is where an exploring rollout had all that is needed.",
            ),
            Panel("Searches by what is needed", needed),
        )
