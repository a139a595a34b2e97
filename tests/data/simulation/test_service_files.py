from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.ratings import RelativeRating
from cfnade.data.simulation import service_files
from cfnade.data.simulation.service_files import limits, percentile_ranks, write_service
from cfnade.data.simulation.simulate import ServiceConfig, SimulatedService
from cfnade.data.splitting import hold_out
from cfnade.errors import ConfigError, DataError

TINY = ServiceConfig.sized("tiny")


def read(pattern: Path) -> dict[str, np.ndarray]:
    quoted = str(pattern).replace("'", "''")
    return duckdb.sql(f"FROM '{quoted}'").fetchnumpy()


@pytest.mark.parametrize("oracle_users", [0, 100])
def test_what_is_written_is_what_is_in_memory(tmp_path: Path, oracle_users: int) -> None:
    service = SimulatedService(TINY, seed=5)
    folder = tmp_path / "it's new" / "service"
    write_service(service, folder, oracle_users=oracle_users, users_per_shard=256)
    assert len(list((folder / "interactions").glob("*.parquet"))) == 2
    rows = read(folder / "interactions" / "*.parquet")
    assert list(rows) == ["user", "item", "count"]
    expected = service.interactions().counts
    assert len(rows["count"]) == expected.nnz
    written = csr_array((rows["count"], (rows["user"], rows["item"])), shape=expected.shape)
    assert (written != expected).nnz == 0


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_service(SimulatedService(TINY, seed=5), tmp_path / name, oracle_users=10)
    for path in (p for p in (tmp_path / "one").rglob("*") if p.is_file()):
        twin = tmp_path / "two" / path.relative_to(tmp_path / "one")
        assert path.read_bytes() == twin.read_bytes()


def test_the_item_table_names_every_item(tmp_path: Path) -> None:
    service = SimulatedService(TINY)
    write_service(service, tmp_path, oracle_users=0)
    table = read(tmp_path / "items.parquet")
    assert list(table) == ["item", "name", "kind", "episodes"]
    np.testing.assert_array_equal(table["item"], np.arange(TINY.n_items))
    assert table["name"].tolist() == service.items.name.tolist()
    assert table["kind"].tolist() == service.items.kind.tolist()
    np.testing.assert_array_equal(table["episodes"], service.items.episodes)


def test_the_summary_has_settings_sizes_and_limits(tmp_path: Path) -> None:
    service = SimulatedService(TINY, seed=5)
    figures = write_service(service, tmp_path)
    counts = service.interactions().counts
    assert figures == {
        "n_users": TINY.n_users,
        "n_items": TINY.n_items,
        "n_pairs": counts.nnz,
        "seed": 5,
        **asdict(limits(service, counts)),
    }
    facts = json.loads((tmp_path / "service.json").read_text())
    assert ServiceConfig(**facts.pop("settings")) == TINY
    assert facts == figures


def test_without_an_oracle_the_summary_has_no_limits(tmp_path: Path) -> None:
    figures = write_service(SimulatedService(TINY), tmp_path, oracle_users=0)
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


# Limits -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> SimulatedService:
    return SimulatedService(ServiceConfig.sized("small", n_users=2_000), seed=1)


@pytest.fixture(scope="module")
def small_counts(small: SimulatedService) -> csr_array:
    return small.interactions().counts


