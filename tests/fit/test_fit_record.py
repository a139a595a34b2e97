"""What a fit found is saved and read again; what cannot be read is refused."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import pytest

from cfnade import ArtifactError, ImplicitCFNADE, Readout
from cfnade.beyond.features import FeatureStrengths
from cfnade.fit.fit_record import FitRecord

RECORD = FitRecord(
    best_epoch=7,
    n_looks=5,
    item_l2=0.02,
    readout=Readout(direct_gain=3.0, direct_l2=1.0).or_usual(),
    feature_strengths=FeatureStrengths(),
    clock="seconds",
    event_weights={"view": 1.0, "skip": -1.0},
    target_event="view",
    partial_fits=[{"number": 1}],
    fit_seconds=2.5,
)


def test_what_is_saved_is_read_again():
    assert FitRecord.of(RECORD.to_json(), None, {}) == RECORD


def test_the_attributes_of_a_model_are_the_fields():
    model = SimpleNamespace()
    RECORD.give_to(model)
    assert model.best_epoch_ == 7 and model.feature_strengths_ == FeatureStrengths()
    assert FitRecord.of_model(model) == RECORD
    told = ImplicitCFNADE.__doc__
    assert all(f"{field.name}_: " in told for field in fields(FitRecord))


def test_an_early_version_has_less():
    record = FitRecord.of({"best_epoch": 3}, 0.5, {})
    assert (record.best_epoch, record.item_l2, record.fit_seconds) == (3, 0.5, None)
    assert record.feature_strengths is None and record.partial_fits == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"readout": []},
        {"clock": "sundial"},
        {"event_weights": [1]},
        {"event_weights": {"view": float("nan")}},
        {"event_weights": {"view": "1"}},
        {"target_event": 3},
        {"partial_fits": {}},
        {"fit_seconds": "long"},
    ],
)
def test_what_cannot_be_read_is_refused(wrong):
    with pytest.raises(ArtifactError, match="the record of its training cannot be read"):
        FitRecord.of(wrong, None, {})
