"""Packed arrays: what goes in comes out, and damage is noticed."""

import contextlib
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.arrays import COMPRESS_FROM, MOST_VALUES, PackError, count_packed_values, pack_array, pack_ids, unpack_array


@given(st.lists(st.floats(-60_000, 60_000, width=16)), st.sampled_from("ef"))
def test_floats_come_back_as_they_were(values, code):
    assert unpack_array(pack_array(values, code)).tolist() == values


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=400))
def test_whole_numbers_come_back_as_they_were(values):
    assert unpack_array(pack_array(values, "i")).tolist() == values


@given(st.lists(st.integers(0, 255), max_size=400))
def test_masks_come_back_as_they_were(values):
    assert unpack_array(pack_array(values, "B")).tolist() == values


@given(st.lists(st.integers(0, 200_000), max_size=400))
def test_token_ids_come_back_and_take_two_bytes_where_the_vocabulary_allows(ids):
    packed = pack_ids(ids)
    assert unpack_array(packed).tolist() == ids
    assert chr(packed[0]) == ("H" if max(ids, default=0) < 65_536 else "i")


def test_an_empty_array_takes_its_header_and_no_bytes_are_an_empty_array():
    assert len(pack_array([], "e")) == 2
    assert unpack_array(pack_array([], "e")).size == 0
    assert unpack_array(b"").size == 0


def test_what_float16_cannot_hold_is_clipped_and_nan_stays():
    back = unpack_array(pack_array([1e9, -1e9, float("inf"), float("nan")], "e"))
    assert back[:3].tolist() == [65504.0, -65504.0, 65504.0]
    assert np.isnan(back[3])


def test_repetition_is_compressed_and_noise_is_not_made_longer():
    ones, noise = np.ones(1000, dtype=np.uint8), np.random.default_rng(0).integers(0, 256, 1000, dtype=np.uint8)
    assert len(pack_array(ones, "B")) < 50
    assert len(pack_array(noise, "B")) == 1002
    assert pack_array(np.ones(COMPRESS_FROM - 1, dtype=np.uint8), "B")[1:2] == b"0"


def test_an_unknown_type_code_is_refused():
    with pytest.raises(PackError, match="unknown type code 'd'"):
        pack_array([1.0], "d")


@pytest.mark.parametrize("data", [b"x", b"e", b"ex\0\0", b"d0\0\0", b"e0\0", b"ez\0\0", b"iz" + b"\xff" * 30, b"\xff\xff"])
def test_damage_is_refused(data):
    with pytest.raises(PackError):
        unpack_array(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_array_or_refused(data):
    with contextlib.suppress(PackError):
        assert unpack_array(data).ndim == 1


@given(st.lists(st.floats(-100, 100, width=16), min_size=150, max_size=300), st.data())
def test_a_cut_compressed_array_is_never_read_as_a_whole_one(values, data):
    packed = pack_array([round(value) for value in values], "f")
    if packed[1:2] != b"z":
        return
    cut = data.draw(st.integers(2, len(packed) - 1))
    with pytest.raises(PackError):
        unpack_array(packed[:cut])


@given(st.lists(st.integers(0, 60_000), max_size=400))
def test_values_are_counted_as_they_come_out(values):
    assert count_packed_values(pack_array(values, "H")) == len(values)
    assert count_packed_values(b"") == 0


@pytest.mark.parametrize("read", [unpack_array, count_packed_values])
def test_a_few_bytes_that_stand_for_too_many_values_are_refused_before_they_are_unpacked(read):
    bomb = b"fz" + zlib.compress(bytes(4 * 30 * MOST_VALUES), 9)
    tracemalloc.start()
    try:
        with pytest.raises(PackError, match="more than 1,048,576 values"):
            read(bomb)
        assert tracemalloc.get_traced_memory()[1] < 12 * MOST_VALUES
    finally:
        tracemalloc.stop()
    assert np.size(read(b"fz" + zlib.compress(bytes(4 * MOST_VALUES)))) in (1, MOST_VALUES)  # the count, or the array
    with pytest.raises(PackError, match="more than 1,048,576 values"):
        read(b"B0" + bytes(MOST_VALUES + 1))


@pytest.mark.parametrize("data", [pack_array([0.0] * 500, "e")[:-3], b"e0\0", b"fz" + zlib.compress(b"123")])
def test_an_array_whose_end_is_missing_is_damaged(data):
    for read in (unpack_array, count_packed_values):
        with pytest.raises(PackError, match="damaged"):
            read(data)
