"""Features of items in a saved model: arrays beside the ratings, texts beside the ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.item_features import ItemFeatures
from cfnade.errors import ArtifactError
from cfnade.storage.encoding import narrow
from cfnade.storage.untrusted import are_runs

ARRAYS = ("feature_starts", "feature_of", "feature_weight", "feature_column")
"""Where each item's features start, the features, their weights, and the column of each."""

_MOST_COLUMNS = 10_000
_WHOLE = ["uint8", "uint16", "uint32", "int64"]


def pack_features(
    features: ItemFeatures | None,
) -> tuple[dict[str, NDArray[Any]], dict[str, Any] | None]:
    """Arrays and texts of features; none of them without features."""
    if features is None:
        return {}, None
    matrix = features.matrix.sorted_indices()
    arrays = (
        matrix.indptr.astype("<i8"),
        narrow(matrix.indices),
        matrix.data.astype("<f4"),
        narrow(features.column),
    )
    texts = {
        "columns": list(features.columns),
        "forms": list(features.forms),
        "values": [str(value) for value in features.values],
    }
    return dict(zip(ARRAYS, arrays, strict=True)), texts


def read_features(arrays: Mapping[str, NDArray[Any]], texts: Any) -> ItemFeatures | None:
    """Undo `pack_features`, whatever the files hold.

    Raises:
        ArtifactError: If the parts do not belong together.
    """
    if not arrays and texts is None:
        return None
    if set(arrays) != set(ARRAYS) or not isinstance(texts, dict):
        raise ArtifactError("the features of the items are not complete")
    starts, of, weight, column = (arrays[name] for name in ARRAYS)
    columns, values = _texts(texts.get("columns")), _texts(texts.get("values"))
    forms = _texts(texts.get("forms"))
    if len(set(columns)) != len(columns) or len(columns) > _MOST_COLUMNS:
        raise ArtifactError("the columns of features must be distinct")
    if len(forms) not in (0, len(columns)):
        raise ArtifactError("columns of features need as many forms, or none")
    kinds = [array.dtype.name for array in (starts, of, column)]
    if (
        any(array.ndim != 1 for array in (starts, of, weight, column))
        or starts.dtype.name != "int64"
        or weight.dtype.name != "float32"
        or not set(kinds) <= set(_WHOLE)
    ):
        raise ArtifactError("the features of the items are not the arrays they should be")
    if not are_runs(starts, of, weight):
        raise ArtifactError("features must follow each other and fill their arrays")
    of, column = of.astype(np.int64), column.astype(np.int64)
    is_first = np.zeros(of.size + 1, dtype=np.bool_)
    is_first[starts] = True
    rises = np.diff(of, prepend=-1) > 0
    in_range = all(
        not numbers.size or 0 <= numbers.min() <= numbers.max() < end
        for numbers, end in ((of, len(values)), (column, len(columns)))
    )
    if not in_range or column.size != len(values) or not (rises | is_first[:-1]).all():
        raise ArtifactError("an item has a feature that does not exist, or twice")
    if not (np.isfinite(weight) & (weight > 0)).all():
        raise ArtifactError("weights of features must be finite and above 0")
    keys = set(zip(column.tolist(), values, strict=True))
    if len(keys) != len(values):
        raise ArtifactError("a value occurs twice in a column of features")
    matrix = csr_array((weight, of, starts), shape=(starts.size - 1, len(values)))
    names = np.array(values, dtype=object)
    return ItemFeatures(matrix, names, column, tuple(columns), tuple(forms))


def _texts(listed: Any) -> list[str]:
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise ArtifactError("the columns and values of features must be lists of texts")
    return listed