def test_percentile_ranks_of_a_case_worked_by_hand() -> None:
    scores = np.array([[9, 5, 4, 3, 1], [2, 2, 2, 9, 8]], dtype=np.float32)
    kept = csr_array([[1.0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])
    held_out = csr_array([[0.0, 1, 0, 1, 0], [1, 0, 0, 0, 0]])
    # User 0: candidates 5 4 3 1, places 0 and 2 of 3. User 1: candidates 2 2 2 9, a tie of the
    # places 1 to 3, so 2 of 3.
    ranks = percentile_ranks(lambda users: scores[users], kept, held_out)
    np.testing.assert_allclose(ranks, [0, 2 / 3, 2 / 3])


def test_percentile_ranks_do_not_depend_on_how_many_users_are_ranked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = SimulatedService(ServiceConfig.sized("tiny"))
    kept, held_out = hold_out(service.interactions().counts)
    expected = percentile_ranks(service.preferences, kept, held_out)
    monkeypatch.setattr(service_files, "USERS_AT_ONCE", 7)
    # One place in the ranking may change where float32 rounds two preferences to one.
    np.testing.assert_allclose(
        percentile_ranks(service.preferences, kept, held_out), expected, atol=0.01
    )


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_popularity_and_the_oracle_stand_as_far_apart_as_on_real_data(size: str) -> None:
    service = SimulatedService(ServiceConfig.sized(size))
    found = limits(service, service.interactions().counts, n_users=1_000)
    assert 2 < found.oracle_mpr < 6.5
    assert 15 < found.popularity_mpr < 25
    assert 2 < found.oracle_mpr_unweighted < 6.5
    assert 15 < found.popularity_mpr_unweighted < 25


def test_without_tastes_the_oracle_knows_no_more_than_popularity() -> None:
    service = SimulatedService(ServiceConfig.sized("small", taste_strength=0.0))
    found = limits(service, service.interactions().counts, n_users=1_000)
    assert found.oracle_mpr_unweighted == pytest.approx(found.popularity_mpr_unweighted, rel=0.03)


def test_no_other_ranking_passes_the_oracle(
    small: SimulatedService, small_counts: csr_array, rng: np.random.Generator
) -> None:
    found = limits(small, small_counts, rng=4)
    kept, held_out = hold_out(small_counts, rng=4)
    weight = RelativeRating().fit(kept).transform(held_out).data

    def mpr(scores: np.ndarray) -> tuple[float, float]:
        ranks = percentile_ranks(lambda users: scores[users], kept, held_out)
        return 100 * np.average(ranks, weights=weight), 100 * ranks.mean()

    truth = small.preferences(np.arange(small.config.n_users))
    by_propensity = mpr(truth)
    assert by_propensity[1] == pytest.approx(found.oracle_mpr_unweighted)
    assert by_propensity[0] > found.oracle_mpr  # it does not know what ratings to expect
    noisy = mpr(truth + rng.normal(size=truth.shape, scale=0.5).astype(np.float32))
    taste_alone = mpr(truth - small.log_popularity)
    for other in (noisy, taste_alone):
        assert other[0] > found.oracle_mpr
        assert other[1] > found.oracle_mpr_unweighted


def test_expected_ratings_are_those_found_among_watchers(
    small: SimulatedService, small_counts: csr_array
) -> None:
    counts = small_counts
    ratings = RelativeRating().fit(counts)
    user = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    item = counts.indices
    table = service_files._expected_ratings(small, ratings, np.random.default_rng(0))
    expected = service_files._interpolate(table, small.affinities(np.arange(counts.shape[0])))[
        user, item
    ]
    found = ratings.transform(counts).data
    for kind in ("show", "movie"):
        for low_half in (True, False):
            of_kind = small.items.kind[item] == kind
            median = np.median(expected[of_kind])
            chosen = of_kind & ((expected <= median) == low_half)
            assert found[chosen].mean() == pytest.approx(expected[chosen].mean(), abs=0.01)


def test_only_the_users_asked_for_are_judged(
    small: SimulatedService, small_counts: csr_array
) -> None:
    found = limits(small, small_counts, n_users=50)
    assert found.n_users_judged == 50
    assert 50 <= found.n_held_out < 1_000


def test_nobody_to_judge_and_nothing_to_hold_out_are_refused() -> None:
    config = replace(ServiceConfig.sized("tiny"), min_history=2, mean_history=2.0)
    service = SimulatedService(config)
    counts = service.interactions().counts
    with pytest.raises(ConfigError, match="n_users must be at least 1, got 0"):
        limits(service, counts, n_users=0)
    with pytest.raises(DataError, match="none of the 300 users has 5 items or more"):
        limits(service, counts)
