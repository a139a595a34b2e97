from __future__ import annotations

from pathlib import Path

import pytest

from cfnade.cli import main as cli
from cfnade.errors import ConfigError
from cfnade.scale.folders import for_spark, own_folder
from cfnade.scale.prepared import Prepared

pytestmark = pytest.mark.scale


@pytest.mark.parametrize("address", ["hdfs://host/data", "s3a://bucket/x", "file:///data"])
def test_an_address_is_no_folder_of_ours(address, tmp_path, capsys):
    for given in (address, Path(address)):  # of which Path makes hdfs:/host/data
        with pytest.raises(ConfigError, match="is not a path: mount that store"):
            own_folder(given)
    with pytest.raises(ConfigError, match="is not a path"):
        Prepared.open(address)
    for command in (
        ["scale", "prepare", "x.csv", "--out", address],
        ["scale", "train", str(tmp_path), "--out", address],
        ["scale", "train", address, "--out", str(tmp_path / "m")],
        ["scale", "score", str(tmp_path), "--data", "x.csv", "--out", address],
    ):
        assert cli.run(command) == 2
        told = capsys.readouterr().err
        assert "is not a path" in told and told.count("\n") == 1


def test_a_path_becomes_an_address_that_spark_does_not_decode(tmp_path):
    assert own_folder(tmp_path / "a b" / ".." / "c d") == tmp_path / "c d"
    assert for_spark(tmp_path / "c d") == f"file://{tmp_path}/c d"
