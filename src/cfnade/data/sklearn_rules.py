"""scikit-learn's rules for estimators, without importing scikit-learn."""

from __future__ import annotations

import inspect
from typing import Any


def parameter_names(estimator: type) -> list[str]:
    """The keywords of its constructor."""
    return [name for name in inspect.signature(estimator.__init__).parameters if name != "self"]  # type: ignore[misc]


def representation(estimator: Any) -> str:
    """A call of its constructor with the keywords that differ from their defaults."""
    parameters = inspect.signature(type(estimator).__init__).parameters
    values = ((name, getattr(estimator, name)) for name in parameter_names(type(estimator)))
    changed = [f"{n}={v!r}" for n, v in values if not _are_same(v, parameters[n].default)]
    return f"{type(estimator).__name__}({', '.join(changed)})"


def _are_same(value: Any, default: Any) -> bool:
    """Whether a setting has its default; one from a file is equal, but not the same object."""
    is_plain = isinstance(value, str | int | float) and type(value) is type(default)
    return value is default or (is_plain and bool(value == default))


def tags(*, is_transformer: bool = False) -> Any:
    """The input: sparse counts, never negative, and no target; a transformer returns float64."""
    from sklearn.utils import (  # only sklearn calls this
        InputTags,
        Tags,
        TargetTags,
        TransformerTags,
    )

    return Tags(
        estimator_type=None,
        target_tags=TargetTags(required=False),
        input_tags=InputTags(sparse=True, positive_only=True),
        transformer_tags=TransformerTags(preserves_dtype=[]) if is_transformer else None,
    )
