"""MetaAPO: meta-weighted online sampling (arXiv 2509.23371).

A small meta-learner looks at how well the policy already fits an offline pair, and decides the weight of that pair relative to a pair sampled from
the policy:

    Delta = [log pi(y+) - log pi(y-)] - [log pi_ref(y+) - log pi_ref(y-)]      (no beta)
    s = log sigmoid(Delta_off),   w = h(s) = sigmoid(W2 tanh(W1 s + b1) + b2)  (100 hidden units, all weights .1, biases 0)
    online sampling: u ~ U(0, 1); if u > w, eight answers are sampled and the best and the worst by reward are the online pair
    L = w l_off + (1 - w) l_on,   l = -log sigmoid(beta Delta)                 (w without gradient)

Every eight batches, h takes its own AdamW step on the same expression, in which only w has a gradient: dL/dw = l_off - l_on.

It differs from DPO, which uses only offline pairs. Sampling, and two more forward passes of policy and reference on the online pairs, make steps
several times longer.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from trainers.attempt.stages import stage_of, stage_starts
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.data import pair_rows
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

Row = dict[str, Any]
HIDDEN, FIRST_WEIGHT = 100, 0.1
CURVE = (-3.0, -1.0, -0.1)  # where h is drawn


class MetaLearner(torch.nn.Module):
    """h: (B,) -> (B,) in (0, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(1, HIDDEN), torch.nn.Linear(HIDDEN, 1)
        for layer in (self.inner, self.outer):
            torch.nn.init.constant_(layer.weight, FIRST_WEIGHT)
            torch.nn.init.zeros_(layer.bias)

    def forward(self, fit: Tensor) -> Tensor:
        weight: Tensor = torch.sigmoid(self.outer(torch.tanh(self.inner(fit[:, None]))))[:, 0]
        return weight


def meta_optimiser(learner: MetaLearner, rate: float, decay: float) -> torch.optim.AdamW:
    """Adam with decoupled weight decay, applied to weights only."""
    layers = (learner.inner, learner.outer)
    groups = [
        {"params": [layer.weight for layer in layers], "weight_decay": decay},
        {"params": [layer.bias for layer in layers], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate)


def mix_pair_losses(weight: Tensor, offline: Tensor, online: Tensor) -> Tensor:
    """(B,) weight and losses of the two pairs -> (B,)."""
    return weight * offline + (1 - weight) * online


def best_and_worst(texts: list[str], rewards: list[float]) -> tuple[str, str] | None:
    """The first of the best answers and the first of the worst; None if all have the same reward."""
    best, worst = max(rewards), min(rewards)
    return (texts[rewards.index(best)], texts[rewards.index(worst)]) if best > worst else None


class Config(Strict):
    answers: int = param(8, "Answers sampled for each online pair.", title="Answers", ge=2, le=64)
    temperature: float = param(1.0, "Sampling temperature.", title="Temperature", advanced=True, gt=0, le=10)
    rounds: int = param(
        3, "Number of rounds: in each round, every row is drawn again, and the reference becomes the policy.", title="Rounds", ge=1, le=100
    )
    meta_rate: float = param(0.005, "Learning rate of the meta-learner.", title="Meta learning rate", ge=0, le=1)
    meta_decay: float = param(1e-4, "Weight decay of the meta-learner.", advanced=True, ge=0, le=1)
    meta_every: int = param(8, "Batches between two steps of the meta-learner.", title="Meta step every", advanced=True, ge=1)


class MetaAPO(Method):
    card = Card(
        name="metaapo",
        title="Meta-weighted online sampling",
        arxiv="2509.23371",
        system="MetaAPO",
        base="dpo",
        provenance="code",
        source="junming-yang/MetaAPO: meta_learner.py, loss.py, meta_dpo_trainer.py, cli/sample.py",
        fit="core",
        idea="Let a tiny network decide, from how well an offline pair is already fitted, whether to sample a fresh pair and how to weight the two.",
        formula=(
            r"s = \log \sigma(\Delta_{off})",
            r"w = h_\phi(s) = \sigma\left(W_2 \tanh(W_1 s + b_1) + b_2\right)",
            r"L = w\, \ell_{off} + (1 - w)\, \ell_{on}",
            r"\frac{\partial L}{\partial w} = \ell_{off} - \ell_{on}",
        ),
        departures=(
            "Rounds are parts of one run: a row is drawn when it is first visited; the authors' code samples for all rows between rounds.",
            "The task's verifier replaces the reward model.",
            "Rows without an online pair train on their offline one, as in the paper; the released script drops them.",
            "The SimPO variant is not implemented.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "reads", "pair_loss": "maps"}
    trains = frozenset({"dpo"})
    owns = frozenset({"pair loss", "reference"})
    excludes = {
        "ipo": "its weight mixes losses that have the scale of log-odds",
        "rlhi": "rlhi pairs express a user's preferences, so no row has a known correct answer and new answers cannot be ranked",
    }
    cautions = {
        "sail": "tokens are weighted only in the offline pairs, not in the sampled ones",
        "ipo-safe": "only the offline pairs are cut, not the sampled ones",
    }

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.learner = MetaLearner()
        self.optimiser = meta_optimiser(self.learner, self.config.meta_rate, self.config.meta_decay)
        self.buffer: list[Tensor] = []  # (3, K) of each batch since its last step: s, offline and online loss
        self.batches = 0
        self.drawn: dict[int, tuple[int, str, str]] = {}  # row -> round, its online pair; empty texts: none
        self.examples: list[Example | None] = []
        self.starts: list[int] = [1]

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.starts = stage_starts(run.training.max_steps, self.config.rounds)

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        """Stores the examples in row order."""
        self.examples = pair_rows.examples_of(rows, run)
        if not any(self.examples):
            fix = "give the rows a reference, or let the task sample the pairs"
            raise SpecError([Problem("methods", "metaapo", "no row says what a right answer is, so new answers cannot be ranked", fix)])
        return rows

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        gap = batch.reduce(batch.chosen_logprobs - batch.chosen_reference, batch.chosen_mask)
        gap = gap - batch.reduce(batch.rejected_logprobs - batch.rejected_reference, batch.rejected_mask)
        fit = logsigmoid(gap.detach()).float().cpu()
        with torch.no_grad():
            weight = self.learner(fit)
        self.draw(batch, weight)
        offline: Tensor = base(score)
        places = [place for place, row in enumerate(batch.indices) if row in self.drawn and self.drawn[row][1]]
        online = offline.detach().clone()
        losses = offline
        if places:
            found = base(batch.beta * self.online_gap(batch, places))
            online[places] = found.detach()
            both = mix_pair_losses(weight[places].to(found), offline[places], found)
            losses = offline.index_copy(0, torch.tensor(places, device=offline.device), both)
        self.report(batch, fit, weight, offline, online, places)
        self.learn(torch.stack([fit, offline.detach().float().cpu(), online.float().cpu()])[:, places])
        return losses

    def draw(self, batch: "PairBatch", weight: Tensor) -> None:
        """For rows seen for the first time in this round, decides from the weight which ones get an online pair."""
        current = stage_of(batch.step, self.starts)
        new = [place for place, row in enumerate(batch.indices) if row < len(self.examples) and self.drawn.get(row, (-1,))[0] != current]
        wanted = []
        for place in new:
            row = batch.indices[place]
            self.drawn[row] = (current, "", "")
            if self.examples[row] is not None and self.run.rng("metaapo", current, row).random() > weight[place]:
                wanted.append(row)
        if wanted:
            self.sample(wanted, current)

    def sample(self, rows: list[int], current: int) -> None:
        each, examples = self.config.answers, [example for row in rows if (example := self.examples[row]) is not None]
        asked = [example for example in examples for _ in range(each)]
        made = self.run.sample(asked, self.config.temperature, ("metaapo", current, *rows))
        texts = [completion.text for completion in made]
        worth = [self.run.score(example, text) for example, text in zip(asked, texts, strict=True)]
        for place, row in enumerate(rows):
            some = slice(place * each, (place + 1) * each)
            self.drawn[row] = (current, *(best_and_worst(texts[some], worth[some]) or ("", "")))
        self.log("answers_sampled", float(len(asked)))

    def online_gap(self, batch: "PairBatch", places: list[int]) -> Tensor:
        """(K,) Delta of the online pairs, with gradient."""
        rows = []
        for place in places:
            _, best, worst = self.drawn[batch.indices[place]]
            rows.append(
                {"prompt": batch.rows[place]["prompt"], "chosen": pair_rows.to_answer_messages(best), "rejected": pair_rows.to_answer_messages(worst)}
            )
        return pair_rows.compute_side_log_ratios(self.run, rows, "chosen") - pair_rows.compute_side_log_ratios(self.run, rows, "rejected")

    def learn(self, rows: Tensor) -> None:
        """Every few batches: one step of the meta-learner on the buffered pairs."""
        self.buffer.append(rows)
        self.batches += 1
        if self.batches % self.config.meta_every:
            return
        fit, offline, online = torch.cat(self.buffer, 1)
        self.buffer = []
        if not len(fit):
            return
        with torch.enable_grad():
            loss = mix_pair_losses(self.learner(fit), offline, online).mean()
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.log("meta_loss", loss)

    def report(self, batch: "PairBatch", fit: Tensor, weight: Tensor, offline: Tensor, online: Tensor, places: list[int]) -> None:
        self.log("fit", fit.mean())
        self.log("offline_weight", weight.mean())
        self.log_histogram("weights", weight, 0.0, 1.0)
        self.log("offline_loss", offline.mean())
        if places:
            self.log("online_loss", online[places].mean())
        drawn = torch.zeros(len(batch.rows))
        drawn[places] = 1.0
        self.log("online_share", drawn.mean())
        flipped = torch.tensor([bool(value) for value in batch.column("flipped", False)])
        for name, which in (("flipped", flipped), ("clean", ~flipped)):
            if flipped.any() and which.any():
                self.log(f"online_share_{name}", drawn[which].mean())
                self.log(f"offline_weight_{name}", weight[which].mean())
        with torch.no_grad():
            for place, value in enumerate(self.learner(torch.tensor(CURVE))):
                self.log(f"curve/{place:02d}", value)

    def reference(self, step: int, policy: Any, reference: Any) -> bool:
        if step not in self.starts[1:]:
            return False
        reference.load_state_dict(policy.state_dict())
        return True

    def state(self) -> dict[str, Any]:
        return {
            "learner": self.learner.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "buffer": list(self.buffer),
            "batches": self.batches,
            "drawn": {row: list(pair) for row, pair in self.drawn.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.buffer, self.batches = list(state["buffer"]), state["batches"]
        self.drawn = {int(row): (int(pair[0]), str(pair[1]), str(pair[2])) for row, pair in state["drawn"].items()}

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        kinds = {"": "all pairs", "_flipped": "flipped pairs", "_clean": "clean pairs"}
        shares = tuple(Series(f"metaapo/online_share{name}", label) for name, label in kinds.items())
        curve = tuple(Series(f"metaapo/curve/{place:02d}", f"h({value:g})") for place, value in enumerate(CURVE))
        return (
            Panel("Pairs with an additional online pair", shares, help="Share of the batch."),
            Panel("Loss of offline and online pairs", (Series("metaapo/offline_loss", "offline"), Series("metaapo/online_loss", "online"))),
            Panel("The meta-learner", (*curve, Series("metaapo/offline_weight", "mean weight", dashed=True)), help="h at three values of s."),
            Panel("Weights of the offline pairs", (Series("metaapo/weights"),), "histogram", low=0.0, high=1.0),
        )
