"""IKEA: a right answer is worth more the fewer searches it took, a wrong one a little where it searched (arXiv 2505.07596).

R = -1                                    for an episode in broken form
R = 1 + r_plus max(0, 1 - n / n_max)      for a right answer after n searches
R = r_minus [n >= 1]                      else
data: a question is known where the policy answers it right without a search often enough; as many known ones as unknown ones are trained on

Then GRPO; what the world writes is masked out of the loss. It differs from GRPO on the right answer in the two terms for searches and in the data;
with both terms at 0 it is GRPO on the answer, and on the same questions.

For a policy to know anything the world ``search`` has the option ``memorised``: a share of the facts is the same in every question, and the cold
start puts them into the weights. What the policy knows is measured before training, on its own closed-book answers (``known_split.py``).
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.known_split import balance_known, mark_known, measure_closed_book
from trainers.tasks.base import digest_example
from trainers.texts.token_overlap import is_same_answer
from trainers.worlds.replays import count_calls, read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

BROKEN = -1.0  # reward of an episode in broken form
NAMES = {True: "known", False: "unknown"}


def reward_boundary(formed: bool, right: bool, searches: int, plus: float, minus: float, most: int) -> float:
    """R; ``plus``, ``minus`` and ``most`` are r_plus, r_minus and n_max."""
    if not formed:
        return BROKEN
    return 1.0 + plus * max(0.0, 1.0 - searches / most) if right else minus * (searches >= 1)


class Config(Strict):
    plus: float = param(0.6, "What a right answer without a search earns beyond 1.", title="Bonus without searches (r_plus)", ge=0, le=10)
    minus: float = param(0.05, "What a wrong answer after a search earns.", title="Searching in vain (r_minus)", ge=0, le=10)
    most: int = param(3, "Searches from which a right answer earns 1.", title="Searches without a bonus (n_max)", ge=1, le=100)
    prompts: int = param(256, "Prompts that the policy is asked closed-book before training, and trained on.", ge=1, le=1_000_000)
    samples: int = param(8, "Closed-book answers to each.", ge=1, le=256)
    least: float = param(
        0.5,
        "Share of them that is right where a question counts as known; the authors: any, which guesses reach here.",
        title="Known from",
        ge=0,
        le=1,
    )
    balance: bool = param(True, "Train on as many known questions as unknown ones.", title="Balance the data")


class IKEA(Method):
    card = Card(
        name="ikea",
        title="Searching for what is not known",
        arxiv="2505.07596",
        system="IKEA",
        base="grpo",
        provenance="code",
        source="github hzy312/knowledge-r1: verl/utils/reward_score/qa_em.py, train_grpo_kb.sh, scripts/data_process/nq_knowledge_boundary.py",
        fit="needs-environment",
        idea="Pay a right answer more the fewer searches it took, so that the policy searches where it does not know.",
        formula=(
            r"R = \begin{cases} -1 & \text{broken form} \\ 1 + r_{+} \max\left(0, 1 - \frac{n}{n_{max}}\right) & a = a^* \\"
            r" r_{-}\,[n \ge 1] & \text{else} \end{cases}",
        ),
        departures=(
            "Half of the closed-book answers have to be right where a question is known, not one: answers of this world are one of six words.",
            "Facts that are the same in every question stand for what a language model knows.",
            "Thoughts are not asked for; the authors call an episode without one broken.",
            "A turn that is neither a call nor an answer ends the episode here; the authors ask again, and call the episode broken.",
        ),
        parallel=False,
    )
    Config = Config
    roles = {"data": "gates", "rewards": "makes"}
    worlds = frozenset({"search"})
    requires = (
        Requirement(
            "task.options.memorised", "at least", 0.05, "the built-in policy knows nothing of this world: all has to be looked up", hard=False
        ),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.known: dict[str, bool] = {}  # by the digest of the example

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        config = self.config
        some: list[Example] = rows if len(rows) <= config.prompts else run.rng(self.card.name).sample(rows, config.prompts)
        shares = ranks.done_by_first(lambda: measure_closed_book(run, some, config.samples, self.card.name))
        known = mark_known(shares, config.least)
        self.known = {digest_example(example).hex(): one for example, one in zip(some, known, strict=True)}
        return balance_known(some, known, run.rng(self.card.name, "balance")) if config.balance else some

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, made = self.config, []
        for example, replay in zip(batch.examples, replay_texts(self.run.task, batch.examples, batch.texts), strict=True):
            searches, answer = count_calls(replay), read_final_answer(replay)
            right = answer is not None and is_same_answer(answer, example.reference)
            formed = bool(replay.turns) and not replay.rest and not replay.state["errors"]
            made.append(reward_boundary(formed, right, searches, config.plus, config.minus, config.most))
            self.report(example, searches, right)
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def report(self, example: "Example", searches: int, right: bool) -> None:
        self.log("searches", searches)
        if (known := self.known.get(digest_example(example).hex())) is not None:
            self.log("known", float(known))
            self.log(f"searched_{NAMES[known]}", float(searches > 0))
            self.log(f"right_{NAMES[known]}", float(right))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        kinds = (("unknown", False), ("known", True))
        return (
            Panel("Episodes that search", tuple(Series(f"{name}/searched_{kind}", f"{kind} questions", dashed) for kind, dashed in kinds)),
            Panel("Right answers", tuple(Series(f"{name}/right_{kind}", f"{kind} questions", dashed) for kind, dashed in kinds)),
            Panel("Searches per episode", (Series(f"{name}/searches", "searches"), Series(f"{name}/known", "share of known questions", dashed=True))),
        )
