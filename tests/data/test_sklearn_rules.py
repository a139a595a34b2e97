"""scikit-learn's own checks of an estimator, as far as they apply."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from cfnade import ConfigError, ImplicitCFNADE, RelativeRating
from cfnade.beyond.readout import NO_READOUT, Readout
from cfnade.data.splitting import hold_out
from cfnade.fit.settings import Recipe
from cfnade.metrics.evaluate import mean_percentage_ranking
from tests.networks import group_counts, random_counts

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


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"recipe": "paper", "alpha": 3.0},
        {"recipe": Recipe(n_layers=2), "readout": NO_READOUT},
    ],
)
def test_a_clone_has_the_same_settings_and_its_own_are_changed_alone(settings):
    model = ImplicitCFNADE(**settings)
    copy = clone(model)
    assert copy is not model and copy.get_params() == model.get_params()
    copy.set_params(recipe__n_layers=3, readout__direct_gain=7.0)
    assert model.get_params() == ImplicitCFNADE(**settings).get_params()
    assert (copy.recipe.n_layers, copy.readout.direct_gain) == (3, 7.0)


def test_every_parameter_that_get_params_names_can_be_set():
    for model in (ImplicitCFNADE(), ImplicitCFNADE(recipe="paper")):
        params = model.get_params(deep=True)
        for name, value in params.items():
            before = ImplicitCFNADE(recipe=model.recipe)
            assert before.set_params(**{name: value}).get_params()[name] == value
        nested = [name for name in params if "__" in name]
        assert len(nested) > 20 and all(n.split("__")[0] in ("recipe", "readout") for n in nested)


def test_nested_settings_reach_through_a_pipeline():
    pipeline = make_pipeline(ImplicitCFNADE(**SMALL))
    pipeline.set_params(
        implicitcfnade__readout__direct_gain=3.0, implicitcfnade__recipe__n_layers=2
    )
    model = pipeline[-1]
    assert model.readout == Readout(direct_gain=3.0) and model.recipe == Recipe(n_layers=2)
    assert pipeline.get_params()["implicitcfnade__readout__direct_gain"] == 3.0


def held_out_mpr(model: ImplicitCFNADE, counts: csr_array, y: None = None) -> float:
    """Minus the MPR on a part of each history: the users were not trained on."""
    known, held_out = hold_out(csr_array(counts), share=0.3, rng=0)
    relevance = model.scorer_.relative_rating.transform(held_out)
    return -mean_percentage_ranking(model, known, held_out, relevance)


def test_grid_search_finds_nested_settings():
    grid = {
        "readout__direct_gain": [1.0, 30.0],
        "recipe__activation": ["tanh", "silu"],
        "n_hidden": [2],
    }
    model = ImplicitCFNADE(max_epochs=2, readout=Readout(direct_l2=3.0, direct_neighbours=5))
    counts = group_counts()
    search = GridSearchCV(model, grid, scoring=held_out_mpr, cv=2, error_score="raise").fit(counts)
    assert len(search.cv_results_["params"]) == len(ParameterGrid(grid)) == 4
    assert len(set(search.cv_results_["mean_test_score"])) == 4  # every setting took effect
    best = search.best_params_
    fitted = search.best_estimator_
    assert fitted.readout.direct_gain == fitted.readout_.direct_gain == best["readout__direct_gain"]
    assert fitted.scorer_.network.config.activation == best["recipe__activation"]
    assert model.get_params()["readout__direct_gain"] is None  # what was given stays


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


def test_the_representation_leaves_out_defaults_even_those_read_from_a_file():
    read = " default".strip()  # equal to the default, but another object
    model = ImplicitCFNADE(recipe=read, validation_share=float("0.1"), alpha=3, patience=0)
    assert repr(model) == "ImplicitCFNADE(alpha=3, patience=0)"
