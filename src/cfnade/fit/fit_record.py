"""How a model was trained, as `model.json` keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_args

from cfnade.beyond.features import FeatureStrengths
from cfnade.beyond.readout import Readout
from cfnade.checks import check_at_least, check_whole
from cfnade.data.events import Clock, Weights
from cfnade.errors import ArtifactError
from cfnade.fit.settings import readout_of


@dataclass(frozen=True, kw_only=True)
class FitRecord:
    """What a fit found; `ImplicitCFNADE` has each field as an attribute with `_` at its end."""

    best_epoch: int = 0
    n_looks: int = 0
    item_l2: float | None = None
    readout: Readout = field(default_factory=Readout)
    feature_strengths: FeatureStrengths | None = None
    clock: Clock | None = None
    event_weights: Weights | None = None
    target_event: str | None = None
    partial_fits: list[dict[str, Any]] = field(default_factory=list)
    fit_seconds: float | None = None

    @classmethod
    def of(cls, saved: Mapping[str, Any], item_l2: float | None, fingerprint: Any) -> FitRecord:
        """Read what `to_json` gave, in this version or an early one, which lacks some fields.

        Args:
            saved: The field `training` of `model.json`.
            item_l2: The setting, for a folder without the value that was used.
            fingerprint: Of the data, to check.

        Raises:
            ArtifactError: If it cannot be used.
        """
        readout, strengths = saved.get("readout", {}), saved.get("features")
        weights, target = saved.get("event_weights"), saved.get("target_event")
        seconds, partial_fits = saved.get("fit_seconds"), saved.get("partial_fits", [])
        if (
            not isinstance(readout, dict)
            or not _are_weights(weights, target)
            or not _are_records(partial_fits, fingerprint)
            or saved.get("clock") not in (None, *get_args(Clock))
            or not (seconds is None or _is_number(seconds))
        ):
            raise ArtifactError("the record of its training cannot be read")
        for name in ("best_epoch", "n_looks"):
            check_whole(name, saved.get(name, 0), 0)
        item_l2 = saved.get("item_l2", item_l2)
        if item_l2 is not None:
            check_at_least(0, item_l2=item_l2)
        return cls(
            best_epoch=saved.get("best_epoch", 0),
            n_looks=saved.get("n_looks", 0),
            item_l2=item_l2,
            readout=readout_of(readout).or_usual(),
            feature_strengths=None if strengths is None else FeatureStrengths.of(strengths),
            clock=saved.get("clock"),
            event_weights=weights,
            target_event=target,
            partial_fits=partial_fits,
            fit_seconds=seconds,
        )

    @classmethod
    def of_model(cls, model: Any) -> FitRecord:
        """From the attributes of a fitted `ImplicitCFNADE`."""
        return cls(**{f.name: getattr(model, f"{f.name}_") for f in fields(cls)})

    def give_to(self, model: Any) -> None:
        """Set the attributes of an `ImplicitCFNADE`."""
        for name, value in vars(self).items():
            setattr(model, f"{name}_", value)

    def to_json(self) -> dict[str, Any]:
        """For `model.json`."""
        strengths = self.feature_strengths
        saved = {**vars(self), "readout": asdict(self.readout)}
        saved["features"] = None if strengths is None else asdict(strengths)
        del saved["feature_strengths"]
        return saved


def _are_weights(weights: Any, target: Any) -> bool:
    """Whether these are weights of events and the event to predict, as `save` writes them."""
    if not (target is None or isinstance(target, str)):
        return False
    if weights is None:
        return True
    return (
        isinstance(weights, dict)
        and all(map(_is_number, weights.values()))
        and (target is None or weights.get(target, 0) > 0)
    )


def _are_records(records: Any, fingerprint: Any) -> bool:
    """Whether these are records of `partial_fit`s, and the fingerprint of the first data."""
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        return False
    prints = [fingerprint, *(each.get("data_fingerprint", {}) for each in records)]
    if not all(isinstance(each, dict) for each in prints):
        return False
    numbers = [each.get("n_pairs", 0) for each in prints]
    numbers += [each.get("number", 0) for each in records]
    return all(isinstance(number, int) for number in numbers)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < math.inf
