"""Files that are small and would become large: counted before anything is decoded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lab.data.datasets import raw, raw_parquet
from lab.data.datasets.raw import RowError, UnreadableFile, delimiter_of, read_raw_records


def kept(folder: Path, content: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content)
    return path


def test_quotes_do_not_take_longer_the_more_there_are(tmp_path: Path) -> None:
    path = kept(tmp_path, b'prompt,"chosen",' + b'"' * 20_000 + b"x\nrow\n")
    begun = time.process_time()
    list(read_raw_records(path, "csv"))
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("head", "delimiter"),
    [
        (b"a,b,c\n1;2;3;4;5\n", ","),
        (b"a;b;c\n1,5;2;3\n", ";"),
        (b"a\tb, c\td\n", "\t"),
        (b'"x;y;z;w",b,c\n', ","),
        (b"\n\na;b\n", ";"),
        (b"alone\n", ","),
        (b"", ","),
    ],
)
def test_the_delimiter_is_what_stands_most_often_in_the_header_outside_of_quotes(head: bytes, delimiter: str) -> None:
    assert delimiter_of(head) == delimiter


def test_cells_keep_delimiters_line_breaks_and_doubled_quotes(tmp_path: Path) -> None:
    [(line, row)] = read_raw_records(kept(tmp_path, b'a;b\n"x;""y""\n";"\'z\'"\n'), "csv")
    assert (line, row) == (3, {"a": 'x;"y"\n', "b": "'z'"})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "nested too deeply"),
        (b'{"a":[' + b"0," * 600_000 + b"0]}", "values"),
        (b" " * 20_000_001 + b"1", "longer"),
    ],
)
def test_a_line_that_is_too_much_is_broken_and_the_next_is_read(tmp_path: Path, line: bytes, words: str) -> None:
    (one, broken), (two, row) = read_raw_records(kept(tmp_path, line + b'\n{"b": 1}\n'), "jsonl")
    assert (one, two, row) == (1, 2, {"b": 1})
    assert isinstance(broken, RowError)
    assert words in str(broken)


def test_one_value_with_too_many_inside_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "MOST_VALUES", 1000)
    monkeypatch.setattr(raw, "decode_json_value", None)
    with pytest.raises(UnreadableFile, match="more than 1,000 values"):
        list(read_raw_records(kept(tmp_path, b"[" + b"0," * 1000 + b"0]"), "json"))


def table(folder: Path, **columns: Any) -> Path:
    path = folder / "file"
    pq.write_table(pa.table(columns), path, compression="zstd")
    return path


@pytest.mark.parametrize(
    ("count", "words"), [(raw_parquet.MOST_IN_COLUMN + 1, "values in one row group"), (raw.MOST_IN_ROW + 1, "1 rows with more than 500,000 values")]
)
def test_a_list_of_nulls_is_counted_and_never_made(tmp_path: Path, count: int, words: str) -> None:
    path = table(tmp_path, a=pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count, pa.int8())))
    assert path.stat().st_size < 5000
    with pytest.raises(UnreadableFile, match=words):
        list(read_raw_records(path, "parquet"))


def test_a_dictionary_counts_with_every_repetition_of_its_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 31 + [1], pa.int32()), pa.array(["x" * 100_000, "y"]))
    assert raw_parquet.measure_array(texts) == (32, 3_100_001)
    monkeypatch.setattr(raw_parquet, "MOST_CHUNK", 3_000_000)
    with pytest.raises(UnreadableFile, match="more than 3 MB together"):
        list(read_raw_records(table(tmp_path, a=texts), "parquet"))


def test_values_inside_values_count() -> None:
    array = pa.array([[{"a": [1, 2], "b": {"c": "text"}}], [{"a": [3], "b": None}]])
    values, size = raw_parquet.measure_array(array)
    assert values == 2 + 2 + 2 + 3 + 2 + 2  # lists, objects, lists of a, their numbers, b, c
    assert size > 0
    assert raw_parquet.measure_array(array.slice(1))[0] == 1 + 1 + 1 + 1 + 1 + 1


def test_columns_that_are_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    array = pa.array([1])
    for _ in range(raw.DEEPEST + 1):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    with pytest.raises(UnreadableFile, match="too deeply nested"):  # Arrow's own limit
        list(read_raw_records(table(tmp_path, a=array), "parquet"))
