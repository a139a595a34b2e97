from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.simulation.service_files import write_service
from cfnade.data.simulation.simulate import ServiceConfig, SimulatedService
from cfnade.errors import DataError

TINY = ServiceConfig.sized("tiny")


def read(pattern: Path) -> dict[str, np.ndarray]:
    quoted = str(pattern).replace("'", "''")
    return duckdb.sql(f"FROM '{quoted}'").fetchnumpy()


@pytest.mark.parametrize("limits", [None, lambda service, counts: {"n": counts.nnz}])
def test_what_is_written_is_what_is_in_memory(tmp_path: Path, limits: Any) -> None:
    service = SimulatedService(TINY, seed=5)
    folder = tmp_path / "it's new" / "service"
    write_service(service, folder, limits=limits, users_per_shard=256)
    assert len(list((folder / "interactions").glob("*.parquet"))) == 2
    rows = read(folder / "interactions" / "*.parquet")
    assert list(rows) == ["user", "item", "count"]
    expected = service.interactions().counts
    assert len(rows["count"]) == expected.nnz
    written = csr_array((rows["count"], (rows["user"], rows["item"])), shape=expected.shape)
    assert (written != expected).nnz == 0


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_service(SimulatedService(TINY, seed=5), tmp_path / name)
    for path in (p for p in (tmp_path / "one").rglob("*") if p.is_file()):
        twin = tmp_path / "two" / path.relative_to(tmp_path / "one")
        assert path.read_bytes() == twin.read_bytes()


def test_the_item_table_names_every_item(tmp_path: Path) -> None:
    service = SimulatedService(TINY)
    write_service(service, tmp_path)
    table = read(tmp_path / "items.parquet")
    assert list(table) == ["item", "name", "kind", "episodes"]
    np.testing.assert_array_equal(table["item"], np.arange(TINY.n_items))
    assert table["name"].tolist() == service.items.name.tolist()
    assert table["kind"].tolist() == service.items.kind.tolist()
    np.testing.assert_array_equal(table["episodes"], service.items.episodes)


def test_the_summary_has_settings_sizes_and_limits(tmp_path: Path) -> None:
    service = SimulatedService(TINY, seed=5)
    figures = write_service(service, tmp_path, limits=lambda of, counts: {"best": 4.5})
    assert figures == {
        "n_users": TINY.n_users,
        "n_items": TINY.n_items,
        "n_pairs": service.interactions().n_pairs,
        "seed": 5,
        "best": 4.5,
    }
    facts = json.loads((tmp_path / "service.json").read_text())
    assert ServiceConfig(**facts.pop("settings")) == TINY
    assert facts == figures


def test_without_an_oracle_the_summary_has_no_limits(tmp_path: Path) -> None:
    figures = write_service(SimulatedService(TINY), tmp_path)
    assert list(figures) == ["n_users", "n_items", "n_pairs", "seed"]


def test_progress_counts_the_users_written_so_far(tmp_path: Path) -> None:
    seen: list[int] = []
    write_service(SimulatedService(TINY), tmp_path, users_per_shard=1, progress=seen.append)
    assert seen == [256, 300]


@pytest.mark.parametrize("name", ["interactions", "items.parquet", "service.json"])
def test_a_folder_with_such_files_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=f"{name} exists already; delete it or choose another"):
        write_service(SimulatedService(TINY), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
