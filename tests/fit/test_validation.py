from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ConfigError
from cfnade.fit.validation import ValidationConfig, cost_by, hold_out_validation, refits
from tests.test_estimator import group_counts


def test_validation_by_events_predicts_what_is_new_to_a_user():
    counts = group_counts().toarray()
    counts[:, 0] = 30.0  # everybody's daily bread: never new
    bread = {}
    counts[:, 1:4] = np.minimum(counts[:, 1:4], 1.0)  # what is new has a single event
    for by in ("pairs", "events", "sessions"):
        config = ValidationConfig(validation_by=by)
        train, held_out = hold_out_validation(csr_array(counts), config, 0)
        np.testing.assert_array_equal((train + held_out).toarray(), counts)
        assert held_out is not None
        bread[by] = held_out[:, [0]].nnz
    assert bread["pairs"] > bread["events"] == bread["sessions"] == 0


def test_few_users_are_held_out_from_and_nothing_where_it_is_not_to_be(caplog):
    counts = group_counts()
    _, held_out = hold_out_validation(counts, ValidationConfig(validation_users=7), 0)
    assert (np.diff(held_out.indptr) > 0).sum() == 7
    train, held_out = hold_out_validation(counts, ValidationConfig(validation_share=0.0), 0)
    assert held_out is None and train is counts and not caplog.text
    few = csr_array(np.eye(3))
    assert hold_out_validation(few, ValidationConfig(), 0)[1] is None
    assert "nobody has enough items" in caplog.text
    caplog.clear()
    repeated = csr_array(2.0 * np.ones((9, 9)))
    assert hold_out_validation(repeated, ValidationConfig(validation_by="sessions"), 0)[1] is None
    assert "of a single event" in caplog.text


def test_a_refit_is_for_what_was_held_out_and_worth_it():
    assert not refits(ValidationConfig(refit=True), 1.0)  # nothing to add
    assert refits(ValidationConfig(), 0.95) and not refits(ValidationConfig(), 0.995)
    assert refits(ValidationConfig(refit=True), 0.995)
    assert not refits(ValidationConfig(refit=False), 0.5)


def test_less_cost_is_better_by_every_metric():
    good, bad = {"mpr": 5.0, "ndcg@100": 0.4}, {"mpr": 6.0, "ndcg@100": 0.3}
    for by in (None, "mpr", "ndcg@100"):
        assert cost_by(good, by) < cost_by(bad, by)
    # One per cent of the one is worth one per cent of the other.
    level = {"mpr": 5.0 * 1.01, "ndcg@100": 0.4 * 1.01}
    assert cost_by(level, None) == pytest.approx(cost_by(good, None))


@pytest.mark.parametrize(
    "wrong",
    [
        {"validation_by": "time"},
        {"validation_users": 0},
        {"validation_share": 1.0},
        {"item_l2_trials": 0},
    ],
)
def test_what_has_no_meaning_is_told(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ValidationConfig(**wrong)
