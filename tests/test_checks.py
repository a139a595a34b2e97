from __future__ import annotations

import os

import numpy as np
import pytest

from cfnade import checks
from cfnade.errors import ConfigError


@pytest.mark.parametrize("value", [1, 2.5, np.float32(3.0), np.int64(4), 10**30])
def test_any_finite_number_is_returned_as_a_float(value):
    assert checks.check_number("alpha", value) == float(value)


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), [1], 10**400])
def test_anything_else_is_not_a_number(value):
    with pytest.raises(ConfigError, match="alpha must be a finite number"):
        checks.check_number("alpha", value)


def test_only_truth_values_are_true_or_false():
    for value in (True, False, np.True_):
        checks.check_bool("direct", value)
    for value in ("no", 0, None):
        with pytest.raises(ConfigError, match="direct must be true or false"):
            checks.check_bool("direct", value)


def test_whole_numbers_have_a_least_value():
    checks.check_whole("n", np.int32(2), 2)
    for value in (1, 2.0, True, "2"):
        with pytest.raises(ConfigError, match="n must be a whole number of at least 2"):
            checks.check_whole("n", value, 2)


def test_choices_are_listed():
    checks.check_choice("by", "pairs", ("pairs", "events"))
    with pytest.raises(ConfigError, match="by must be one of pairs, events; got 'time'"):
        checks.check_choice("by", "time", ("pairs", "events"))


def test_ranges_include_and_exclude_their_ends():
    checks.check_above_zero(rate=1e-9)
    checks.check_at_least(1, rate=1)
    checks.check_share(share=0.0)
    with pytest.raises(ConfigError, match="rate must be above 0"):
        checks.check_above_zero(rate=0)
    with pytest.raises(ConfigError, match="rate must be at least 1"):
        checks.check_at_least(1, rate=0.99)
    for value in (-0.1, 1.0):
        with pytest.raises(ConfigError, match="share must be at least 0 and below 1"):
            checks.check_share(share=value)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("4GB", 4 * 10**9), ("512 MiB", 2**29), ("1.5g", 1_500_000_000), ("2e9", 2 * 10**9), (7, 7)],
)
def test_sizes_are_read_as_people_write_them(limit, expected):
    assert checks.check_bytes("memory_limit", limit) == expected


@pytest.mark.parametrize("limit", ["", "much", "-1GB", "0", "1..5GB", "4XB", "GB"])
def test_other_texts_are_no_sizes(limit):
    with pytest.raises(ConfigError, match="memory_limit must be a size such as 4GB"):
        checks.check_bytes("memory_limit", limit)


def test_a_name_of_other_bytes_is_no_utf8():
    assert checks.is_utf8("é 東京 👩") and not checks.is_utf8(os.fsdecode(b"m\xff"))
