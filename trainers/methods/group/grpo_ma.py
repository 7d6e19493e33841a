"""GRPO-MA: several answers for each thought (arXiv 2509.24494), our interpretation of the abstract and a second-hand note.

K thoughts are sampled for a prompt, each up to its closing tag, and then M answers for each thought. V_i is the mean reward of thought i's answers. A
thought's advantage is V_i standardised over the K thoughts; an answer's advantage is its reward standardised over all K M answers. Jclip(o, A) is the
mean over a segment's tokens of the clipped surrogate, and J = (1/K) sum_i Jclip(thought_i, A_i) + (1/(K M)) sum_ij Jclip(answer_ij, A_ij). In GRPO, a
thought is judged by a single answer, which may be lucky; here, the part of its advantage's variance that comes from answers falls as 1/M. M = 1 is
GRPO with each segment averaged separately. The scope of the standardisation of answers is our interpretation.

In the lab, a thought is the text up to and including </think>, and a group has K M rows: K = group size / M. A thought's tokens occur in all M of its
rows, but only in the loss of the first, with M times the weight of a row; this makes the sum above exact, however the base averages. A thought that
ends without its tag (end token, length) is its own and only answer, copied M times; the copies are masked, so a task whose completions have no
thoughts (kb) only loses diversity. Standard deviations are sample ones plus 1e-4, as in TRL; with K = 1 thoughts have no advantage. The clip range is
the base's. The paper's T4A4 needs groups of 16. A step takes two generations, one of K thoughts and one of K M answers, instead of one of K M: about
1.15 times a GRPO step on the tiny policy.
"""

from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.maths.advantages import EPSILON, group_std, z_score
from trainers.maths.reduce import masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.answers import END_THINK

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion


def thought_values(rewards: Tensor, answers: int) -> Tensor:
    """(B,) -> (B / M,): mean reward of each thought's answers, which are adjacent rows."""
    return rewards.view(-1, answers).mean(1)


