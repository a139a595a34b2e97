from __future__ import annotations

import gc

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.baselines import RandomScorer
from cfnade.compare.contenders import EASEContender, IMFContender, Untuned, contender
from cfnade.compare.nested import against, choose, judge
from cfnade.compare.protocol import Protocol
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, DataError
from cfnade.metrics.bootstrap import bootstrap_means
from cfnade.metrics.formulas import UserSums
from cfnade.metrics.search import Search, Trial


@pytest.fixture(scope="module")
def protocol() -> Protocol:
    from tests.test_estimator import group_counts

    return Protocol(Interactions.from_matrix(group_counts()))


def chance(seed: int) -> Untuned:
    return Untuned(lambda: RandomScorer(rng=seed))


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


def test_what_settings_are_chosen_on_leads_to_no_test_pair(protocol) -> None:
    given = []

    class Spy(EASEContender):
        def search(self, validation, *, max_trials, on_trial=None):
            given.append(validation)
            return super().search(validation, max_trials=max_trials, on_trial=on_trial)

    choose(Spy(), protocol.validation, max_trials=1)
    test = protocol._split.test
    objects = reachable(given[0])
    assert any(each is protocol._split.train for each in objects)  # the walk does reach the data
    assert not any(each is protocol or each is protocol._split for each in objects)
    arrays = [each for each in objects if isinstance(each, np.ndarray)]
    assert not any(np.shares_memory(each, test.data) for each in arrays)
    assert not any(np.shares_memory(each, test.indices) for each in arrays)
    pairs = set(zip(*test.nonzero(), strict=True))
    for matrix in (given[0].train, given[0].held_out):
        assert not pairs & set(zip(*matrix.nonzero(), strict=True))


def test_a_choice_does_not_change_with_what_is_tested() -> None:
    from tests.test_estimator import group_counts

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
        choose(contender("edlae"), Protocol(data, test).validation, max_trials=4)["mpr"]
        for test in tests
    )
    assert (first.settings, first.validation) == (second.settings, second.validation)


def test_one_search_gives_the_best_by_each_metric(protocol) -> None:
    class Given:
        def search(self, validation, *, max_trials, on_trial=None):
            stops = (
                Trial({"iterations": 1}, 20.0, {"mpr": 20.0, "ndcg@100": 0.9}),
                Trial({"iterations": 2}, 10.0, {"mpr": 10.0, "ndcg@100": 0.5}),
            )
            best = Trial({"iterations": 2}, 10.0, stops[1].metrics, stops)
            worse = Trial({"iterations": 3}, 11.0, {"mpr": 11.0, "ndcg@100": 0.6})
            return Search([best, worse, Trial({}, 12.0)], 1.0)

    chosen = choose(Given(), protocol.validation, max_trials=3, by=("mpr", "ndcg@100", "recall@20"))
    assert chosen["mpr"].settings == {"iterations": 2}
    assert chosen["ndcg@100"].settings == {"iterations": 1}
    assert chosen["recall@20"].settings == {"iterations": 2}  # nobody looked at it: as by MPR
    assert chosen["mpr"].n_settings == 3


def test_a_choice_tells_what_ended_at_an_end_of_its_grid(protocol) -> None:
    candidate = IMFContender(
        grid={"factors": (1, 2, 4), "alpha": (3.0, 10.0, 30.0)},
        start={"factors": 1, "alpha": 10.0, "regularization": 1e5},
        iterations=(1,),
    )
    choice = choose(candidate, protocol.validation, max_trials=1)["mpr"]
    assert choice.at_edge == ("factors", "iterations")


def test_a_judgement_is_the_mean_over_seeds_of_what_each_reaches(protocol) -> None:
    judged = judge(chance, {}, protocol, seeds=[1, 2, 3])
    alone = [protocol.test(RandomScorer(rng=seed).fit(protocol.known)) for seed in (1, 2, 3)]
    for metric in ("mpr", "ndcg@100", "recall@20"):
        expected = [evaluation.metrics[metric] for evaluation in alone]
        assert judged.by_seed[metric] == expected
        assert judged.metrics[metric] == pytest.approx(np.mean(expected))
        low, high = judged.intervals[metric]
        assert low <= judged.metrics[metric] <= high
    assert len(judged.fit_seconds) == 3
    with pytest.raises(ConfigError, match="at least one seed"):
        judge(chance, {}, protocol, seeds=[])


def test_who_wins_follows_from_the_paired_differences(rng) -> None:
    ones = np.ones(200)
    base = rng.random(200)
    other = UserSums(base, ones)
    better = UserSums(base + 0.01 * rng.random(200), ones)
    same = UserSums(base + 0.1 * rng.standard_normal(200), ones)
    assert against(better, other, "ndcg@100")[2] == "win"
    assert against(other, better, "ndcg@100")[2] == "loss"
    assert against(better, other, "mpr")[2] == "loss"  # lower is better
    assert against(other, better, "mpr")[2] == "win"
    assert against(same, other, "mpr")[2] == "within noise"
    difference, (low, high), _ = against(better, other, "recall@20", n_bootstrap=500, rng=3)
    assert difference == pytest.approx(better.mean - other.mean)
    means = bootstrap_means([better, other], n_bootstrap=500, rng=3)
    drawn = np.sort(means[:, 0] - means[:, 1])
    assert low == pytest.approx(drawn[12], abs=1e-4)
    assert high == pytest.approx(drawn[487], abs=1e-4)


def test_other_users_are_not_compared() -> None:
    a, b = UserSums(np.zeros(3), np.ones(3)), UserSums(np.zeros(3), np.full(3, 2.0))
    with pytest.raises(DataError, match="judge both models on one split"):
        against(a, b, "mpr")
