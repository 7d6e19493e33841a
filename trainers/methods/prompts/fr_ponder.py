"""FR-Ponder: a small controller decides how long a frozen policy ponders before it answers (arXiv 2509.24238).

z_0 is the hidden state of a layer at the last position of the prompt. At step k the controller continues with probability f(z_k), which adds
alpha h to the state, or halts; after K steps it halts. The answer is decoded from the steered state: the sum of what was added stays on the last
position of the prompt and on every token written after it. h is the normalised sum over questions of h+ - h-: the state at the end of a question
that asks for reasoning minus that at the end of one that asks for the answer at once. Held-out answers, and all that this run samples outside its
rollouts, ponder while f(z_k) > tau.

R = reward - c k / K, the base's group advantages A on it, and J = mean_i A_i sum_k log Bernoulli(a_ik; f(z_ik)). Only the controller is trained, with
an optimiser of its own; the policy's gradients are dropped. It differs from the base in what is trained. The controller is kept in the checkpoints;
the exported policy is the one that the run started from.

``contrast`` prompts: the paper's two phrases before the question. working: the question followed by the first half of the gold working, or by an
empty one; for policies, such as the built-in one, that were never shown such phrases.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.tasks.answers import END_THINK, THINK, write_answer
from trainers.texts.spans import thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.tasks.base import Example

REASONING, AT_ONCE = "Let's think step by step...", "The answer is:"
WIDTH = 64  # of the controller's hidden layer


def normalise_differences(differences: Tensor) -> Tensor:
    """(N, D) h+ - h- of each question -> (D,): their sum, of length 1. Zeros where they cancel out."""
    total = differences.sum(0)
    return total / total.norm().clamp(min=1e-12)


def steer_state(state: Tensor, direction: Tensor, steps: Tensor | int, alpha: float) -> Tensor:
    """(B, D), (D,), (B,) -> (B, D): the state after so many steps."""
    count = torch.as_tensor(steps, dtype=state.dtype, device=state.device)
    return state + alpha * count[..., None] * direction


def sum_action_logprobs(logits: Tensor, steps: Tensor) -> Tensor:
    """(B, K) logits of continuing at step 0 to K - 1, (B,) steps taken -> (B,): log-probability of having continued so often and halted then."""
    place = torch.arange(logits.shape[1], device=logits.device)
    goes_on, halts = place < steps[:, None], place == steps[:, None]  # no decision is left after K steps
    zero = logits.new_zeros(())
    return (torch.where(goes_on, nn.functional.logsigmoid(logits), zero) + torch.where(halts, nn.functional.logsigmoid(-logits), zero)).sum(1)


def charge_steps(rewards: Tensor, steps: Tensor, most: int, cost: float) -> Tensor:
    """(B,), (B,) -> (B,): R - c k / K."""
    return rewards - cost * steps / most


class Controller(nn.Module):
    """Probability of pondering on from a state: one hidden layer on the normalised state."""

    def __init__(self, size: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (...): logit of going on."""
        logits: Tensor = self.layers(states.float())[..., 0]
        return logits


class Config(Strict):
    steps: int = param(4, "Most steps of pondering (our value).", title="Most steps (K)", ge=1, le=64)
    alpha: float = param(0.5, "Length of one step, in units of the hidden state (our value).", title="Step length (alpha)", gt=0, le=100)
    cost: float = param(0.2, "Reward taken for pondering all K steps (our value).", title="Cost (c)", ge=0, le=10)
    tau: float = param(0.5, "Outside the rollouts: ponder while the controller's probability is above this.", title="Threshold (tau)", ge=0, le=1)
    layer: float = param(0.5, "Depth of the layer whose output is steered, as a share of all layers.", title="Layer", gt=0, le=1)
    contrast: Literal["prompts", "working"] = param(
        "prompts", "prompts: phrases before the question (the paper's). working: the gold working, begun or empty, after it.", title="Contrast"
    )
    questions: int = param(64, "Questions that the steering vector is the mean of.", title="Questions", ge=1, le=10_000, advanced=True)
    learning_rate: float = param(3e-3, "Learning rate of the controller.", title="Controller's learning rate", gt=0, le=1)