def segment_advantages(rewards: Tensor, group_size: int, answers: int, epsilon: float = EPSILON) -> tuple[Tensor, Tensor]:
    """(B,) -> (B,), (B,): advantage of each row's thought and of its answer."""
    thoughts = z_score(thought_values(rewards, answers), group_size // answers, epsilon)
    return thoughts.repeat_interleave(answers), z_score(rewards, group_size, epsilon)


def compute_clipped_surrogate(ratio: Tensor, advantages: Tensor, epsilon: tuple[float, float]) -> Tensor:
    """(B, T), (B, T) or (B, 1) -> (B, T): the surrogate to be maximised."""
    return torch.minimum(ratio * advantages, ratio.clamp(1 - epsilon[0], 1 + epsilon[1]) * advantages)


def segment_objective(surrogate: Tensor, mask: Tensor, thought: Tensor, answers: int) -> Tensor:
    """(B, T) each, ``thought`` is 1 on its tokens -> scalar J; a thought is in the mask of only one of its M rows."""
    own, rest = mask * thought, mask * (1 - thought)
    return (answers * masked_row_mean(surrogate, own) + masked_row_mean(surrogate, rest)).mean()


def thought_tokens(counts: list[int], like: Tensor) -> Tensor:
    """B counts -> (B, T) as ``like``: 1 on the first tokens of each row, which are its thought."""
    places = torch.arange(like.shape[1], device=like.device)
    return (places < torch.tensor(counts, device=like.device)[:, None]).to(like.dtype)


class Config(Strict):
    answers: int = param(2, "Answers per thought; the group size divided by this is the number of thoughts.", title="Answers (M)", ge=1, le=64)


class GRPOMA(Method):
    card = Card(
        name="grpo-ma",
        title="GRPO with multiple answers",
        arxiv="2509.24494",
        system="GRPO-MA",
        base="grpo",
        provenance="abstract",
        source="abstract and a secondary note for the notation",
        fit="core",
        idea="Judge a thought by several answers instead of one, so that its advantage depends less on luck; answers get their own advantage.",
        formula=(
            r"V_i = \frac{1}{M}\sum_j R_{ij}, \quad A_i = \frac{V_i - \mathrm{mean}(V)}{\mathrm{std}(V)}",
            r"A_{ij} = \frac{R_{ij} - \mathrm{mean}(R)}{\mathrm{std}(R)}",
            r"J = \frac{1}{K}\sum_i J_{clip}(th_i, A_i) + \frac{1}{K M}\sum_{ij} J_{clip}(a_{ij}, A_{ij})",
        ),
        reading="the paper was not read; answers are standardised over the whole group, and thoughts end with the closing tag",
        departures=("A thought that ends without its tag is its own and only answer.",),
        claim=("grad_norm", "lower"),
    )
    Config = Config
    roles = {"advantages": "makes"}
    owns = frozenset({"rollout", "advantages", "policy loss"})

    def prepare(self, run: "RunContext") -> None:
        group = run.training.num_generations
        if group % self.config.answers:
            fix = "make the group size a multiple of the answers to a thought"
            raise SpecError([Problem("training.num_generations", group, f"grpo-ma: is not a multiple of {self.config.answers} answers", fix)])

    def rollout(self, session: "Session") -> "list[Completion]":
        every = self.config.answers
        thoughts = session.complete(session.prompts[::every], session.examples[::every], stop=(END_THINK,))
        closed = [END_THINK in made.text and len(made.ids) < session.max_tokens for made in thoughts]
        self.log("closed_thoughts", sum(closed) / len(closed))
        going = [row for row in range(len(session.prompts)) if closed[row // every]]
        prompts, examples = [session.prompts[row] for row in going], [session.examples[row] for row in going]
        found = session.complete(prompts, examples, prefixes=[thoughts[row // every].ids for row in going]) if going else []
        answered = dict(zip(going, found, strict=True))
        return [join_thought_and_answer(thoughts[row // every], answered.get(row), first=row % every == 0) for row in range(len(session.prompts))]

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        thoughts, answers = segment_advantages(batch.shaped, batch.group_size, self.config.answers)
        self.report(batch)
        thought = thought_tokens([note["thought_tokens"] for note in batch.notes], batch.mask)
        return (thought * thoughts[:, None] + (1 - thought) * answers[:, None]) * batch.mask

    def report(self, batch: "RolloutBatch") -> None:
        every = self.config.answers
        values = thought_values(batch.shaped, every)
        self.log("thought_spread", group_std(values, batch.group_size // every).mean())
        self.log("answer_spread", group_std(batch.shaped, every).mean())
        self.log("split_thoughts", (batch.shaped.view(-1, every).amax(1) > batch.shaped.view(-1, every).amin(1)).float().mean())

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        surrogate = compute_clipped_surrogate(torch.exp(batch.logprobs - batch.old_logprobs), batch.token_advantages(), batch.epsilon)
        counts = [note["thought_tokens"] for note in batch.of(batch.rollout.notes)]
        return -segment_objective(surrogate, batch.mask, thought_tokens(counts, batch.mask), self.config.answers)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Reward spread",
                (Series("grpo-ma/thought_spread", "between thoughts"), Series("grpo-ma/answer_spread", "within a thought")),
                help="Standard deviation between the mean rewards of a prompt's thoughts, and between the rewards of one thought's answers.",
            ),
            Panel(
                "Thoughts",
                (Series("grpo-ma/closed_thoughts", "closed with a tag"), Series("grpo-ma/split_thoughts", "answers differ in reward")),
            ),
            Panel("Gradient norm", (Series("grad_norm"),), help="Several answers per thought should reduce spikes."),
        )


def join_thought_and_answer(thought: "Completion", answer: "Completion | None", first: bool) -> "Completion":
    """One row of the group: the thought, in the loss of its first row only, and its answer."""
    made = deepcopy(thought) if answer is None else answer
    count = len(thought.ids)
    made.mask[:count] = thought.mask if first else [0] * count
    made.logprobs[:count], made.entropies[:count] = thought.logprobs, thought.entropies
    made.notes = {"thought_tokens": count}
    return made
