"""Every format the lab reads, each with an example: ``make formats`` writes docs/formats.md from the formats themselves.

tests/lab/test_docs.py holds the document to them. The examples of datasets are the samples of tests/lab/datasets, which a test imports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.data.datasets.formats.reading import FORMATS as IMPORTED
from tests.lab.datasets.samples import annotated, answers, preferences
from trainers.outside.readers.formats import FORMATS as READ

DOCUMENT = Path(__file__).resolve().parents[1] / "docs/formats.md"
# Of formats whose columns a person names; those of the others are in the samples.
BY_HAND: dict[str, dict[str, Any]] = {
    "compared": {"question": "What is 2 + 2?", "first": "4", "second": "5", "better": "first"},
    "pairs": {"question": "What is 2 + 2?", "response_w": "4", "response_l": "5"},
    "answers": {"query": "What is 2 + 2?", "candidates": [{"text": "5", "score": 1}, {"text": "4", "score": 2}]},
    "marked": {"query": "What is 2 + 2?", "output": "4", "desirable": "yes"},
    "completions": {"question": "What is 2 + 2?", "answer": "4"},
    "steps": {"question": "What is 2 + 2?", "parts": ["2 + 2 is 4", "so 5"], "right": [True, False]},
    "references": {"problem": "What is 2 + 2?", "ground_truth": "4"},
}

RUNS = """# Formats

`make formats` writes this page.

## Runs of other frameworks
`python -m trainers send --from FORMAT PATH` reads the files that a framework writes anyway and sends them as a run; `--from auto` tells the format
by the files. `LAB_URL` and `LAB_TOKEN`
(scope `runs.send`) say where to. No torch, numpy or framework is needed: msgspec, and for TRL's parquet files pyarrow.

```
python -m trainers send --from verl ./rollouts --follow                        as the files grow, until Ctrl-C
python -m trainers send --from verl ./rollouts --from tensorboard ./tb         rollouts and metrics of one run
python -m trainers send --from prime-rl ./outputs --tokenizer Qwen/Qwen3-4B    with tokens and their log-probabilities
```

| format | files | what arrives | example |
|---|---|---|---|
"""

RULES = """
- **What a source lacks is "not recorded", never 0**: lengths, finish reasons, advantages, entropies. Where no source brings metrics, the mean
  rewards of each complete step are worked out from its rollouts.
- **Groups** are those the source names; else the rollouts of a step with the same prompt and reference.
- **Turns and calls of tools** are kept: from messages as they are, from texts by the marks of a ChatML template. The page of a rollout folds
  thinking and long results of tools.
- **Tokens** need `--tokenizer`: the policy's `tokenizer.json`, its folder, or a model in the hub's cache on this machine (and the package
  tokenizers). Ids that do not spell the text are left out; the text stays.
- **Steps** are numbered as the source numbers them. `train/reward` and `eval/reward` are called `reward` and `heldout/reward`; all other metrics
  keep their names.
- **`--follow`** looks twice a second. A last line without its newline, an unfinished parquet file or record is "not yet". A step that is written
  anew is a resumed run: a new attempt, and the rows before are superseded.
- **A restart loses and doubles nothing.** What was read is kept in a spool (`--keep FOLDER`, by default below `~/.local/state/policy-lab`), and the
  place in the source is written after the lines it stands for. The same command goes on.
- **A broken row is named** with file and line in the run's log, and the rest goes on. Rows above 64 MiB and rollouts above 7 MiB are left out.
- **The run ends** as "finished" without `--follow`, as W&B or MLflow say, or as "stopped" with Ctrl-C. Sending again takes it up.
- TRL's files have no total reward: it is the sum of the numeric columns, or with `--reward-weights correct=1 brief=0.2` of these. The files of
  slime and miles are pickles: nothing in them is run.
- Not read: SkyRL's `dumped_data` (tensors without texts), tables and pictures of W&B and Trackio, branches of a prime-rl trace but the last.

## Datasets
A file is imported under Datasets, or with `POST /api/v1/datasets/import`: JSON, JSON lines, CSV, TSV or Parquet. The format is told by the columns;
those marked * are mapped by hand.

| format | what becomes of a row | example |
|---|---|---|
"""


def write_document() -> str:
    """The text of docs/formats.md."""
    rows = [f"| `{one.name}`: {one.title} | {format_code(one.looks_for)} | {one.gives} | {format_code(one.example)} |" for one in READ.values()]
    examples = list_dataset_examples()
    imported = [
        f"| `{one.name}`{'*' if one.by_hand else ''}: {one.title} | {one.words} | {format_code(json.dumps(examples[one.name], ensure_ascii=False))} |"
        for one in IMPORTED.values()
    ]
    return RUNS + "\n".join(rows) + "\n" + RULES + "\n".join(imported) + "\n"


def list_dataset_examples() -> dict[str, dict[str, Any]]:
    """A row of each format: the first of its first sample."""
    found = dict(BY_HAND)
    for sample in (*preferences.SAMPLES, *annotated.SAMPLES, *answers.SAMPLES):
        found.setdefault(sample.format, sample.rows[0])
    return found


def format_code(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("\n", " ") + "`"


if __name__ == "__main__":
    DOCUMENT.write_text(write_document())
