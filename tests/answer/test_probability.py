from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ArtifactError, ConfigError, DataError, ImplicitCFNADE
from cfnade.answer import probability as module
from cfnade.answer.probability import LEAST_SLOPE, Calibrator, fit_calibrator
from tests.networks import SMALL, group_counts

CURVE = Calibrator(-3.0, (-1.0, 0.5, 2.0), (0.5, 1.5, 0.25, 2.0), 0.7, 4, 50, 0.1, 99, 12.0)


def slow_probability(calibrator: Calibrator, logit: float, n_history: int) -> float:
    """The curve walked along piece by piece."""
    knots, slopes = calibrator.knots, calibrator.slopes
    height = 0.0
    if logit < knots[0]:
        height = slopes[0] * (logit - knots[0])
    for piece, start in enumerate(knots, start=1):
        end = knots[piece] if piece < len(knots) else math.inf
        if logit > start:
            height += slopes[piece] * (min(logit, end) - start)
    length = min(max(n_history, calibrator.shortest_history), calibrator.longest_history)
    odds = math.exp(calibrator.intercept + height + calibrator.history_slope * math.log(length))
    odds = 1 / (1 / odds + 6 / calibrator.n_pairs)
    return odds / (1 + odds)


class Fixed:
    """Scores that are known, found again by the history."""

    def __init__(self, known, logits):
        rows = known.toarray() > 0
        self.logits = {row.tobytes(): scores for row, scores in zip(rows, logits, strict=True)}

    def scores(self, histories):
        return np.array([self.logits[row.tobytes()] for row in histories.toarray() > 0])


def world(rng, n_users=400, n_items=300):
    """Logits, histories of several lengths, and what is held out at probabilities that are known.

    As after training with confidence 20 and a readout that exaggerates: the truth is a bent curve
    of the logits, and more is held out of longer histories.
    """
    n_known = rng.integers(4, 40, n_users)
    known = np.zeros((n_users, n_items), bool)
    for user, n in enumerate(n_known):
        known[user, rng.permutation(n_items)[:n]] = True
    logits = rng.normal(-1.0, 3.0, (n_users, n_items))
    truth = -6.0 + 0.3 * logits + 0.6 * np.maximum(logits, 0) + 0.8 * np.log(n_known)[:, None]
    probability = 1 / (1 + np.exp(-truth))
    held_out = (rng.random(known.shape) < probability) & ~known
    return logits, csr_array(known.astype(float)), csr_array(held_out.astype(float)), probability


def test_the_curve_is_that_of_a_walk_along_its_pieces():
    for logit in (-30.0, -1.0, -0.5, 0.5, 1.0, 2.0, 5.0):
        for n_history in (0, 4, 17, 50, 1000):
            found = CURVE.probability(np.array([logit], dtype=np.float32), n_history)
            assert found[0] == pytest.approx(slow_probability(CURVE, logit, n_history))


def test_it_rises_with_the_logit_and_takes_a_batch(rng):
    logits = rng.normal(0, 5, (3, 100))
    found = CURVE.probability(logits, np.array([[5], [9], [40]]))
    assert found.shape == (3, 100)
    for row in range(3):
        assert (np.argsort(found[row]) == np.argsort(logits[row])).all()
        expected = [slow_probability(CURVE, z, (5, 9, 40)[row]) for z in logits[row]]
        np.testing.assert_allclose(found[row], expected)


def test_a_shift_keeps_the_expected_number_and_the_order(rng):
    without = rng.normal(-2.0, 3.0, 500)
    for change in (-8.0, -0.5, 0.0, 4.0):
        logits = without + change + rng.normal(0.0, 0.3, 500)
        shift = CURVE.shift_for(logits, without, 9)
        found = CURVE.probability(logits, 9, shift)
        assert found.sum() == pytest.approx(CURVE.probability(without, 9).sum(), rel=1e-6)
        assert (np.argsort(found) == np.argsort(logits)).all()
    assert CURVE.shift_for(without, without, 9) == pytest.approx(0.0, abs=1e-9)
    assert CURVE.shift_for(np.empty(0), np.empty(0), 9) == 0.0


