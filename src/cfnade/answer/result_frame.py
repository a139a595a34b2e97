"""Recommendations as a pandas or polars frame, with names and probabilities."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from cfnade.answer.recommend import AnswerTable
from cfnade.checks import check_choice
from cfnade.data.catalogue import Catalogue
from cfnade.data.ingest.frames import FrameLibrary
from cfnade.errors import MissingExtraError

AsFrame: TypeAlias = bool | Literal["pandas", "polars"]
"""Whether to return a frame, and of which library: True takes the one of the training data."""

Frame: TypeAlias = Any
"""A pandas or polars frame."""


def library_of(as_frame: AsFrame, trained_on: FrameLibrary | None) -> FrameLibrary:
    """The library of the frame: the one asked for, else that of the training data, else any.

    Raises:
        ConfigError: If it is called by a name that is no library.
        MissingExtraError: If the library is not installed, or none is.
    """
    libraries: tuple[FrameLibrary, ...] = get_args(FrameLibrary)
    if isinstance(as_frame, str):
        check_choice("as_frame", as_frame, libraries)
        libraries = (as_frame,)
    elif trained_on is not None:
        libraries = (trained_on, *libraries)
    for library in libraries:
        if find_spec(library) is not None:
            return library
    raise MissingExtraError(" or ".join(libraries), None, f"as_frame={as_frame!r}")


def frame_of(found: AnswerTable, catalogue: Catalogue, users: Any, library: FrameLibrary) -> Frame:
    """One row for each recommendation, users in their order, best items first.

    Args:
        found: The recommendations.
        catalogue: Ids and names of the items.
        users: Ids of the users, (n_users,); None leaves them out.
        library: Of the frame.

    Returns:
        A frame with the columns `user_id`, `item_id`, `name`, `rank` (from 1), `probability` and
        `score`. A probability is calibrated: it is missing if the model has no calibrator, and for
        items of the history.
    """
    ids = catalogue.ids[found.column].tolist()
    columns: dict[str, Any] = {
        "item_id": ids,
        "name": [catalogue.label(item) for item in ids],
        "rank": found.rank,
        "probability": found.probability.astype(np.float64),
        "score": found.score,
    }
    if users is not None:
        listed = users.tolist() if isinstance(users, np.ndarray) else list(users)
        columns = {"user_id": [listed[row] for row in found.row.tolist()], **columns}
    if library == "pandas":
        return import_module("pandas").DataFrame(columns)
    polars = import_module("polars")
    return polars.DataFrame(columns).with_columns(polars.col("probability").fill_nan(None))
