"""CE-PO: rewards answers that causally depend on the reasoning, and reasoning that causally depends on the prompt (arXiv 2509.23095).

Z is the prompt, X the reasoning, Y the answer. J_ZX = d log p(X|Z) / d e(Z) and J_XY = d log p(Y|Z, X) / d e(X); J_ZY is the same for Y and Z, minus
its projection on J_ZX * u, where u is the mean direction of J_XY. e are input embeddings; each J has shape positions x dimensions. Counterfactual
hardening: J~ = J - <J, J'> / |J'|^2 J', where J' belongs to a twin whose prompt (for ZX, ZY) or reasoning (for XY) is shuffled. The score of a
channel is s = sqrt(shape x size), rescaled to [0.005, 1]; shape is the share of J~'s energy in its first singular value, and size is |J~|^2 / |J|^2.
The reward is a power mean of four signals: accuracy with weight w, and the three channels with (1 - w) / 3 each. p = 1 is a weighted sum; p near 0
and below requires all signals to be high.

An earlier summary, written from the abstract, had s = |J~| / |J| without the shape and only two channels, and subtracted the direct one; the released
code has all three channels and rewards the direct one too. The authors' settings vary (w 0.6 to 0.8, p 0 to 1.3, one sample of the twin); 0.7 and 0.2
are among them. Step time: three forward and five backward passes over the measured rows, and a singular value decomposition for each channel.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.answers import ANSWER
from trainers.texts.spans import answer_span, thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

CHANNELS = ("prompt_to_working", "prompt_to_answer", "working_to_answer")
TINY, LEAST, NEAR_ZERO = 1e-12, 0.005, 1e-6


def harden_jacobian(jacobian: Tensor, twin: Tensor) -> Tensor:
    """(B, L, D) each -> (B, L, D): the component of each row's Jacobian that its twin's does not explain."""
    along = (jacobian * twin).sum((1, 2), keepdim=True) / twin.square().sum((1, 2), keepdim=True).clamp(min=TINY)
    return jacobian - along * twin


def scale_jacobian(jacobian: Tensor) -> Tensor:
    """(B, L, D) scaled to a largest entry of 1 in each row, because gradients of confident answers are too small to square. Scores do not depend on
    the scale.
    """
    largest = jacobian.abs().amax((1, 2), keepdim=True)
    return jacobian / torch.where(largest > 0, largest, 1.0)


def channel_score(jacobian: Tensor, twin: Tensor) -> Tensor:
    """(B, L, D) each, 0 where masked -> (B,) in [0.005, 1]."""
    jacobian = scale_jacobian(jacobian.double())
    left = harden_jacobian(jacobian, scale_jacobian(twin.double()))
    energy = left.square().sum((1, 2))
    shape = torch.linalg.svdvals(left)[:, 0].square() / energy.clamp(min=TINY)
    size = energy / jacobian.square().sum((1, 2)).clamp(min=TINY)
    return LEAST + (1 - LEAST) * (shape.clamp(0, 1) * size.clamp(0, 1)).sqrt().float()


def compute_direct_jacobian(to_prompt: Tensor, through: Tensor, to_working: Tensor) -> Tensor:
    """d Y / d Z, d X / d Z, d Y / d X, (B, L, D) each -> (B, L, D): the prompt's influence on the answer that does not go through the reasoning."""
    length = to_working.norm(dim=2, keepdim=True)
    there = (length > 0).to(length)
    way = (to_working / length.clamp(min=TINY)).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1.0)  # (B, 1, D)
    return harden_jacobian(to_prompt, scale_jacobian(through * way))


def power_mean(signals: Tensor, weights: Tensor, power: float) -> Tensor:
    """(S, B) in [0, 1], (S,) that sum to 1 -> (B,); near p = 0 it is the weighted geometric mean, the limit."""
    shares = weights.double()[:, None]
    if power == 1.0:
        return (shares * signals.double()).sum(0).to(signals)
    logs = signals.double().clamp(min=TINY).log()
    if abs(power) < NEAR_ZERO:
        return torch.exp((shares * logs).sum(0)).to(signals)
    return torch.exp(torch.logsumexp(shares.clamp(min=1e-300).log() + power * logs, 0) / power).to(signals)


