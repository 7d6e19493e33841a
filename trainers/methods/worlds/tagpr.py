"""TagPR: reasoning in named steps, and a reward model that knows the user (arXiv 2509.23140).

r = r_task + w_t r_tag + w_p sigmoid(s_u)           the last term after the first stage alone
r_tag = share of the required tags that occur, are closed and not empty; 0 with a tag that is not required
s_u(x, y) = v h + e_u (W h),   h (D,): mean of the first policy's last layer over the tokens of y after x;   e_u: an embedding of user u
-log sigmoid(s_u(x, y+) - s_u(x, y-))               Bradley-Terry, on pairs that the user has ranked; before training

Then GRPO. It differs from GRPO on the right answer in the two terms; with their weights at 0 it is that. A second reward model without e_u is fitted
to the same pairs, as a measure of what the embedding is worth.

This is our reading of the abstract and a public note: the form of s_u, the weights and the length of the first stage are ours. The authors' users
have long histories and a strong model has tagged its reasoning; here users have a rule of style, the world's demonstrations are tagged, and pairs are
two demonstrations for one question, of which the user's rule prefers one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.policies.hidden_states import read_hidden_states
from trainers.worlds.personal_style import USERS, PersonalStyle, grade_tags

if TYPE_CHECKING:
    from trainers.contract.events import Message
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example, Split

RANK = 8  # of the users' embeddings
PASSES, RATE, DECAY = 300, 0.02, 0.01  # full-batch steps of AdamW on the reward model
NUMBER = {user: number for number, user in enumerate(USERS)}


class UserRewardModel(nn.Module):
    """(n, D) states and (n,) numbers of users -> (n,) scores. ``knows_users`` False: v h alone. States are scaled by those it was fitted to."""

    mean: Tensor
    scale: Tensor

    def __init__(self, states: Tensor, users: int, knows_users: bool, seed: int) -> None:
        super().__init__()
        self.knows_users = knows_users
        self.register_buffer("mean", states.mean(0))
        self.register_buffer("scale", states.std(0, correction=0) + 1e-6)
        size = states.shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.users = nn.Embedding(users, RANK)
            self.taste = nn.Linear(size, RANK, bias=False)
        self.shared = nn.Parameter(torch.zeros(size))

    def forward(self, states: Tensor, users: Tensor) -> Tensor:
        scaled = (states - self.mean) / self.scale
        scores = scaled @ self.shared
        return scores + (self.users(users) * self.taste(scaled)).sum(-1) if self.knows_users else scores


def compare_by_scores(chosen: Tensor, rejected: Tensor) -> Tensor:
    """(n,) scores of either side -> (n,) losses."""
    return -nn.functional.logsigmoid(chosen - rejected)


def fit_user_model(chosen: Tensor, rejected: Tensor, users: Tensor, knows_users: bool, seed: int) -> UserRewardModel:
    """(n, D), (n, D), (n,) -> the model fitted to the pairs; one that scores everything 0 without any pair."""
    states = torch.cat([chosen, rejected])
    model = UserRewardModel(states if len(states) else torch.zeros(1, states.shape[1]), len(USERS), knows_users, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    for _ in range(PASSES if len(chosen) else 0):
        loss = compare_by_scores(model(chosen, users), model(rejected, users)).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    if not len(chosen):
        nn.init.zeros_(model.taste.weight)
    return model.requires_grad_(False)


def measure_pair_accuracy(model: UserRewardModel, chosen: Tensor, rejected: Tensor, users: Tensor) -> float:
    """Share of the pairs whose preferred side has the higher score; equal scores count half."""
    gaps = model(chosen, users) - model(rejected, users)
    return float(((gaps > 0).float() + 0.5 * (gaps == 0).float()).mean())


def sum_terms(right: bool, tags: float, score: float | None, tag_weight: float, person_weight: float) -> float:
    """r; ``score``: s_u, None in the first stage."""
    taste = 0.0 if score is None else person_weight * float(torch.sigmoid(torch.tensor(score)))
    return right + tag_weight * tags + taste


@dataclass(frozen=True)
class RankedPair:
    example: "Example"
    chosen: str
    rejected: str


def draw_pairs(world: PersonalStyle, split: "Split", count: int, run: "RunContext", difficulty: str) -> list[RankedPair]:
    """Two demonstrations for each of ``count`` questions, as their users rank them by style; no pair where both are as good."""
    rng, pairs = run.rng("tagpr", split), list[RankedPair]()
    for example in world.examples(split, count, run.seed, difficulty):
        texts = [world.demonstration(example, rng) for _ in range(2)]
        scores = [world.rewards["style"].function(text, example) or 0.0 for text in texts]
        if scores[0] != scores[1]:
            best = scores.index(max(scores))
            pairs.append(RankedPair(example, texts[best], texts[1 - best]))
    return pairs


class Config(Strict):
    tags: float = param(0.5, "Weight of the named steps (our value).", title="Tags (w_t)", ge=0, le=10)
    person: float = param(0.5, "Weight of the reward model that knows the user (our value).", title="User's taste (w_p)", ge=0, le=10)
    first_stage: float = param(0.25, "Share of the steps that are trained without the user's taste (our value).", title="First stage", ge=0, le=1)
    pairs: int = param(600, "Questions for which two answers are ranked, to fit the reward model.", title="Pairs", ge=2, le=100_000)


class TagPR(Method):
    card = Card(
        name="tagpr",
        title="Named steps and a user's taste",
        arxiv="2509.23140",
        system="TagPR",
        base="grpo",
        provenance="abstract",
        source="abstract; a public note for the names of tags",
        fit="variant",
        idea="Pay for reasoning in named steps, then also for what a reward model says that knows the user by an embedding.",
        formula=(
            r"r = r_{task} + w_t\, r_{tag} + w_p\, \sigma(s_u), \quad s_u(x, y) = v^\top h + e_u^\top W h",
            r"L = -\log \sigma\left(s_u(x, y^+) - s_u(x, y^-)\right)",
        ),
        reading="the form of s_u, both weights and the length of the first stage",
        departures=(
            "Users have a rule of style, and pairs are demonstrations ranked by it; the authors have histories of people.",
            "The reward model is a bilinear head on the first policy's hidden states.",
            "The supervised stage on tagged chains is the world's cold start.",
        ),
        claim=("heldout/style", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "makes"}
    worlds = frozenset({"personal_style"})
    requires = (Requirement("dataset", "equals", None, "it needs to know who asks"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.reader = run.frozen("")
        spec, world = run.attempt.spec, run.task
        assert isinstance(world, PersonalStyle)  # the only one of ``worlds``
        fitted, held_out = (self.read_pairs(draw_pairs(world, split, self.config.pairs, run, spec.task.difficulty)) for split in ("train", "pairs"))
        self.model = fit_user_model(*fitted, True, run.seed)
        if len(held_out[0]):
            self.log("pair_accuracy", measure_pair_accuracy(self.model, *held_out))
            self.log("pair_accuracy_without", measure_pair_accuracy(fit_user_model(*fitted, False, run.seed), *held_out))

    def read_pairs(self, pairs: Sequence[RankedPair]) -> tuple[Tensor, Tensor, Tensor]:
        """(n, D) states of the chosen sides, (n, D) of the rejected ones, (n,) numbers of the users."""
        prompts = [pair.example.prompt for pair in pairs]
        sides = [self.read_answers(prompts, [getattr(pair, side) for pair in pairs]) for side in ("chosen", "rejected")]
        return sides[0], sides[1], torch.tensor([NUMBER[pair.example.data["user"]] for pair in pairs], dtype=torch.long)

    def read_answers(self, prompts: "Sequence[Sequence[Message]]", texts: Sequence[str]) -> Tensor:
        """(n, D) on the CPU: for each answer the mean of the first policy's states over its tokens, the end token included."""
        asked, written = self.run.prompt_ids(prompts), [self.run.completion_ids(text) for text in texts]
        rows = [[*before, *after] for before, after in zip(asked, written, strict=True)]
        places = [range(len(before), len(row)) for before, row in zip(asked, rows, strict=True)]
        states = read_hidden_states(self.run, rows, places, self.reader).cpu()
        ends = list(accumulate(map(len, places)))
        return torch.stack([states[end - len(place) : end].mean(0) for place, end in zip(places, ends, strict=True)]) if rows else states

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config, made = self.config, []
        scores = self.score_taste(batch) if config.person and batch.step > config.first_stage * batch.total_steps else None
        for place, (right, text) in enumerate(zip(batch.correct.tolist(), batch.texts, strict=True)):
            tags = grade_tags(text)
            made.append(sum_terms(right, tags, None if scores is None else scores[place], config.tags, config.person))
            self.log("tags", tags)
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def score_taste(self, batch: "RolloutBatch") -> list[float]:
        """s_u of each completion."""
        users = torch.tensor([NUMBER[example.data["user"]] for example in batch.examples])
        scores: Tensor = self.model(self.read_answers(batch.prompts, batch.texts), users)
        self.log("taste", torch.sigmoid(scores).mean())
        return scores.tolist()

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Named steps", (Series(f"{name}/tags", "share of the tags"),)),
            Panel("User's taste", (Series(f"{name}/taste", "sigmoid of the score"),), help="From the second stage on."),
            Panel(
                "Pairs that the reward model ranks as the user does",
                (Series(f"{name}/pair_accuracy", "knows the user"), Series(f"{name}/pair_accuracy_without", "does not", dashed=True)),
                help="Held-out pairs, once before training.",
            ),
        )
