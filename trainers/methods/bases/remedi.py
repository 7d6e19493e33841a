"""RemeDi: a masked diffusion policy that takes tokens back, and learns when to (arXiv 2509.23653).

A second head gives every position a confidence h. In each of N steps the K_n positions with the highest h hold a token, all others are masked again,
those written before among them; while training the positions are drawn by Plackett-Luce. With the ordered positions U of a step,
    log pi(U) = sum_k [h_{u_k} - log sum_{j not in u_1..u_{k-1}} exp h_j],  log pi(step) = log pi(U) + sum_{u new} log p(x_u | x_t),
and the objective is mean_i A_i log pi(trajectory_i) / L over the L positions of an answer, A the group's z-scores of the reward at its end. The
policy starts from demonstrations with masked and wrong tokens, where the first head restores both and the second learns which are wrong. It differs
from GRPO in the policy, in how it writes and in its loss. A step has N forward passes with gradient in place of one.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.masked.denoising import Denoised, Denoising, denoise_tokens, score_trajectory
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.masked_base import MaskedBase
from trainers.policies.sampling import Completion

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session


class RemeDi(MaskedBase):
    card = Card(
        name="remedi",
        title="Remasking (masked diffusion)",
        arxiv="2509.23653",
        system="RemeDi",
        base="grpo",
        provenance="code",
        source="github maple-research-lab/RemeDi: remedi/utils.py, inference.py; a secondary note for the supervised part",
        fit="variant",
        idea="Written tokens may be taken back: at each step the positions that the policy is surest of stay, and the order is learnt as well.",
        formula=(
            r"\log \pi(U) = \sum_k \left[h_{u_k} - \log \sum_{j \notin \{u_1..u_{k-1}\}} e^{h_j}\right]",
            r"\log \pi(\mathrm{step}) = \log \pi(U) + \sum_{u\ \mathrm{new}} \log p(x_u | x_t)",
        ),
        departures=(
            "An answer is one block, and the second head is small and reads the first one's last layer.",
            "A trajectory's log-probability is divided by the length of the answer, and a batch is trained on once, without a clip.",
            "Shown log-probabilities of tokens are coupled estimates, as in DiffuCoder.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    owns = frozenset({"rollout", "policy loss"})
    requires = (*MaskedBase.requires, Requirement("training.num_iterations", "equals", 1, "there is no ratio to an earlier policy"))
    scale = "group"
    remasks = True

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "grpo", "scale_rewards": self.scale}

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> list[Completion]:
        prompts = session.run.prompt_ids(session.prompts)
        model, width = session.model, session.max_tokens
        longest = max(map(len, prompts))
        device, mask_id, end = session.run.device, model.mask_id, session.run.tokenizer.eos_token_id
        ids = torch.tensor([[mask_id] * (longest - len(one)) + one + [mask_id] * width for one in prompts], device=device)
        there = torch.tensor([[0] * (longest - len(one)) + [1] * (len(one) + width) for one in prompts], device=device)
        writable = torch.zeros_like(ids, dtype=torch.bool)
        writable[:, longest:] = True
        generator = torch.Generator(device=device).manual_seed(session.rng.randrange(2**31)) if device.type == "cpu" else None
        how = Denoising(min(self.config.diffusion_steps, width), session.temperature, remasks=True, draws_order=True, generator=generator)
        self.written: tuple[Tensor, Tensor, Tensor, Denoised] = (ids, there, writable, denoise_tokens(model, ids, there, writable, how))
        self.log("remasked", self.written[3].remasked.float().mean())
        return [self.complete(prompt, row, end) for prompt, row in zip(prompts, self.written[3].ids[:, longest:].tolist(), strict=True)]

    def complete(self, prompt: list[int], row: list[int], end: int) -> Completion:
        """What was written, up to its first end token."""
        count = row.index(end) + 1 if end in row else len(row)
        zeros = [0.0] * count
        made = Completion(prompt, row[:count], [1] * count, logprobs=zeros, entropies=list(zeros), finish_reason="stop" if end in row else "length")
        made.text = self.run.tokenizer.decode(made.ids, skip_special_tokens=True)
        return made

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        ids, there, writable, made = self.written
        rows = batch.rows.to(ids.device)
        history, orders = ([step[rows] for step in steps] for steps in (made.history, made.orders))
        total = score_trajectory(self.run.model, ids[rows], there[rows], writable[rows], history, orders, self.run.training.temperature)
        self.log("trajectory_distance", (total.detach() - made.logprobs[rows]).abs().mean())
        advantages = batch.advantages if batch.advantages.dim() == 1 else (batch.advantages * batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)
        return -(advantages * total / writable[rows].sum(1)).mean()

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (Panel("Tokens taken back", (Series("remedi/remasked"),), unit="tokens an answer"),)