@dataclass
class Parts:
    """(B, L) each, padded on the right: token ids, attention mask, and masks of the prompt, the reasoning and the answer."""

    ids: Tensor
    there: Tensor
    prompt: Tensor
    working: Tensor
    answer: Tensor


def compute_jacobians(model: Any, parts: Parts) -> tuple[Tensor, Tensor, Tensor]:
    """(B, L, D) d X / d Z, d Y / d Z and d Y / d X. Rows are independent, so one pass computes all of them."""
    with torch.enable_grad():
        embedded = model.get_input_embeddings()(parts.ids).detach().requires_grad_()
        logits = model(inputs_embeds=embedded, attention_mask=parts.there, use_cache=False).logits[:, :-1].float()
        chosen = torch.log_softmax(logits, -1).gather(2, parts.ids[:, 1:, None])[..., 0]  # (B, L - 1)
        (of_working,) = torch.autograd.grad((chosen * parts.working[:, 1:]).sum(), embedded, retain_graph=True)
        (of_answer,) = torch.autograd.grad((chosen * parts.answer[:, 1:]).sum(), embedded)
    prompt, working = parts.prompt[..., None], parts.working[..., None]
    return (of_working * prompt).float(), (of_answer * prompt).float(), (of_answer * working).float()


def shuffle_tokens(ids: Tensor, places: Tensor, fixed: Collection[int], rng: random.Random) -> Tensor:
    """(B, L) ids with the tokens at each row's ``places`` (B, L) in random order; ``fixed`` tokens stay in place."""
    twin = ids.clone()
    for row, marks in enumerate(places.bool().tolist()):
        free = [place for place, mark in enumerate(marks) if mark and int(ids[row, place]) not in fixed]
        twin[row, free] = ids[row, rng.sample(free, len(free))]
    return twin


class Config(Strict):
    weight: float = param(0.7, "Weight of accuracy against the three channels; 1 uses accuracy alone.", title="Accuracy weight (w)", ge=0, le=1)
    power: float = param(
        0.2,
        "Exponent of the power mean: 1 is a weighted sum; smaller values require all signals to be high at once.",
        title="Exponent (p)",
        ge=-64,
        le=64,
    )
    share: float = param(0.5, "Share of the groups whose coherence is measured.", gt=0, le=1)


