"""CE-PO: pays for answers that really depend on the working, and for working that really depends on the prompt (arXiv 2509.23095).

Z prompt, X working, Y answer, e input embeddings. g_ZX = d log p(X|Z) / d e(Z) and g_XY = d log p(Y|Z, X) / d e(X). The same gradients g' of a
counterfactual twin hold what is a nuisance: g~ = g - <g, g'> / (|g'|^2 + eps) g', s = |g~| / (|g| + eps) in [0, 1], C = sqrt(s_ZX s_XY). The reward
is the power mean of accuracy a and coherence C, R = (w a^p + (1 - w) C^p)^(1/p): p = 1 is the mean, p -> -inf the smaller, p -> inf the larger.

Our reading: the abstract alone was read, so the gradients, the projection and the defaults of w and p are ours. The twin is the completion with the
tokens of its own working in random order: it has the same length, so that gradients can be compared, and what its gradients share with the real ones
is length, position and vocabulary, not reasoning. The direct influence of the prompt on the answer is not taken off. a is the reward so far, cut to
[0, 1]; a floor of 1e-3 under a and C keeps p < 0 finite. Without working or answer C = 0. Only ``share`` of the groups is measured, all rows of each;
the others keep their reward. Step time: two forward and four backward passes over the measured rows.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from trainers.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.spans import answer_span, thought_span
from trainers.tasks.answers import ANSWER

if TYPE_CHECKING:
    from trainers.batch import RolloutBatch
    from trainers.methods.context import RunContext

EPSILON, FLOOR, NEAR_ZERO = 1e-8, 1e-3, 1e-4


def hardened(gradient: Tensor, twin: Tensor) -> Tensor:
    """(B, K) each -> (B, K): the part of every row that its twin's does not explain."""
    along = (gradient * twin).sum(1, keepdim=True) / (twin.square().sum(1, keepdim=True) + EPSILON)
    return gradient - along * twin


def share_left(gradient: Tensor, twin: Tensor) -> Tensor:
    """(B, K) each -> (B,) s in [0, 1]; 0 for a gradient of nothing but zeros."""
    scale = gradient.abs().amax(1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)  # gradients of sure answers are tiny
    twins = twin.abs().amax(1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
    left = hardened(gradient / scale, twin / twins)
    return (left.norm(dim=1) / ((gradient / scale).norm(dim=1) + EPSILON)).clamp(0.0, 1.0)


def power_mean(accuracy: Tensor, coherence: Tensor, weight: float, power: float) -> Tensor:
    """(B,), (B,) in [0, 1] -> (B,): R; near p = 0 the weighted geometric mean, its limit."""
    if power == 1.0:
        return weight * accuracy + (1 - weight) * coherence
    a, c = accuracy.double().clamp(min=FLOOR), coherence.double().clamp(min=FLOOR)
    if abs(power) < NEAR_ZERO:
        return torch.exp(weight * a.log() + (1 - weight) * c.log()).to(accuracy)
    logs = torch.stack([math.log(max(weight, 1e-30)) + power * a.log(), math.log(max(1 - weight, 1e-30)) + power * c.log()])
    return torch.exp(torch.logsumexp(logs, 0) / power).to(accuracy)


def influences(model: Any, ids: Tensor, there: Tensor, prompt: Tensor, working: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
    """(B, L) ids, attention and the three parts as masks -> (B, L * D) g_ZX and g_XY. Rows do not touch each other, so one pass serves all."""
    with torch.enable_grad():
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        logits = model(inputs_embeds=embedded, attention_mask=there, use_cache=False).logits[:, :-1].float()
        chosen = torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None])[..., 0]  # (B, L - 1)
        (to_prompt,) = torch.autograd.grad((chosen * working[:, 1:]).sum(), embedded, retain_graph=True)
        (to_working,) = torch.autograd.grad((chosen * answer[:, 1:]).sum(), embedded)
    return (to_prompt * prompt[..., None]).flatten(1).float(), (to_working * working[..., None]).flatten(1).float()


class Config(Strict):
    weight: float = param(0.5, "Weight of accuracy against coherence; 1 is accuracy alone.", title="Accuracy weight (w)", ge=0, le=1)
    power: float = param(1.0, "Exponent of the mean: 1 adds up, negative values ask for both.", title="Exponent (p)", ge=-64, le=64)
    share: float = param(0.5, "Share of the groups whose coherence is measured.", gt=0, le=1)


