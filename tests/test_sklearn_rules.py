"""scikit-learn's own checks of an estimator, as far as they apply."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from cfnade import ConfigError, ImplicitCFNADE, RelativeRating
from tests.networks import random_counts

SMALL = {"n_hidden": 2, "max_epochs": 1}

DO_NOT_APPLY = {
    "check_positive_only_tag_during_fit": "negative counts are refused, in words of our own",
    "check_dtype_object": "scipy's sparse matrices hold no Python objects",
    "check_estimators_empty_data_messages": "empty data is refused, in words of our own",
    "check_n_features_in_after_fitting": "fewer items are refused, in words of our own",
}


class TakesDense(ImplicitCFNADE):
    """The checks bring dense arrays; `fit` asks for sparse ones and says how to make them."""

    def fit(self, counts: Any, y: None = None, **options: Any) -> ImplicitCFNADE:
        return super().fit(counts if issparse(counts) else csr_array(counts), **options)

    def partial_fit(self, counts: Any, y: None = None) -> ImplicitCFNADE:
        return super().partial_fit(counts if issparse(counts) else csr_array(counts), n_epochs=1)


@pytest.mark.filterwarnings("ignore:.*does not inherit from `sklearn.base.BaseEstimator`")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_checks_of_scikit_learn_pass_where_they_apply():
    outcomes = check_estimator(
        TakesDense(**SMALL), expected_failed_checks=DO_NOT_APPLY, on_fail=None, on_skip=None
    )
    failed = {o["check_name"]: o["exception"] for o in outcomes if o["status"] == "failed"}
    assert not failed
    excused = {o["check_name"] for o in outcomes if o["status"] == "xfail"}
    assert excused == set(DO_NOT_APPLY)
    assert sum(o["status"] == "passed" for o in outcomes) >= 35


RATINGS_DO_NOT_APPLY = {
    **DO_NOT_APPLY,
    "check_estimators_empty_data_messages": "no users and no items are ratings of nobody",
    "check_fit2d_predict1d": "one dimension is refused, in words of our own",
    "check_dict_unchanged": "the first transform keeps sorted keys for the next ones",
}


class RatesDense(RelativeRating):
    """As above."""

    def fit(self, counts: Any, y: None = None) -> RelativeRating:
        return super().fit(counts if issparse(counts) else csr_array(counts))

    def transform(self, counts: Any) -> csr_array:
        return super().transform(counts if issparse(counts) else csr_array(counts))


@pytest.mark.filterwarnings("ignore:.*does not inherit from `sklearn.base.BaseEstimator`")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_relative_ratings_are_a_transformer_by_the_checks_of_scikit_learn():
    outcomes = check_estimator(
        RatesDense(), expected_failed_checks=RATINGS_DO_NOT_APPLY, on_fail=None, on_skip=None
    )
    failed = {o["check_name"]: o["exception"] for o in outcomes if o["status"] == "failed"}
    assert not failed
    excused = {o["check_name"] for o in outcomes if o["status"] == "xfail"}
    assert excused == set(RATINGS_DO_NOT_APPLY)
    assert sum(o["status"] == "passed" for o in outcomes) >= 36


def test_relative_ratings_have_no_settings():
    assert repr(clone(RelativeRating().set_params())) == "RelativeRating()"
    with pytest.raises(ConfigError, match="no settings, got depth"):
        RelativeRating().set_params(depth=1)


def test_the_tags_say_what_data_is_taken():
    tags = get_tags(ImplicitCFNADE())
    assert tags.input_tags.sparse and tags.input_tags.positive_only
    assert not tags.target_tags.required


def test_it_can_be_the_last_step_of_a_pipeline_and_be_cloned():
    pipeline = clone(make_pipeline(ImplicitCFNADE(**SMALL))).set_params(implicitcfnade__n_hidden=3)
    fitted = pipeline.fit(random_counts())[-1]
    assert fitted.n_hidden == 3 and fitted.n_features_in_ == 20


def test_a_fitted_one_survives_pickle_for_those_who_send_it_to_other_processes():
    model = ImplicitCFNADE(**SMALL).fit(random_counts())
    again = pickle.loads(pickle.dumps(model))
    assert again.recommend_for([1, 2])[0].tolist() == model.recommend_for([1, 2])[0].tolist()


def test_relative_ratings_before_the_model_change_nothing():
    """Only the order of an item's counts matters, in the validation part as well."""
    counts = random_counts()
    settings = {**SMALL, "max_epochs": 4, "validation_share": 0.3}
    alone = ImplicitCFNADE(**settings).fit(counts)
    ratings, model = make_pipeline(RelativeRating(), ImplicitCFNADE(**settings)).fit(counts)
    assert alone.validation_mpr_ == model.validation_mpr_
    new = 3 * random_counts(seed=1)  # counts between and above those seen
    np.testing.assert_array_equal(model.scores(ratings.transform(new)), alone.scores(new))


def test_a_clone_keeps_the_distributions_it_was_given():
    counts = random_counts()
    given = RelativeRating().fit(counts)
    model = clone(ImplicitCFNADE(**SMALL, relative_rating=given))
    assert model.relative_rating is not given
    fitted = model.fit(counts[:5]).scorer_.relative_rating
    np.testing.assert_array_equal(fitted.distinct_counts_, given.distinct_counts_)
    assert not hasattr(clone(given), "n_items_")  # in a pipeline it is fitted anew