def test_undoing_the_weighting_is_the_formula_with_constant_confidence():
    p = np.array([0.01, 0.3, 0.9])
    logits = np.log(p / (1 - p))
    np.testing.assert_allclose(CURVE.unweighted(logits), p / (p + 12.0 * (1 - p)))


def test_probabilities_that_are_known_are_found(rng):
    logits, known, held_out, truth = world(rng)
    found = fit_calibrator(Fixed(known, logits), known, held_out, mean_confidence=20.0)
    is_unseen = known.toarray() == 0
    given = found.probability(logits, np.diff(known.indptr)[:, None])
    for low, high in ((0.0, 0.01), (0.01, 0.05), (0.05, 0.2), (0.2, 1.0)):
        inside = is_unseen & (truth >= low) & (truth < high)
        assert given[inside].mean() == pytest.approx(truth[inside].mean(), rel=0.15)
    assert found.history_slope == pytest.approx(0.8, abs=0.2)
    assert found.n_pairs == held_out.nnz
    assert found.held_out_share == pytest.approx(held_out.nnz / (held_out.nnz + known.nnz))
    assert (found.shortest_history, found.longest_history) == (4, 39)
    # the sum is what is to be expected: that of what was held out, which the sigmoid is far from
    assert given[is_unseen].sum() == pytest.approx(held_out.nnz, rel=0.02)


def test_no_probability_is_surer_than_the_held_out_items_allow(rng):
    """Also of a curve as steep as it may become where scores of the fit end, in a saved model."""
    steep = Calibrator(-3.0, (-1.0, 2.0), (0.5, 1.0, 9.0), 0.7, 4, 50, 0.1, 10_538, 12.0)
    found = steep.probability(np.array([1e-3, 3.0, 5.0, 1e3, 1e6]), 17)
    assert (np.diff(found[:3]) > 0).all() and (np.diff(found) >= 0).all()
    n = 10_538 / 6
    assert found[-1] == pytest.approx(n / (n + 1), rel=1e-12) and f"{found[-1]:.3f}" == "0.999"
    few = Calibrator(-3.0, (-1.0, 2.0), (0.5, 1.0, 9.0), 0.7, 4, 50, 0.1, 6, 12.0)
    assert few.probability(np.array([1e6]), 17)[0] == pytest.approx(0.5)


@pytest.mark.parametrize("more_missing", [False, True])
def test_dislikes_are_neither_counted_nor_predicted(rng, more_missing):
    logits, known, held_out, _ = world(rng, 60, 80)
    signed = known.toarray()
    signed[(signed == 0) & (held_out.toarray() == 0) & (rng.random(signed.shape) < 0.2)] = -1.0
    signed[0] = -1.0  # no like: left out
    held_out = csr_array(held_out.toarray() * (np.arange(60) > 0)[:, None])
    asked = []

    class Watched:
        def scores(self, histories):
            asked.append(histories.toarray())
            return logits[1 : 1 + histories.shape[0]]

    found = fit_calibrator(Watched(), csr_array(signed), held_out, more_missing=more_missing)
    lengths = (signed[1:] > 0).sum(axis=1)
    assert (found.shortest_history, found.longest_history) == (lengths.min(), lengths.max())
    assert found.held_out_share == pytest.approx(held_out.nnz / (held_out.nnz + lengths.sum()))
    np.testing.assert_array_equal(asked[0], signed[1:])
    assert (asked[-1] < 0).any()
    # all that is disliked may have any score
    logits[1:][signed[1:] < 0] = 1e9
    again = fit_calibrator(Watched(), csr_array(signed), held_out, more_missing=more_missing)
    assert again == found


def test_a_sample_of_the_pairs_gives_nearly_the_curve_of_all(rng, monkeypatch):
    logits, known, held_out, _ = world(rng)
    monkeypatch.setattr(module, "N_SAMPLED", 10**9)
    everything = fit_calibrator(Fixed(known, logits), known, held_out)
    monkeypatch.setattr(module, "N_SAMPLED", 30_000)
    some = fit_calibrator(Fixed(known, logits), known, held_out)
    at = np.linspace(-8, 8, 50)
    np.testing.assert_allclose(some.probability(at, 20), everything.probability(at, 20), rtol=0.25)


