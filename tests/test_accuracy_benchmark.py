"""The accuracy benchmark goes on where it was stopped, and chooses before it tests."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import EASE, IMF, RandomScorer
from cfnade.compare.contender import Contender
from cfnade.compare.protocol import Protocol
from cfnade.compare.registry import contender
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, DataError, TrainingError
from cfnade.metrics.bootstrap import bootstrap_means
from cfnade.metrics.formulas import UserSums
from cfnade.metrics.search import Search, Trial
from tests.networks import group_counts

pytest.importorskip("implicit")
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def accuracy(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import accuracy

    return accuracy


@pytest.fixture
def nested(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import nested

    return nested


@pytest.fixture(scope="module")
def protocol() -> Protocol:
    return Protocol(Interactions.from_matrix(group_counts()))


@pytest.fixture
def options() -> argparse.Namespace:
    return argparse.Namespace(
        data=Path(), methods=["popularity", "ease", "ials"], trials=2, seeds=2
    )


@pytest.fixture
def cells(accuracy, options, tmp_path) -> Path:
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, tmp_path)
    return tmp_path


def test_each_cell_has_a_choice_and_a_judgement(cells) -> None:
    names = {file.name for file in (cells / "tiny").iterdir()}
    for method in ("popularity", "ease", "ials"):
        assert {f"{method}.choice.json", f"{method}.json", f"{method}.npz"} <= names
    judged = json.loads((cells / "tiny" / "ials.json").read_text())["judged"]
    assert len(judged["chosen"]["by_seed"]["mpr"]) == 2
    with np.load(cells / "tiny" / "ials.npz") as arrays:
        assert len(arrays["chosen/mpr/total"]) == 2
    assert (
        len(json.loads((cells / "tiny" / "ease.json").read_text())["judged"]["chosen"]["seeds"])
        == 1
    )


def test_what_is_done_is_not_done_again(accuracy, options, cells, monkeypatch) -> None:
    def refuse(*arguments, **settings):
        raise AssertionError("nothing is left to do")

    monkeypatch.setattr(accuracy, "choose", refuse)
    monkeypatch.setattr(accuracy, "judge", refuse)
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, cells)


def test_a_choice_without_a_judgement_is_judged_as_it_was_made(
    accuracy, options, cells, monkeypatch
) -> None:
    before = json.loads((cells / "tiny" / "ease.json").read_text())
    (cells / "tiny" / "ease.json").unlink()  # stopped between the two
    monkeypatch.setattr(accuracy, "choose", None)
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, cells)
    after = json.loads((cells / "tiny" / "ease.json").read_text())
    assert after["judged"]["chosen"]["metrics"] == before["judged"]["chosen"]["metrics"]


def test_no_choice_is_made_once_its_test_was_seen(accuracy, cells) -> None:
    cell = accuracy.Cell(cells / "tiny", "ease")
    with pytest.raises(RuntimeError, match="its test was seen already"):
        cell.keep_choice(cell.chosen())


def test_the_choice_is_on_disk_before_the_test_is_looked_at(
    accuracy, options, tmp_path, monkeypatch
) -> None:
    looked = []
    judge = accuracy.judge

    def judge_after_choice(*arguments, **settings):
        looked.append(sorted(file.name for file in (tmp_path / "tiny").glob("*.choice.json")))
        return judge(*arguments, **settings)

    monkeypatch.setattr(accuracy, "judge", judge_after_choice)
    options.methods = ["ease"]
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, tmp_path)
    assert looked and all("ease.choice.json" in files for files in looked)


def test_a_method_that_cannot_be_fitted_is_reported_and_the_others_stay(
    accuracy, options, tmp_path, monkeypatch
) -> None:
    from accuracy_report import accuracy_section, collect

    choose = accuracy.choose

    def fail_for_ease(candidate, *arguments, **settings):
        if candidate.make is EASE:
            raise TrainingError("too many items")
        return choose(candidate, *arguments, **settings)

    monkeypatch.setattr(accuracy, "choose", fail_for_ease)
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, tmp_path)
    text = accuracy_section(collect(tmp_path, accuracy.QUICK))
    assert "| ease | not fitted |" in text
    assert "Not fitted: tiny: ease: too many items." in text
    assert "| ials | " in text


def test_the_report_marks_who_is_ahead_of_cfnade(accuracy, cells) -> None:
    from accuracy_report import accuracy_section, collect

    folder = cells / "tiny"
    for ending in ("json", "choice.json", "npz"):  # as if popularity were CF-NADE
        (folder / f"popularity.{ending}").rename(folder / f"cfnade.{ending}")
    found = collect(cells, accuracy.QUICK)
    methods = found["sets"]["tiny"]["methods"]
    assert methods["ease"]["figures"]["mpr"]["cfnade"] == "loss"
    assert {each["chosen_by"] for each in methods["ease"]["figures"].values()} == {"chosen"}
    json.dumps(found)
    text = accuracy_section(found)
    row = next(line for line in text.splitlines() if line.startswith("| ease |"))
    assert row.endswith("**(ahead)** |")
    # On another machine the figures of single users are gone; what was told of them is not.
    for users in folder.glob("*.npz"):
        users.unlink()
    assert collect(cells, accuracy.QUICK, found) == found
    judged = json.loads((folder / "cfnade.json").read_text())
    judged["judged"]["chosen"]["metrics"]["mpr"] += 1.0  # CF-NADE is another since
    (folder / "cfnade.json").write_text(json.dumps(judged))
    again = collect(cells, accuracy.QUICK, found)["sets"]["tiny"]["methods"]["ease"]["figures"]
    assert "cfnade" not in again["mpr"]
    assert again["recall@20"]["cfnade"] == "loss"


def test_every_set_has_a_table_and_every_method_a_name(accuracy) -> None:
    from accuracy_report import NAMES

    for dataset in accuracy.SETS.values():
        assert set(dataset.metrics) <= set(NAMES)
        assert set(dataset.methods or ()) <= set(accuracy.METHODS)
    assert set(accuracy.METHODS) >= accuracy.DETERMINISTIC
    assert str(BENCHMARKS) in sys.path


def chance(seed: int) -> Contender:
    return contender("random", seed)


def reachable(start: object) -> list[object]:
    """Everything that can be got at from an object, modules and classes aside."""
    seen, todo = {}, [start]
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type) or callable(each):
            continue
        seen[id(each)] = each
        todo += gc.get_referents(each)
    return list(seen.values())


def test_what_settings_are_chosen_on_leads_to_no_test_pair(nested, protocol) -> None:
    given = []

    def spy(candidate, validation, max_trials, seconds, on_trial):
        given.append(validation)
        return contender("ease").search(validation, max_trials=max_trials)

    nested.choose(replace(contender("ease"), search_by=spy), protocol.validation, max_trials=1)
    test = protocol._test
    objects = reachable(given[0])
    assert any(each is protocol.validation.train for each in objects)  # the walk reaches the data
    assert not any(each is protocol or each is test for each in objects)
    arrays = [each for each in objects if isinstance(each, np.ndarray)]
    assert not any(np.shares_memory(each, test.data) for each in arrays)
    assert not any(np.shares_memory(each, test.indices) for each in arrays)
    pairs = set(zip(*test.nonzero(), strict=True))
    for matrix in (given[0].train, given[0].held_out):
        assert not pairs & set(zip(*matrix.nonzero(), strict=True))


def test_a_choice_does_not_change_with_what_is_tested(nested) -> None:
    data = Interactions.from_matrix(group_counts())
    rng = np.random.default_rng(5)
    unseen = group_counts().toarray() == 0
    first_unseen = unseen & (np.cumsum(unseen, axis=1) == 1)  # so that the same users are tested
    tests = [
        Interactions.from_matrix(
            csr_array((first_unseen | unseen & (rng.random(unseen.shape) < 0.2)) * weight)
        )
        for weight in (1.0, 3.0)
    ]
    first, second = (
        nested.choose(contender("edlae"), Protocol(data, test).validation, max_trials=4)
        for test in tests
    )
    assert (first.settings, first.validation) == (second.settings, second.validation)


def test_one_choice_by_the_metrics_of_validation_serves_all_tables(nested, protocol) -> None:
    def given(candidate, validation, max_trials, seconds, on_trial):
        trials = [
            Trial({"iterations": 1}, 20.0, {"mpr": 10.0, "ndcg@100": 0.5}, n_looks=3),
            Trial({"iterations": 2}, 15.0, {"mpr": 9.0, "ndcg@100": 0.6}, n_looks=4),
        ]
        return Search(trials, 1.0)

    candidate = Contender(IMF, search_by=given)
    chosen = nested.choose(candidate, protocol.validation, max_trials=3)
    assert chosen.settings == {"iterations": 2}
    assert (chosen.n_settings, chosen.n_looks) == (2, 7)


def test_wins_count_over_tuned_baselines_alone(accuracy, cells) -> None:
    from accuracy_report import accuracy_section, collect

    folder = cells / "tiny"
    for ending in ("json", "choice.json", "npz"):
        (folder / f"ials.{ending}").rename(folder / f"cfnade.{ending}")
    found = collect(cells, accuracy.QUICK)
    methods = found["sets"]["tiny"]["methods"]
    assert "cfnade" in methods["popularity"]["figures"]["mpr"]  # marked in the table
    methods["cfnade-paper"] = methods["ease"]
    text = accuracy_section(found)
    line = next(line for line in text.splitlines() if "against tuned baselines" in line)
    assert sum(int(part) for part in line.split() if part.isdigit()) == 1  # EASE
    assert "earlier rule" not in text
    methods["ease"] = {**methods["ease"], "choices": {"mpr": methods["ease"]["choices"]["chosen"]}}
    assert "chosen by the earlier rule: tiny." in accuracy_section(found)


def test_a_choice_names_settings_at_an_end_of_their_grid(nested, protocol) -> None:
    candidate = Contender(
        IMF,
        {"factors": 1, "alpha": 10.0, "regularization": 1e5},
        {"factors": (1, 2, 4), "alpha": (3.0, 10.0, 30.0)},
        stops=(1,),
    )
    choice = nested.choose(candidate, protocol.validation, max_trials=1)
    assert choice.at_edge == ("factors", "iterations")


def test_a_judgement_is_the_mean_over_seeds_of_what_each_reaches(nested, protocol) -> None:
    judged = nested.judge(chance, {}, protocol, seeds=[1, 2, 3])
    alone = [protocol.test(RandomScorer(rng=seed).fit(protocol.known)) for seed in (1, 2, 3)]
    for metric in ("mpr", "ndcg@100", "recall@20"):
        expected = [evaluation.metrics[metric] for evaluation in alone]
        assert judged.by_seed[metric] == expected
        assert judged.metrics[metric] == pytest.approx(np.mean(expected))
        low, high = judged.intervals[metric]
        assert low <= judged.metrics[metric] <= high
    assert len(judged.fit_seconds) == 3
    with pytest.raises(ConfigError, match="at least one seed"):
        nested.judge(chance, {}, protocol, seeds=[])


def test_who_wins_follows_from_the_paired_differences(nested, rng) -> None:
    ones = np.ones(200)
    base = rng.random(200)
    other = [UserSums(base, ones)]
    better = [UserSums(base + 0.01 * rng.random(200), ones)]
    same = [UserSums(base + 0.1 * rng.standard_normal(200), ones)]
    assert nested.against(better, other, "ndcg@100")[2] == "win"
    assert nested.against(other, better, "ndcg@100")[2] == "loss"
    assert nested.against(better, other, "mpr")[2] == "loss"  # lower is better
    assert nested.against(other, better, "mpr")[2] == "win"
    assert nested.against(same, other, "mpr")[2] == "within noise"
    difference, (low, high), _ = nested.against(better, other, "recall@20", n_bootstrap=500, rng=3)
    assert difference == pytest.approx(better[0].mean - other[0].mean)
    means = bootstrap_means([*better, *other], n_bootstrap=500, rng=3)
    drawn = np.sort(means[:, 0] - means[:, 1])
    assert low == pytest.approx(drawn[12], abs=1e-4)
    assert high == pytest.approx(drawn[487], abs=1e-4)
    assert nested.against(same, same, "mpr")[1] == (0.0, 0.0)


def test_a_lead_within_the_noise_of_seeds_is_not_significant(nested, rng) -> None:
    """Every seed has a shift for all users, so single seeds differ significantly."""
    ones, base = np.ones(200), rng.random(200)

    def model(*shifts: float) -> list[UserSums]:
        return [UserSums(base + shift + 0.01 * rng.random(200), ones) for shift in shifts]

    mine, theirs = model(-0.2, 0.0, 0.2), model(0.1, 0.0, 0.1)
    assert nested.against(mine[:1], theirs[:1], "mpr")[2] == "win"
    assert nested.against(mine, theirs, "mpr")[2] == "within noise"
    assert nested.against(model(-0.5, -0.4, -0.5), theirs, "mpr")[2] == "win"
    means = nested.resampled_means([mine], n_bootstrap=4000)[:, 0]
    of_users = bootstrap_means(mine, n_bootstrap=4000, rng=0).mean(axis=1).var()
    of_seeds = np.var([each.mean for each in mine]) / 3
    assert means.var() == pytest.approx(of_users + of_seeds, rel=0.1)


def test_other_users_are_not_compared(nested) -> None:
    a, b = [UserSums(np.zeros(3), np.ones(3))], [UserSums(np.zeros(3), np.full(3, 2.0))]
    with pytest.raises(DataError, match="judge both models on one split"):
        nested.against(a, b, "mpr")
