"""SkyRL's evaluations: ``dumped_evals/global_step_<step>_evals/<dataset>.jsonl`` in ``trainer.export_path``, with ``dump_eval_results``.

Read from NovaSky-AI/SkyRL, commit a9564572eb8e91076be43c1bd5e4615e3de17265, ``skyrl/train/utils/trainer_utils.py``
(``dump_per_dataset_eval_results``): a line has ``input_prompt`` and ``output_response`` (decoded with their special tokens), ``score`` (a number, or
one for each token), ``stop_reason``, ``env_class``, ``env_extras`` and ``data_source``; ``aggregated_results.jsonl`` has the step's metrics.
``eval_only`` is an evaluation without training, step 0. What it trained on (``dumped_data/*.pkl``) is a pickle of tensors without texts and is not
read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trainers.contract.events import Metrics
from trainers.outside.readers.base import BrokenRow, SourceFormat, SourceOpening, list_folder, read_number, read_text, to_finite_float
from trainers.outside.readers.chat_text import find_template_turns, parse_prompt, to_storable_text
from trainers.outside.readers.json_lines import is_row_with
from trainers.outside.readers.rollout_drafts import RolloutDraft, collect_numbers
from trainers.outside.readers.step_files import StepFile, StepFilesReader

NAMED = re.compile(r"global_step_(\d{1,9})_evals|eval_only")
METRICS = "aggregated_results.jsonl"
ENDS = {"stop": "stop", "length": "length", "max_turns": "turns"}
ENDING = re.compile(r"(?:<\|im_end\|>|<\|eot_id\|>|<\|endoftext\|>|</s>)\s*\Z")


def list_skyrl_files(path: Path) -> list[StepFile]:
    found = []
    for folder in (one for place in (path, path / "dumped_evals") for one in list_folder(place)):
        if named := NAMED.fullmatch(folder.name):
            step = int(named[1] or 0)
            found += [StepFile(file, f"{folder.name}/{file.name}", step, "heldout") for file in list_folder(folder) if file.suffix == ".jsonl"]
    return sorted(found, key=lambda file: (file.step, file.path.name == METRICS, file.key))


def recognize_skyrl_evals(path: Path) -> bool:
    rows = [file for file in list_skyrl_files(path) if file.path.name != METRICS]
    return any(is_row_with(file.path, ("input_prompt", "output_response", "score")) for file in rows[:3])


class SkyRlReader(StepFilesReader):
    def describe_opening(self) -> SourceOpening:
        return SourceOpening(config={"framework": "skyrl", "evaluations": str(self.path)})

    def list_files(self) -> list[StepFile]:
        return list_skyrl_files(self.path)

    def read_metrics(self, row: dict[str, Any], file: StepFile, time: float) -> Metrics | None:
        if file.path.name != METRICS:
            return None
        values = {name.replace("eval/", "heldout/", 1): value for name, value in collect_numbers(row).items() if value is not None}
        return Metrics(attempt=1, time=time, step=file.step, values=values)

    def draft_rollout(self, row: dict[str, Any], file: StepFile) -> RolloutDraft:
        score = row.get("score")
        if isinstance(score, list):
            if not all(isinstance(one, int | float) for one in score):
                raise BrokenRow("score holds something that is no number")
            reward, length = to_finite_float(sum(score)), len(score)
        else:
            reward, length = read_number(row, "score"), None
        written = to_storable_text(ENDING.sub("", read_text(row, "output_response")))
        extras = row.get("env_extras")
        spec = extras.get("reward_spec", extras.get("reward_model")) if isinstance(extras, dict) else None
        truth = spec.get("ground_truth") if isinstance(spec, dict) else None
        return RolloutDraft(
            prompt=parse_prompt(read_text(row, "input_prompt")),
            completion=written,
            turns=find_template_turns(written),
            reward=reward,
            rewards={"score": reward},
            reference=truth if isinstance(truth, str) else "",
            finish_reason=ENDS.get(str(row.get("stop_reason")), ""),
            length=length,
        )


FORMAT = SourceFormat(
    name="skyrl",
    title="SkyRL: dumped evaluations (trainer.dump_eval_results)",
    looks_for="dumped_evals/global_step_<step>_evals/<dataset>.jsonl with input_prompt, output_response and score",
    example='global_step_5_evals/gsm8k.jsonl: {"input_prompt": "<|im_start|>user\\n3 + 4?<|im_end|>\\n<|im_start|>assistant\\n", "output_response":'
    ' "7<|im_end|>", "score": 1.0, "stop_reason": "stop", "env_class": "gsm8k", "env_extras": {}, "data_source": "gsm8k"}',
    recognize=recognize_skyrl_evals,
    open=SkyRlReader,
    gives="held-out rollouts with tool turns, scores, finish reasons, references; evaluation metrics",
)