def test_no_more_users_are_taken_than_allowed(rng):
    logits, known, held_out, _ = world(rng, 60, 40)
    every, all_60, some = (
        fit_calibrator(Fixed(known, logits), known, held_out, max_users=n) for n in (None, 60, 20)
    )
    assert every == all_60 and every.n_pairs == held_out.nnz
    assert 0 < some.n_pairs < held_out.nnz / 2


def test_the_fit_is_at_the_lowest_point_of_the_likelihood(rng, monkeypatch):
    logits, known, held_out, _ = world(rng, 60, 40)
    monkeypatch.setattr(module, "N_SAMPLED", 10**9)
    found = fit_calibrator(Fixed(known, logits), known, held_out)

    def nll(calibrator):
        p = calibrator.probability(logits, np.diff(known.indptr)[:, None])
        y, is_unseen = held_out.toarray() > 0, known.toarray() == 0
        return -np.log(np.where(y, p, 1 - p))[is_unseen].sum()

    told = found.to_json()
    for name in ("intercept", "history_slope"):
        for step in (-0.3, 0.3):
            other = Calibrator.from_json({**told, name: told[name] + step})
            assert nll(other) > nll(found)


def test_scores_that_say_nothing_still_rise():
    rng = np.random.default_rng(1)
    logits, known, _, _ = world(rng, 80, 60)
    wrong_way = 1 / (1 + np.exp(2 + logits))
    is_held_out = (rng.random(known.shape) < wrong_way) & (known.toarray() == 0)
    found = fit_calibrator(Fixed(known, logits), known, csr_array(is_held_out.astype(float)))
    assert min(found.slopes) >= module.LEAST_SLOPE


def test_users_without_a_history_are_left_out_and_what_cannot_be_used_is_told(rng):
    logits, known, held_out, _ = world(rng, 20, 30)
    nothing = csr_array(known.shape)
    with pytest.raises(DataError, match="nothing is held out"):
        fit_calibrator(Fixed(known, logits), known, nothing)
    with pytest.raises(DataError, match="nothing is held out"):
        fit_calibrator(Fixed(known, logits), nothing, held_out)
    with pytest.raises(DataError, match="are in the histories too"):
        fit_calibrator(Fixed(known, logits), known, known)
    with pytest.raises(DataError, match="same users and items"):
        fit_calibrator(Fixed(known, logits), known[:5], held_out)


def test_a_calibrator_goes_through_json():
    assert Calibrator.from_json(json.loads(json.dumps(CURVE.to_json()))) == CURVE


@pytest.mark.parametrize(
    "change",
    [
        {"slopes": [1.0, 1.0, 0.0, 1.0]},
        {"slopes": [1.0]},
        {"slopes": 3.0},
        {"knots": [1.0, 0.0, 2.0]},
        {"knots": [], "slopes": [1.0]},
        {"knots": [1.0, "x", 2.0]},
        {"intercept": float("nan")},
        {"intercept": 10**400},
        {"intercept": True},
        {"intercept": None},
        {"shortest_history": 0},
        {"longest_history": 3},
        {"mean_confidence": 0.0},
        {"another": 1.0},
    ],
)
def test_json_that_is_no_calibrator_is_refused(change):
    with pytest.raises(DataError, match="calibrator"):
        Calibrator.from_json({**CURVE.to_json(), **change})


# The estimator ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counts():
    return group_counts()


@pytest.fixture(scope="module")
def model(counts):
    return ImplicitCFNADE(**SMALL).fit(counts)


