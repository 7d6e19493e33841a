"""Vectors of stored completions, by a policy or a sentence encoder: what similarity and clusters are computed from.

A request is a line of JSON (``EmbeddingRequest``), its answer too: ``dimension``, ``vectors`` (base64 of (N, D) float16, little-endian), ``cut`` (how
many texts were longer than is read) and ``device``. The model stays loaded for requests that name the same folder.

A policy's vector is the mean of its last hidden states, after the final norm, over the completion's tokens, with the prompt before them as context.
An encoder's is the mean over all tokens of the completion's text, those that its tokenizer adds included (Reimers and Gurevych 2019). Both are
scaled to length 1. Texts are tokenized here, so that rollouts of runs with other tokenizers are measured in the same way.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from jinja2.exceptions import TemplateError
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from trainers.contract.encoder_folder import inspect_encoder_folder, read_json
from trainers.contract.events import Message
from trainers.contract.problems import Problem, SpecError
from trainers.policies import loading as policies
from trainers.policies.sampling import chat_ids

MOST_ITEMS = 1024  # of a request
MOST_PROMPT, MOST_TOKENS = 512, 1024  # tokens of a prompt's end and of a completion's beginning that a policy reads
ENCODED = 512  # tokens that an encoder reads at most
BATCH_TOKENS = 8192  # of a forward pass, padding included


class EmbeddedItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt: list[tuple[str, str]]  # (role, content)
    completion: str


class EmbeddingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: str
    kind: Literal["policy", "encoder"]
    items: list[EmbeddedItem]


class TokenRow(msgspec.Struct, frozen=True):
    """What is read of a text: the mean is over the tokens from ``start`` on. ``cut``: the completion is longer."""

    ids: list[int]
    start: int
    cut: bool


class Embedder(Protocol):
    model: Any
    pad: int

    def tokenize(self, item: EmbeddedItem) -> TokenRow: ...

    def encode(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(B, T, D) last hidden states of (B, T) token ids, padded at the right where ``mask`` (B, T) is 0."""


def parse_embedding_request(text: bytes) -> EmbeddingRequest:
    """Raises SpecError."""
    try:
        request = msgspec.json.decode(text, type=EmbeddingRequest)
    except msgspec.DecodeError as error:
        raise SpecError([Problem("request", "", str(error))]) from None
    if len(request.items) > MOST_ITEMS:
        raise SpecError([Problem("items", str(len(request.items)), f"are more than {MOST_ITEMS}")])
    return request


def choose_device(wanted: str = "auto") -> tuple[torch.device, torch.dtype]:
    """``wanted``: auto, cpu or cuda."""
    cuda = wanted != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if cuda else "cpu"), torch.bfloat16 if cuda and torch.cuda.is_bf16_supported() else torch.float32