class CEPO(Method):
    card = Card(
        name="ce-po",
        title="Causally enhanced rewards",
        arxiv="2509.23095",
        system="CE-PO",
        base="grpo",
        provenance="code",
        source="github XiangqiWang77/causalrl: reward_part/modi_signal.py (counterfactual Jacobians), reward_part/updated_server.py",
        fit="core",
        idea="Also reward an answer for depending on its reasoning, and the reasoning for depending on the prompt, measured with input gradients.",
        formula=(
            r"\tilde J = J - \frac{\langle J, J' \rangle}{\|J'\|^2} J'",
            r"s = \sqrt{\frac{\sigma_1^2(\tilde J)}{\sum_k \sigma_k^2(\tilde J)} \cdot \frac{\|\tilde J\|^2}{\|J\|^2}}",
            r"R = \left(w a^p + \frac{1 - w}{3}\sum_c s_c^p\right)^{1/p}",
        ),
        departures=(
            "Tokens are shuffled, not words, so that twins have the same length.",
            "Accuracy is the reward so far, clipped to [0, 1]; the authors' code uses BERTScore.",
            "Gradients are taken from the current policy; the authors' code uses a fixed copy.",
            "Only a share of the groups is measured; the others keep their reward.",
        ),
        claim=("ce-po/coherence", "higher"),
    )
    Config = Config
    roles = {"rewards": "makes"}

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        rows = self.measured(batch)
        channels = self.channels(batch, rows.tolist()).to(rewards)  # (3, M)
        self.report(batch, rows, channels)
        each = (1 - self.config.weight) / len(CHANNELS)
        weights = torch.tensor([self.config.weight, *[each] * len(CHANNELS)], device=rewards.device)
        fused = rewards.clone()
        fused[rows] = power_mean(torch.cat([rewards[rows].clamp(0.0, 1.0)[None], channels]), weights, self.config.power)
        return fused

    def measured(self, batch: "RolloutBatch") -> Tensor:
        """(M,) rows of the groups whose coherence is measured; at least one group."""
        groups = len(batch.texts) // batch.group_size
        count = max(1, round(self.config.share * groups))
        chosen = sorted(self.run.rng(self.card.name, "groups", batch.step).sample(range(groups), count))
        rows = torch.arange(len(batch.texts), device=batch.mask.device).view(groups, -1)
        return rows[chosen].flatten()

    def channels(self, batch: "RolloutBatch", rows: list[int]) -> Tensor:
        """(3, M) scores of prompt to reasoning, prompt to answer and reasoning to answer."""
        parts, rng, model = self.parts(batch, rows), self.run.rng(self.card.name, "twins", batch.step), self.run.model
        fixed = frozenset(self.run.tokenizer.all_special_ids)
        real = compute_jacobians(model, parts)
        other_prompt = compute_jacobians(model, replace(parts, ids=shuffle_tokens(parts.ids, parts.prompt, fixed, rng)))
        other_working = compute_jacobians(model, replace(parts, ids=shuffle_tokens(parts.ids, parts.working, fixed, rng)))
        straight, other = (compute_direct_jacobian(found[1], found[0], real[2]) for found in (real, other_prompt))
        pairs = ((real[0], other_prompt[0]), (straight, other), (real[2], other_working[2]))
        return torch.stack([channel_score(one, twin) for one, twin in pairs])

    def parts(self, batch: "RolloutBatch", rows: list[int]) -> Parts:
        columns = list[list[Tensor]]()
        for row in rows:
            head, kept = len(batch.prompt_ids[row]), int((batch.mask[row].nonzero().max() + 1) if batch.mask[row].any() else 0)
            ids = torch.cat([torch.tensor(batch.prompt_ids[row], device=batch.ids.device), batch.ids[row, :kept]])
            prompt = torch.zeros(len(ids), device=ids.device)
            prompt[:head] = 1.0
            working = self.marked(batch, row, working_span(batch.texts[row]), head, kept)
            answer = self.marked(batch, row, answer_span(batch.texts[row]), head, kept)
            columns.append([ids, torch.ones_like(ids), prompt, working, answer])
        pads = (self.run.tokenizer.pad_token_id, 0, 0.0, 0.0, 0.0)
        padded = [pad_sequence(list(part), batch_first=True, padding_value=pad) for part, pad in zip(zip(*columns, strict=True), pads, strict=True)]
        return Parts(*padded)

    def marked(self, batch: "RolloutBatch", row: int, span: tuple[int, int] | None, head: int, kept: int) -> Tensor:
        """(L,) float: marks the policy's tokens inside a span of the text, after the prompt's ``head`` tokens."""
        marks = torch.zeros(head + kept, device=batch.mask.device)
        if span is not None:
            marks[head:] = (batch.span(row, *span) * batch.mask[row])[:kept]
        return marks

    def report(self, batch: "RolloutBatch", rows: Tensor, channels: Tensor) -> None:
        for name, values in zip(CHANNELS, channels, strict=True):
            self.log(name, values.mean())
        coherence = (channels[0] * channels[2]).sqrt()  # of the way from the prompt through the working
        self.log("coherence", coherence.mean())
        self.log_histogram("coherence_of_answers", coherence, 0.0, 1.0)
        right = batch.correct[rows]
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
                    Series(f"{name}/coherence_right", "correct answers"),
                    Series(f"{name}/coherence_wrong", "wrong answers"),
                    Series(f"{name}/prompt_to_working", "prompt to reasoning", dashed=True),
                    Series(f"{name}/prompt_to_answer", "prompt to answer", dashed=True),
                    Series(f"{name}/working_to_answer", "reasoning to answer", dashed=True),
                ),
                help="How much of the input gradients the shuffled twin does not explain, and how much of that lies in one direction.",
            ),
            Panel("Coherence of completions", (Series(f"{name}/coherence_of_answers"),), "histogram"),
        )


def working_span(text: str) -> tuple[int, int] | None:
    """The content of <think>, or else everything before the answer: in a multi-turn task, what the policy looked up."""
    thought, answer = thought_span(text), answer_span(text)
    if thought is not None or answer is None:
        return thought
    return 0, answer[0] - len(ANSWER)