class CEPO(Method):
    card = Card(
        name="ce-po",
        title="Causally enhanced rewards",
        arxiv="2509.23095",
        system="CE-PO",
        base="grpo",
        provenance="abstract",
        source="abstract and a secondary page",
        fit="core",
        idea="Reward an answer also for following from its working, and the working for following from the prompt, as input gradients tell.",
        formula=(
            r"\tilde g = g - \frac{\langle g, g' \rangle}{\|g'\|^2 + \epsilon} g'",
            r"C = \sqrt{s_{ZX}\, s_{XY}}, \quad s = \frac{\|\tilde g\|}{\|g\| + \epsilon}",
            r"R = \left(w a^p + (1 - w) C^p\right)^{1/p}",
        ),
        reading="the abstract names the parts; gradients, twin, projection and defaults are ours",
        claim=("ce-po/coherence", "higher"),
    )
    Config = Config

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        rows = self.measured(batch)
        accuracy = rewards[rows].clamp(0.0, 1.0)
        coherence = self.coherence(batch, rows.tolist()).to(rewards)
        self.report(batch, rows, coherence)
        fused = rewards.clone()
        fused[rows] = power_mean(accuracy, coherence, self.config.weight, self.config.power)
        return fused

    def measured(self, batch: "RolloutBatch") -> Tensor:
        """(M,) rows of the groups whose coherence is measured: at least one group."""
        groups = len(batch.texts) // batch.group_size
        count = max(1, round(self.config.share * groups))
        chosen = sorted(self.run.rng(self.card.name, "groups", batch.step).sample(range(groups), count))
        rows = torch.arange(len(batch.texts), device=batch.mask.device).view(groups, -1)
        return rows[chosen].flatten()

    def coherence(self, batch: "RolloutBatch", rows: list[int]) -> Tensor:
        """(M,) C of the given rows."""
        ids, twins, there, prompt, working, answer = self.parts(batch, rows)
        real = influences(self.run.model, ids, there, prompt, working, answer)
        other = influences(self.run.model, twins, there, prompt, working, answer)
        to_prompt, to_working = (share_left(one, twin) for one, twin in zip(real, other, strict=True))
        complete = (working.sum(1) > 0) & (answer.sum(1) > 0)
        self.log("prompt_to_working", to_prompt.mean())
        self.log("working_to_answer", to_working.mean())
        return torch.sqrt(to_prompt * to_working) * complete

    def parts(self, batch: "RolloutBatch", rows: list[int]) -> tuple[Tensor, ...]:
        """(M, L) ids, twin's ids, attention, and masks of prompt, working and answer; padded on the right."""
        rng, columns = self.run.rng(self.card.name, "twins", batch.step), list[list[Tensor]]()
        for row in rows:
            head, kept = len(batch.prompt_ids[row]), int((batch.mask[row].nonzero().max() + 1) if batch.mask[row].any() else 0)
            ids = torch.cat([torch.tensor(batch.prompt_ids[row], device=batch.ids.device), batch.ids[row, :kept]])
            working = self.marked(batch, row, working_span(batch.texts[row]), head, kept)
            answer = self.marked(batch, row, answer_span(batch.texts[row]), head, kept)
            places = working.nonzero().flatten().tolist()
            twin = ids.clone()
            twin[places] = ids[rng.sample(places, len(places))]
            prompt = torch.zeros(len(ids), device=ids.device)
            prompt[:head] = 1.0
            columns.append([ids, twin, torch.ones_like(ids), prompt, working, answer])
        pads = (self.run.tokenizer.pad_token_id, self.run.tokenizer.pad_token_id, 0, 0.0, 0.0, 0.0)
        return tuple(
            pad_sequence(list(part), batch_first=True, padding_value=pad) for part, pad in zip(zip(*columns, strict=True), pads, strict=True)
        )

    def marked(self, batch: "RolloutBatch", row: int, span: tuple[int, int] | None, head: int, kept: int) -> Tensor:
        """(L,) float: the policy's tokens inside a span of the text, behind the prompt's ``head`` tokens."""
        marks = torch.zeros(head + kept, device=batch.mask.device)
        if span is not None:
            marks[head:] = (batch.span(row, *span) * batch.mask[row])[:kept]
        return marks

    def report(self, batch: "RolloutBatch", rows: Tensor, coherence: Tensor) -> None:
        right = batch.correct[rows]
        self.log("coherence", coherence.mean())
        self.log_histogram("coherence_of_answers", coherence, 0.0, 1.0)
        for name, chosen in (("right", right), ("wrong", ~right)):
            if chosen.any():
                self.log(f"coherence_{name}", coherence[chosen].mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Coherence",
                (
                    Series(f"{name}/coherence_right", "right answers"),
                    Series(f"{name}/coherence_wrong", "wrong answers"),
                    Series(f"{name}/prompt_to_working", "prompt to working", dashed=True),
                    Series(f"{name}/working_to_answer", "working to answer", dashed=True),
                ),
                help="Share of the input gradient that a shuffled working does not explain.",
            ),
            Panel("Coherence of the answers", (Series(f"{name}/coherence_of_answers"),), "histogram"),
        )


def working_span(text: str) -> tuple[int, int] | None:
    """The inside of <think>, or else all that stands before the answer: in a task of several turns, what the policy looked up."""
    thought, answer = thought_span(text), answer_span(text)
    if thought is not None or answer is None:
        return thought
    return 0, answer[0] - len(ANSWER)
