"""A masked diffusion policy: a Llama whose attention sees both sides, with a second head that says how sure it is of each position.

Logits at a position are about the token at that position. The mask token is the padding token, which the attention mask tells apart from padding.
Importing this module makes transformers know the class, so that its folders load and save like those of any policy. ``generate`` writes by
unmasking, with the signature that samplers and TRL call; ``denoise_tokens`` (``denoising.py``) is what it does.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, LlamaConfig, LlamaModel, LogitsProcessorList
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.llama.modeling_llama import LlamaPreTrainedModel

from trainers.masked.denoising import Denoising, denoise_tokens


class MaskedLlamaConfig(LlamaConfig):  # type: ignore[misc]
    """``diffusion_steps``: in which a completion is unmasked; ``remasks``: whether written tokens may be taken back."""

    model_type = "masked_llama"

    def __init__(self, diffusion_steps: int = 32, remasks: bool = False, **rest: Any) -> None:
        super().__init__(**rest)
        self.diffusion_steps = diffusion_steps
        self.remasks = remasks


@dataclass
class MaskedOutput(CausalLMOutput):  # type: ignore[misc]
    confidence: Tensor | None = None  # (B, S)


class MaskedLlama(LlamaPreTrainedModel):  # type: ignore[misc]
    config_class = MaskedLlamaConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: MaskedLlamaConfig) -> None:
        super().__init__(config)
        self.model = LlamaModel(config)
        self.model.embed_tokens.padding_idx = None  # it is the mask, whose vector is trained like any other
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        size = config.hidden_size
        self.confidence = nn.Sequential(nn.Linear(2 * size, size), nn.SiLU(), nn.Linear(size, 1))
        self.generation_config = GenerationConfig(eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id)
        self.post_init()

    @property
    def mask_id(self) -> int:
        return int(self.config.pad_token_id)

    def can_generate(self) -> bool:
        return True

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, logits_to_keep: int = 0, with_confidence: bool = False, **rest: Any
    ) -> MaskedOutput:
        """(B, S), (B, S) 1 = there -> logits (B, S, V), or those of the last ``logits_to_keep`` positions."""
        there = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        sees = torch.zeros(there.shape, dtype=self.dtype, device=there.device).masked_fill(there == 0, torch.finfo(self.dtype).min)
        positions = (there.cumsum(1) - 1).clamp(min=0)
        full = sees[:, None, None, :].expand(-1, 1, input_ids.shape[1], -1)  # (B, 1, S, S): every position sees all that are there
        hidden = self.model(input_ids=input_ids, attention_mask=full, position_ids=positions, use_cache=False).last_hidden_state
        confidence = None
        if with_confidence:  # its loss leaves the tokens' stream as it is
            seen = torch.cat([hidden.detach(), self.model.embed_tokens(input_ids).detach()], -1)
            confidence = self.confidence(seen)[..., 0]
        kept = hidden[:, -logits_to_keep:] if logits_to_keep else hidden
        return MaskedOutput(logits=self.lm_head(kept), confidence=confidence)

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        logits_processor: LogitsProcessorList | None = None,
        **rest: Any,
    ) -> Tensor:
        """(B, P) prompts, padded on the left -> (B, P + T): what stands after a row's first end token is padding.

        ``logits_processor`` only watches: it is shown, from left to right, what each token was drawn from when it was written.
        """
        settings = generation_config or self.generation_config
        temperature = settings.temperature if settings.do_sample else 0.0
        there = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        width = input_ids.shape[1]
        ids = nn.functional.pad(input_ids, (0, settings.max_new_tokens), value=self.mask_id)
        there = nn.functional.pad(there, (0, settings.max_new_tokens), value=1)
        writable = torch.zeros_like(ids, dtype=torch.bool)
        writable[:, width:] = True
        steps = min(self.config.diffusion_steps, settings.max_new_tokens)
        how = Denoising(steps, temperature or 0.0, self.config.remasks, keeps_scores=bool(logits_processor))
        made = denoise_tokens(self, ids, there, writable, how)
        ids = cut_after_end(made.ids, width, settings.eos_token_id, self.mask_id)
        if logits_processor and made.scores is not None:
            for place in range(width, ids.shape[1]):
                for watch in logits_processor:
                    watch(ids[:, :place], hide_mask(made.scores[:, place], self.mask_id))
        return ids


def hide_mask(logits: Tensor, mask_id: int) -> Tensor:
    """(..., V) -> the same without the mask token, which is never written."""
    return logits.index_fill(-1, torch.tensor([mask_id], device=logits.device), -torch.inf)


def cut_after_end(ids: Tensor, width: int, ends: int | list[int] | None, pad: int) -> Tensor:
    """(B, P + T) -> the same with padding after the first end token of each completion, and no longer than the longest needs."""
    known = torch.tensor([ends] if isinstance(ends, int) else list(ends or []), device=ids.device)
    is_end = torch.isin(ids[:, width:], known)
    after = is_end.cumsum(1) - is_end.long() > 0  # strictly after the first end
    made = ids.clone()
    made[:, width:] = made[:, width:].masked_fill(after, pad)
    longest = int((~after).sum(1).max())
    return made[:, : width + longest]


AutoConfig.register(MaskedLlamaConfig.model_type, MaskedLlamaConfig, exist_ok=True)
AutoModelForCausalLM.register(MaskedLlamaConfig, MaskedLlama, exist_ok=True)