class PolicyEmbedder:
    def __init__(self, folder: Path) -> None:
        policies.check_policy_folder(folder)
        device, dtype = choose_device()
        self.tokenizer = policies.load_tokenizer(folder)
        self.model = policies.load_model(folder, dtype).base_model.to(device).eval()  # without the head: no logits are made
        self.pad = self.tokenizer.pad_token_id
        self.room = min(getattr(self.model.config, "max_position_embeddings", None) or MOST_PROMPT + MOST_TOKENS, MOST_PROMPT + MOST_TOKENS)

    def tokenize(self, item: EmbeddedItem) -> TokenRow:
        """The end of the prompt and the beginning of the completion; of an empty completion its end token."""
        completion = self.tokenizer.encode(item.completion, add_special_tokens=False) or [self.tokenizer.eos_token_id]
        prompt = self.tokenize_prompt(item.prompt)
        read = completion[: min(MOST_TOKENS, max(self.room - len(prompt), self.room * 2 // 3))]
        before = prompt[-min(MOST_PROMPT, self.room - len(read)) :] if self.room > len(read) else []
        return TokenRow([*before, *read], len(before), len(read) < len(completion))

    def tokenize_prompt(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """As the policy is prompted; as plain text where its chat template does not take these messages, which may be another model's."""
        try:
            [ids] = chat_ids(self.tokenizer, [[Message(role, content) for role, content in messages]])
        except (TemplateError, ValueError, KeyError, TypeError, IndexError):
            ids = self.tokenizer.encode("\n".join(content for _, content in messages), add_special_tokens=False)
        return ids

    def encode(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return states


class EncoderEmbedder:
    def __init__(self, folder: Path, wanted: str = "auto") -> None:
        if problems := inspect_encoder_folder(folder, "folder").problems:
            raise SpecError(problems)
        device, dtype = choose_device(wanted)
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
            model = AutoModel.from_pretrained(folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, local_files_only=True)
            self.model = model.to(device).eval()
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            message = f"the encoder cannot be loaded: {policies.one_line(error)}"
            raise SpecError([Problem("folder", folder.name, message, "use an encoder that transformers has built in")]) from error
        self.pad = self.tokenizer.pad_token_id or 0
        said = read_json(folder / "sentence_bert_config.json")
        limits = [ENCODED, self.tokenizer.model_max_length, getattr(self.model.config, "max_position_embeddings", None)]
        limits.append(said.get("max_seq_length") if isinstance(said, dict) else None)
        self.longest = min(limit for limit in limits if isinstance(limit, int) and limit > 2)

    def tokenize(self, item: EmbeddedItem) -> TokenRow:
        whole = self.tokenizer(item.completion, verbose=False)["input_ids"]
        if len(whole) <= self.longest:
            return TokenRow(whole, 0, False)
        return TokenRow(self.tokenizer(item.completion, truncation=True, max_length=self.longest)["input_ids"], 0, True)

    def encode(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return states


def load_embedder(kind: str, folder: Path, device: str = "auto") -> Embedder:
    """``device`` of an encoder: auto, cpu or cuda. Raises SpecError."""
    if not folder.is_dir():
        raise SpecError([Problem("folder", folder.name, "the files are not there any more", "choose another one")])
    return PolicyEmbedder(folder) if kind == "policy" else EncoderEmbedder(folder, device)


def split_batches(rows: Sequence[TokenRow]) -> Iterator[list[int]]:
    """Places of rows that go through the model together: of like lengths, the longest first, at most BATCH_TOKENS with their padding."""
    order = sorted(range(len(rows)), key=lambda place: -len(rows[place].ids))
    batch: list[int] = []
    for place in order:
        if batch and len(rows[batch[0]].ids) * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


@torch.no_grad()
def embed_rows(embedder: Embedder, rows: Sequence[TokenRow]) -> npt.NDArray[np.float32]:
    """(N, D) vectors of length 1, in the order of the rows."""
    found: dict[int, npt.NDArray[np.float32]] = {}
    device = embedder.model.device
    for batch in split_batches(rows):
        longest = max(len(rows[place].ids) for place in batch)
        ids = torch.full((len(batch), longest), embedder.pad, dtype=torch.long)
        mask, pooled = torch.zeros_like(ids), torch.zeros_like(ids)
        for at, place in enumerate(batch):
            row = rows[place]
            ids[at, : len(row.ids)] = torch.tensor(row.ids)
            mask[at, : len(row.ids)] = 1
            pooled[at, row.start : len(row.ids)] = 1
        states = embedder.encode(ids.to(device), mask.to(device)).float()  # (B, T, D)
        share = pooled.to(device)[..., None].float()
        means = torch.nn.functional.normalize((states * share).sum(1) / share.sum(1), dim=-1).cpu().numpy()  # (B, D)
        found |= dict(zip(batch, means, strict=True))
    return np.stack([found[place] for place in range(len(rows))]) if rows else np.zeros((0, 0), dtype=np.float32)


def answer_embedding_request(embedder: Embedder, request: EmbeddingRequest) -> dict[str, Any]:
    rows = [embedder.tokenize(item) for item in request.items]
    vectors = embed_rows(embedder, rows)
    packed = base64.b64encode(vectors.astype("<f2").tobytes()).decode()
    return {"dimension": vectors.shape[1], "vectors": packed, "cut": sum(row.cut for row in rows), "device": str(embedder.model.device)}


def answer_embedding_requests(requests: Iterable[bytes]) -> None:
    """Answers one request after the other. Raises SpecError."""
    logging.disable_progress_bar()
    loaded: tuple[tuple[str, str], Embedder] | None = None
    for text in requests:
        request = parse_embedding_request(text)
        wanted = (request.kind, request.folder)
        if loaded is None or loaded[0] != wanted:
            loaded = None  # the model before goes first: memory may not have room for two
            loaded = (wanted, load_embedder(request.kind, Path(request.folder)))
        sys.stdout.write(json.dumps(answer_embedding_request(loaded[1], request)) + "\n")
        sys.stdout.flush()
