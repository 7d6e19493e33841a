"""GRPO-MA: several answers to each thought (arXiv 2509.24494), our reading of the abstract and a second-hand note.

K thoughts are sampled to a prompt, each up to its closing tag, and M answers to each thought. V_i = mean reward of thought i's answers; a thought's
advantage is V_i standardised over the K thoughts, an answer's its reward standardised over all K M answers. With Jclip(o, A) the mean over the
tokens of a segment of the clipped surrogate, J = (1/K) sum_i Jclip(thought_i, A_i) + (1/(K M)) sum_ij Jclip(answer_ij, A_ij). Differs from GRPO,
where a thought is judged by the luck of one answer: the part of its advantage's variance that is due to answers falls as 1/M. M = 1 is GRPO with
each segment averaged on its own. The scope of the answers' standardisation is our reading.

In the lab a thought is what stands before and with </think>, and the group holds K M rows: K = group size / M. A thought's tokens occur in all M of
its rows but are in the loss of the first only, where they weigh M times a row, which makes the sum above exact whatever the base's own averaging.
A thought that ends without its tag (end token, length) is its own and only answer, M times over; the copies are masked, so a task whose answers have
no thoughts (kb) only loses variety. Standard deviations are sample ones plus 1e-4 as in TRL; K = 1 gives thoughts no advantage. The clip range is the
base's. The paper's T4A4 needs groups of 16.
Two generations a step, one of K thoughts and one of K M answers, in place of one of K M: about x 1.15 of a GRPO step on the tiny policy.
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
    """(B,) -> (B / M,): mean reward of each thought's answers, which are neighbours."""
    return rewards.view(-1, answers).mean(1)


def segment_advantages(rewards: Tensor, group_size: int, answers: int, epsilon: float = EPSILON) -> tuple[Tensor, Tensor]:
    """(B,) -> (B,), (B,): advantage of each row's thought and of its answer."""
    thoughts = z_score(thought_values(rewards, answers), group_size // answers, epsilon)
    return thoughts.repeat_interleave(answers), z_score(rewards, group_size, epsilon)


def compute_clipped_surrogate(ratio: Tensor, advantages: Tensor, epsilon: tuple[float, float]) -> Tensor:
    """(B, T), (B, T) or (B, 1) -> (B, T): the surrogate to be maximised."""
    return torch.minimum(ratio * advantages, ratio.clamp(1 - epsilon[0], 1 + epsilon[1]) * advantages)


def segment_objective(surrogate: Tensor, mask: Tensor, thought: Tensor, answers: int) -> Tensor:
    """(B, T) each, ``thought`` 1 on its tokens -> scalar J: thoughts are in the mask of one of their M rows."""
    own, rest = mask * thought, mask * (1 - thought)
    return (answers * masked_row_mean(surrogate, own) + masked_row_mean(surrogate, rest)).mean()


def thought_tokens(counts: list[int], like: Tensor) -> Tensor:
    """B counts -> (B, T) as ``like``: 1 on the first tokens of each row, which are its thought."""
    places = torch.arange(like.shape[1], device=like.device)
    return (places < torch.tensor(counts, device=like.device)[:, None]).to(like.dtype)


class Config(Strict):
    answers: int = param(2, "Answers to each thought; the group size over this is the number of thoughts.", title="Answers (M)", ge=1, le=64)


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
        idea="Judge a thought by several answers instead of one, and give answers an advantage of their own: thoughts no longer pay for bad luck.",
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
                "Where the reward varies",
                (Series("grpo-ma/thought_spread", "between thoughts"), Series("grpo-ma/answer_spread", "among a thought's answers")),
                help="Standard deviation of the values of a prompt's thoughts, and of the rewards of one thought's answers.",
            ),
            Panel(
                "Thoughts",
                (Series("grpo-ma/closed_thoughts", "closed by their tag"), Series("grpo-ma/split_thoughts", "with unequal answers")),
            ),
            Panel("Gradient norm", (Series("grad_norm"),), help="Fewer spikes are what several answers are for."),
        )


def join_thought_and_answer(thought: "Completion", answer: "Completion | None", first: bool) -> "Completion":
    """A row of the group: the thought, in the loss of its first row only, and its answer."""
    made = deepcopy(thought) if answer is None else answer
    count = len(thought.ids)
    made.mask[:count] = thought.mask if first else [0] * count
    made.logprobs[:count], made.entropies[:count] = thought.logprobs, thought.entropies
    made.notes = {"thought_tokens": count}
    return made