class FRPonder(Method):
    card = Card(
        name="fr-ponder",
        title="Pondering in latent space",
        arxiv="2509.24238",
        system="FR-Ponder",
        base="grpo",
        provenance="abstract",
        source="abstract; steering vector and step from a review and a figure's caption",
        fit="variant",
        idea="A small controller steers a frozen policy's hidden state towards reasoning, for as many steps as the question needs.",
        formula=(
            r"h = \frac{\sum_i (h^+_i - h^-_i)}{\lVert \sum_i (h^+_i - h^-_i) \rVert_2}, \quad z_{k+1} = z_k + \alpha h",
            r"R = R_{task} - c\, k / K",
            r"J(\phi) = \mathrm{mean}_i\, A_i \sum_k \log \mathrm{Bernoulli}(a_{i,k}; f_\phi(z_{i,k}))",
        ),
        reading="the reward, K, c and alpha, the layer, that steering stays on while the answer is written, and no curriculum",
        departures=(
            "Prompts come in the run's order; the curriculum from easy to mixed ones is not implemented.",
            "Shown log-probabilities of tokens are those of the policy without steering.",
            "The exported policy has no controller; it is in the run's checkpoints.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "maps"}
    owns = frozenset({"rollout", "policy loss"})
    requires = (Requirement("training.num_iterations", "equals", 1, "the controller's gradient holds for the batch it has just sampled"),)

    def prepare(self, run: "RunContext") -> None:
        if run.task.max_turns > 1:
            raise SpecError(
                [Problem("task.name", run.task.name, "it has several turns and pondering is before an answer", "choose a task of one turn")]
            )
        self.run = run
        layers = run.model.get_decoder().layers
        self.draws: torch.Generator | None = None  # of a rollout; None: halt by the threshold
        self.found = (torch.zeros(0), torch.zeros(0))  # states (B, D) and steps (B,) of the batch that is being sampled
        self.controller = Controller(run.model.config.get_text_config().hidden_size, run.seed).to(run.device)
        self.optimizer = torch.optim.Adam(self.controller.parameters(), lr=self.config.learning_rate)
        self.direction = self.find_direction(layers[self.number_layer(len(layers))])
        layers[self.number_layer(len(layers))].register_forward_hook(self.ponder, with_kwargs=True)

    def number_layer(self, count: int) -> int:
        return max(0, round(self.config.layer * count) - 1)

    @torch.no_grad()
    def find_direction(self, layer: Any) -> Tensor:
        """(D,): the steering vector, of training questions."""
        spec = self.run.attempt.spec
        examples = self.run.task.examples("train", self.config.questions, spec.seed, spec.task.difficulty)
        pairs = [self.contrast(example) for example in examples]
        high, low = (self.read_last_states(layer, [pair[side] for pair in pairs]) for side in (0, 1))
        return normalise_differences(high - low)

    def contrast(self, example: "Example") -> tuple[list[int], list[int]]:
        """Token ids up to the position where the policy is to reason, and where it is to answer at once."""
        run, prompt = self.run, example.prompt
        if self.config.contrast == "prompts":
            asked = [[*prompt[:-1], Message(prompt[-1].role, f"{phrase} {prompt[-1].content}")] for phrase in (REASONING, AT_ONCE)]
            high, low = run.prompt_ids(asked)
            return high, low
        (before,) = run.prompt_ids([prompt])
        gold = run.task.gold(example)
        start, end = thought_span(gold) or (0, 0)
        begun, empty = THINK + gold[start : start + (end - start) // 2], write_answer([], "")
        return [*before, *run.completion_ids(begun, end=False)], [*before, *run.completion_ids(empty.partition(END_THINK)[0] + END_THINK, end=False)]

    def read_last_states(self, layer: Any, rows: Sequence[list[int]]) -> Tensor:
        """(N, D): the layer's output at the last token of each row."""
        seen: list[Tensor] = []
        hook = layer.register_forward_hook(lambda module, inputs, output: seen.append(read_hidden(output)[0, -1].float()))
        try:
            for ids in rows:
                self.run.model(input_ids=torch.tensor([ids], device=self.run.device), use_cache=False)
        finally:
            hook.remove()
        return torch.stack(seen)

    def ponder(self, module: Any, inputs: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """A forward hook on the layer: while ``generate`` runs, steers the last position of the prompt and all positions after it."""
        hidden = read_hidden(output)  # (B, S, D)
        if kwargs.get("past_key_values") is None:
            return output  # the loss's forward pass
        if hidden.shape[1] > 1:  # the prompt; what is written comes a token at a time
            states = hidden[:, -1].detach().float()
            self.found = (states, self.count_steps(states))
        steered = hidden.clone()
        steered[:, -1] = steer_state(hidden[:, -1], self.direction.to(hidden.dtype), self.found[1], self.config.alpha)
        return (steered, *output[1:]) if isinstance(output, tuple) else steered

    @torch.no_grad()
    def count_steps(self, states: Tensor) -> Tensor:
        """(B, D) -> (B,): how long each row ponders."""
        steps = torch.zeros(len(states), dtype=torch.long, device=states.device)
        goes_on = torch.ones_like(steps, dtype=torch.bool)
        for _ in range(self.config.steps):
            wants = torch.sigmoid(self.controller(steer_state(states, self.direction, steps, self.config.alpha)))
            drawn = self.config.tau if self.draws is None else torch.rand(len(states), generator=self.draws).to(states.device)
            goes_on = goes_on & (wants > drawn)
            steps = steps + goes_on
        return steps

    @contextmanager
    def sampled_halts(self, seed: int) -> Iterator[None]:
        """Inside, the controller's decisions are drawn from its probabilities."""
        self.draws = torch.Generator().manual_seed(seed)
        try:
            yield
        finally:
            self.draws = None

    def rollout(self, session: "Session") -> "list[Completion]":
        with self.sampled_halts(session.rng.randrange(2**31)):
            made = session.complete()
        states, steps = self.found
        for one, state, count in zip(made, states.tolist(), steps.tolist(), strict=True):
            one.notes.update(ponder=count, state=state)
        return made

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        steps = rewards.new_tensor([note["ponder"] for note in batch.notes])
        self.log("steps", steps.mean())
        for name, rows in (("right", batch.correct), ("wrong", ~batch.correct)):
            if rows.any():
                self.log(f"steps_{name}", steps[rows].mean())
        for count in range(self.config.steps + 1):
            self.log(f"count/{count:02d}", (steps == count).float().mean())
        return charge_steps(rewards, steps, self.config.steps, self.config.cost)

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        """-J of the micro-batch, with a gradient for the controller alone."""
        notes = batch.of(batch.rollout.notes)
        states = batch.logprobs.new_tensor([note["state"] for note in notes]).float()
        steps = torch.tensor([note["ponder"] for note in notes], device=states.device)
        seen = torch.stack([steer_state(states, self.direction, k, self.config.alpha) for k in range(self.config.steps)], 1)  # (B, K, D)
        advantages = batch.advantages if batch.advantages.dim() == 1 else (batch.advantages * batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)
        return -(advantages * sum_action_logprobs(self.controller(seen), steps)).mean()

    def gradients(self, model: Any) -> None:
        """The controller takes its step; the policy, whose gradients are dropped, takes none."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        for parameter in model.parameters():
            parameter.grad = None

    def state(self) -> dict[str, Any]:
        return {"controller": self.controller.state_dict(), "optimizer": self.optimizer.state_dict(), "direction": self.direction}

    def restore(self, state: dict[str, Any]) -> None:
        self.controller.load_state_dict(state["controller"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.direction = state["direction"].to(self.run.device)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Steps of pondering",
                (
                    Series("fr-ponder/steps", "all answers"),
                    Series("fr-ponder/steps_right", "right answers", dashed=True),
                    Series("fr-ponder/steps_wrong", "wrong answers", dashed=True),
                ),
                unit="steps",
            ),
            Panel("Answers by steps of pondering", tuple(Series(f"fr-ponder/count/{count:02d}", f"{count} steps") for count in range(5)), "stack"),
        )


def read_hidden(output: Any) -> Tensor:
    """(B, S, D) of a decoder layer's output, which is a tuple in some versions of transformers."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden
