"""Settings of the service: what is refused, and how workers get them."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from cfnade.errors import ConfigError
from cfnade.serve.service_settings import ConnectionLimits, RequestLimits, ServeSettings


def test_a_worker_reads_the_settings_that_were_written_for_it():
    default = ServeSettings(Path("model"))
    settings = ServeSettings(
        Path("other"),
        copy=Path("copy"),
        host="::1",
        port=0,
        n_workers=3,
        api_key="s3cret",
        allowed_origins=("https://shop.example", "https://b.example"),
        allowed_hosts=("shop.example",),
        watch_seconds=0.5,
        most_together=7,
        grace_seconds=2,
        limits=RequestLimits(n=5, waiting=9),
        connections=ConnectionLimits(per_address=5),
    )
    for field in fields(ServeSettings):  # or one that gets lost would not be noticed
        assert getattr(settings, field.name) != getattr(default, field.name), field.name
    written = TypeAdapter(ServeSettings).dump_json(settings)
    assert b"\n" not in written
    assert TypeAdapter(ServeSettings).validate_json(written) == settings


def test_the_key_is_not_shown():
    assert "s3cret" not in repr(ServeSettings(Path("model"), api_key="s3cret"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_workers": 0}, "--workers and --together must be at least 1"),
        ({"most_together": 0}, "--workers and --together must be at least 1"),
        ({"api_key": "schl\N{LATIN SMALL LETTER U WITH DIAERESIS}ssel"}, "non-empty ASCII text"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        ServeSettings(Path("model"), **changes)


def test_a_folder_whose_name_is_no_text_is_refused_in_one_line():
    with pytest.raises(ConfigError, match=r"must be UTF-8, got .*m\\udcff"):
        ServeSettings(Path(os.fsdecode(b"m\xff")))


def test_a_limit_of_nothing_is_refused():
    for field in fields(RequestLimits):
        with pytest.raises(ConfigError, match=f"limit {field.name} must be at least 1, got 0"):
            RequestLimits(**{field.name: 0})