def test_probability_is_the_curve_of_the_scores_and_ranks_as_they_do(model, counts):
    history = {0: 5, 2: 1, 4: 3}
    row = csr_array((np.array([5.0, 1.0, 3.0]), ([0, 0, 0], [0, 2, 4])), shape=(1, 20))
    found = model.probability(history)
    assert found.shape == (20,) and np.isnan(found[[0, 2, 4]]).all()
    unseen = np.setdiff1d(np.arange(20), [0, 2, 4])
    scores = model.scores(row)[0].astype(float)
    expected = [slow_probability(model.calibrator_, z, 3) for z in scores[unseen]]
    np.testing.assert_allclose(found[unseen], expected)
    ids, _ = model.recommend_for(history, n=20)
    assert ids.tolist() == unseen[np.argsort(-found[unseen], kind="stable")].tolist()
    np.testing.assert_array_equal(model.probability(history, [7, 1]), found[[7, 1]])
    assert model.probability(history, []).shape == (0,)
    np.testing.assert_array_equal(model.probability(row), found)


def test_probabilities_of_all_histories_add_up_to_about_what_is_held_out(model, counts):
    sums = [np.nansum(model.probability(counts[[user]])) for user in range(60)]
    calibrator = model.calibrator_
    share = calibrator.held_out_share
    assert np.mean(sums) == pytest.approx(counts.nnz / 60 * share / (1 - share), rel=0.5)


def test_items_that_are_not_known_are_told(model):
    with pytest.raises(DataError, match="item 99 is not in this model"):
        model.probability({0: 1}, [99])
    with pytest.raises(DataError, match="item 99 is not in this model"):
        model.probability({99: 1})


def test_a_model_without_a_validation_part_says_what_to_do(counts):
    model = ImplicitCFNADE(**SMALL, validation_share=0.0).fit(counts)
    assert model.calibrator_ is None
    with pytest.raises(ConfigError, match=r"call calibrate\(histories, held_out\), or fit with"):
        model.probability({0: 1})
    with pytest.raises(ConfigError, match="not fitted yet"):
        ImplicitCFNADE().probability({0: 1})


def test_a_model_can_be_calibrated_on_other_data(counts):
    model = ImplicitCFNADE(**SMALL, validation_share=0.0).fit(counts[:40])
    known = csr_array(np.where(np.arange(20) < 10, counts[40:].toarray(), 0))
    later = csr_array(np.where(np.arange(20) < 10, 0, counts[40:].toarray()))
    before = model.scores(counts)
    assert model.calibrate(known, later) is model
    np.testing.assert_array_equal(model.scores(counts), before)
    assert np.isfinite(model.probability({0: 1}, [1, 3])).all()
    with pytest.raises(DataError, match="must have the model's 20 items"):
        model.calibrate(known[:, :5], later[:, :5])


def test_a_saved_model_keeps_it_and_one_saved_without_has_none(model, counts, tmp_path):
    model.save(tmp_path / "model")
    loaded = ImplicitCFNADE.load(tmp_path / "model")
    assert loaded.calibrator_ == model.calibrator_
    np.testing.assert_array_equal(loaded.probability({0: 5}), model.probability({0: 5}))
    loaded.partial_fit(counts, n_epochs=1)
    loaded.save(tmp_path / "more")
    assert "calibrator" not in json.loads((tmp_path / "more" / "model.json").read_text())
    assert ImplicitCFNADE.load(tmp_path / "more").calibrator_ is None


def test_a_calibrator_that_is_none_is_refused_with_the_model(model, tmp_path):
    model.save(tmp_path / "model", calibrator={"slope": 1.0})
    with pytest.raises(ArtifactError, match="the calibrator has missing or unknown fields"):
        ImplicitCFNADE.load(tmp_path / "model")


def test_more_data_drops_it_unless_known_items_stay_as_they_are(counts):
    def fitted():
        return ImplicitCFNADE(**SMALL).fit(counts)

    wider = csr_array(np.hstack([counts.toarray(), np.ones((60, 1))]))
    before = fitted().calibrator_
    assert fitted().partial_fit(wider, n_epochs=1, train="new").calibrator_ == before
    assert fitted().partial_fit(wider, n_epochs=0).calibrator_ == before
    more = fitted().partial_fit(counts, n_epochs=1)
    with pytest.raises(ConfigError, match="it was trained further since"):
        more.probability({0: 1})


# Where the data lack items that users have: the top of the list

TOP_USERS, TOP_ITEMS = 1_500, 200


