from __future__ import annotations

import inspect
import re

from cfnade import errors


def test_every_error_is_ours_a_built_in_one_and_in_the_diagram():
    kinds = dict(inspect.getmembers(errors, inspect.isclass))
    assert sorted(re.findall(r"\w+Error", errors.__doc__)) == sorted(kinds)
    del kinds["CfnadeError"]
    for kind in kinds.values():
        assert issubclass(kind, errors.CfnadeError)
        assert issubclass(kind, ValueError | ImportError | RuntimeError)


def test_a_number_comes_with_its_noun():
    shown = [errors.n_of(n, "user") for n in (0, 1, 1234)]
    assert shown == ["0 users", "1 user", "1,234 users"]


def test_a_message_is_never_longer_than_people_read():
    error = errors.DataError(f"the column {'a' * 9_000!r} is missing; name another")
    assert len(str(error)) < 2_500
    assert str(error).startswith("the column 'aaa") and str(error).endswith("; name another")
    assert str(errors.DataError("short")) == "short"


def test_a_missing_package_is_installed_by_its_extra_or_else_by_its_name():
    assert str(errors.MissingExtraError("torch", "train", "fitting")).endswith(
        "fitting needs torch; install it with: pip install 'cfnade[train]'"
    )
    message = str(errors.MissingExtraError("pandas or polars", None, "a frame"))
    assert message == "a frame needs pandas or polars; install it with: pip install pandas"
