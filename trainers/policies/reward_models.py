"""Reward models that runs have trained: scores of completions, as TRL's RewardTrainer shows prompt and answer to the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

from trainers.contract.events import Message
from trainers.contract.problems import Problem, SpecError
from trainers.policies import loading as policies
from trainers.policies.embedding import TokenRow, choose_device, split_batches
from trainers.policies.sampling import as_rows


class RewardModel:
    """Loaded once. ``device``: auto, cpu or cuda. Raises SpecError."""

    def __init__(self, folder: Path, device: str) -> None:
        place, dtype = choose_device(device)
        self.tokenizer = policies.load_tokenizer(folder)
        try:
            model = AutoModelForSequenceClassification.from_pretrained(
                folder, num_labels=1, dtype=dtype, use_safetensors=True, trust_remote_code=False, local_files_only=True
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            message = f"the reward model cannot be loaded: {policies.one_line(error)}"
            raise SpecError([Problem("folder", str(folder), message, "choose a finished run that trained a reward model")]) from error
        model.config.pad_token_id = self.tokenizer.pad_token_id
        self.model = model.to(place).eval()
        self.longest = int(getattr(model.config, "max_position_embeddings", None) or 1 << 30)

    def tokenize(self, prompt: Sequence[Message], completion: str) -> list[int]:
        """Raises ValueError for what is longer than the model reads."""
        chat = [*as_rows(prompt), {"role": "assistant", "content": completion}]
        ids: list[int] = self.tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True)["input_ids"]
        if len(ids) > self.longest:
            raise ValueError(f"{len(ids)} tokens are more than the {self.longest} that the reward model reads")
        return ids

    @torch.no_grad()
    def score(self, rows: Sequence[list[int]]) -> list[float]:
        """One number for each row of token ids, in batches of like lengths."""
        found: dict[int, float] = {}
        device, pad = self.model.device, self.tokenizer.pad_token_id
        for batch in split_batches([TokenRow(ids, 0, False) for ids in rows]):
            longest = max(len(rows[place]) for place in batch)
            ids, mask = torch.full((len(batch), longest), pad, dtype=torch.long), torch.zeros((len(batch), longest), dtype=torch.long)
            for at, place in enumerate(batch):
                ids[at, : len(rows[place])] = torch.tensor(rows[place])
                mask[at, : len(rows[place])] = 1
            logits: Any = self.model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits  # (B, 1)
            found |= dict(zip(batch, logits[:, 0].float().tolist(), strict=True))
        return [found[place] for place in range(len(rows))]