class ByItem:
    """The same logits for everybody, but for what the length of the history adds to them."""

    def __init__(self, logits, by_length=0.0, stretch=0.0):
        self.logits, self.by_length, self.stretch = logits, by_length, stretch

    def scores(self, histories):
        log_n = np.log(np.maximum(np.diff(histories.indptr), 1))[:, None]
        return self.logits * (1.0 + self.stretch * log_n) + self.by_length * log_n


@pytest.fixture(scope="module")
def parts():
    """Logits of all items, train, validation, and a tenth of everybody's items that is missing."""
    rng = np.random.default_rng(3)
    logits = np.sort(rng.normal(-3.0, 2.5, TOP_ITEMS))
    has = rng.random((TOP_USERS, TOP_ITEMS)) < 1 / (1 + np.exp(-logits))
    missing = has & (rng.random(has.shape) < 0.1)
    validation = has & ~missing & (rng.random(has.shape) < 0.1)
    train = has & ~missing & ~validation
    return logits, *(csr_array(part.astype(float)) for part in (train, validation, missing))


def top_tenth(calibrator, scorer, known, missing):
    """Mean probability, and share that came true, of the highest tenth of the missing items."""
    is_unseen = known.toarray() == 0
    n_history = np.diff(known.indptr)[:, None]
    p = calibrator.probability(scorer.scores(known), n_history)[is_unseen]
    y = (missing.toarray() > 0)[is_unseen]
    order = np.argsort(-p, kind="stable")
    n = np.searchsorted(np.cumsum(y[order]), y.sum() // 10) + 1
    return p[order[:n]].mean(), y[order[:n]].mean(), p.sum() / y.sum()


@pytest.mark.parametrize("by_length, stretch", [(0.0, 0.0), (2.0, 0.0), (0.0, 0.3)])
def test_the_highest_values_come_true_at_the_rate_they_promise(parts, by_length, stretch):
    logits, train, validation, missing = parts
    scorer = ByItem(logits, by_length, stretch)
    known = csr_array(train + validation)
    found = fit_calibrator(scorer, train, validation, more_missing=True)
    promised, came_true, total = top_tenth(found, scorer, known, missing)
    assert promised == pytest.approx(came_true, rel=0.1)
    assert total == pytest.approx(1.0, abs=0.1)


def test_without_the_correction_they_are_too_low(parts):
    logits, train, validation, missing = parts
    scorer = ByItem(logits)
    found = fit_calibrator(scorer, train, validation)
    promised, came_true, _ = top_tenth(found, scorer, csr_array(train + validation), missing)
    assert promised < 0.8 * came_true


def test_with_nothing_else_missing_the_plain_curve_holds(parts):
    logits, train, validation, missing = parts
    scorer = ByItem(logits)
    known = csr_array(train + validation)
    some, others = slice(0, TOP_USERS, 2), slice(1, TOP_USERS, 2)
    found = fit_calibrator(scorer, known[some], missing[some])
    promised, came_true, _ = top_tenth(found, scorer, known[others], missing[others])
    assert promised == pytest.approx(came_true, rel=0.1)


def test_the_corrected_curve_rises_and_goes_through_json(parts):
    logits, train, validation, _ = parts
    found = fit_calibrator(ByItem(logits, stretch=5.0), train, validation, more_missing=True)
    assert min(found.slopes) >= LEAST_SLOPE
    assert Calibrator.from_json(json.loads(json.dumps(found.to_json()))) == found
    p = found.probability(np.linspace(-50, 50, 500), 20)
    assert (np.diff(p) >= 0).all()


def test_histories_that_shrink_to_nothing_are_no_obstacle():
    rng = np.random.default_rng(0)
    train = csr_array(np.eye(40, 30) + np.eye(40, 30, -30))  # one item each
    held_out = csr_array((rng.random(train.shape) < 0.1) & (train.toarray() == 0), dtype=float)
    found = fit_calibrator(ByItem(rng.normal(size=30)), train, held_out, more_missing=True)
    assert np.isfinite([found.intercept, found.history_slope, *found.slopes]).all()
