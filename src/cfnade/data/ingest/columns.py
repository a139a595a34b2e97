"""Which column holds what: named by the caller, or recognised by its name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cfnade.errors import ConfigError, DataError

logger = logging.getLogger(__name__)

_SHOWN = 20  # columns in a message


_ID_ENDINGS = ("id", "no", "number", "code")


def _ids_of(nouns: str, endings: tuple[str, ...] = ("id",)) -> tuple[str, ...]:
    """All forms of each noun, the id first: a table may hold `artist_id` and `artist`."""
    return tuple(f"{noun}{ending}" for noun in nouns.split() for ending in (*endings, ""))


# In the form that `_plain` gives, best first.
USER_NAMES = (
    *_ids_of("user household customer member account subscriber", _ID_ENDINGS),
    *_ids_of("profile viewer listener visitor client player reader person"),
    "uid",
)
ITEM_NAMES = (
    *_ids_of("item product article", _ID_ENDINGS),
    *_ids_of("show movie film series video title episode program artist track song"),
    *_ids_of("album podcast station book game app content venue place location business"),
    *("stockcode", "sku", "asin", "isbn", "iid"),
)
COUNT_NAMES = (
    *("count", "counts", "plays", "playcount", "watches", "watchcount", "views", "viewcount"),
    *("listens", "listencount", "listeningcount", "streams", "scrobbles", "purchases"),
    *("visits", "checkins", "clicks", "interactions", "completions", "frequency"),
    *("weight", "n"),
)
"""Ratings, quantities and timestamps are not counts: the caller has to name those."""
_OF_EVENTS = "event order purchase transaction invoice visit checkin view click play listen watch"
_DONE = "played listened watched viewed clicked visited ordered purchased bought rated logged"
_OF_LOGS = "review rating start created updated session utc unix local"
TIME_NAMES = (
    *("timestamp", "time", "datetime", "date", "ts", "createdat", "unixtime", "epoch"),
    *("unixreviewtime", "tdat", "timestampms", "occurredat", "when", "at"),
    *(
        f"{noun}{form}"
        for noun in (*_OF_EVENTS.split(), *_OF_LOGS.split())
        for form in ("timestamp", "time", "datetime", "date", "ts", "at", "day", "dt")
        if f"{noun}{form}" not in ("playtime", "listentime", "watchtime", "viewtime")  # durations
    ),
    *(f"{verb}{end}" for verb in _DONE.split() for end in ("at", "on")),
    *("day", "week"),
)
ORDER_NAMES = (
    *("position", "basket", "order", "sequence", "rank", "step", "ordernumber", "orderno"),
    *("basketnumber", "visitnumber", "sequencenumber", "seq"),
)
"""Places in the order of a user's events, which cannot be compared across users."""
EVENT_NAMES = (
    *("event", "eventtype", "eventname", "action", "actiontype", "behavior", "behaviour"),
    *("behaviortype", "behaviourtype", "interaction", "interactiontype", "feedback"),
    *("feedbacktype", "activity", "activitytype", "eventkind", "type"),
)
LABEL_NAMES = ("name", "itemname", "title", "label", "description", "artist", "producttype")


@dataclass(frozen=True)
class Columns:
    """Which columns hold what, and whether rows without an id are dropped."""

    user_col: str | None = None
    item_col: str | None = None
    count_col: str | None = None
    events: bool | None = None
    time_col: str | None = None
    event_col: str | None = None
    drop_missing_ids: bool = False


def choose_columns(
    columns: Sequence[str], named: Columns, *, name_col: str | None = None
) -> dict[str, str]:
    """Column by role: "user" and "item"; "count" if rows carry counts; "time" and "event" if known.

    Logs what was chosen, and all columns that were not. A column of names has no other role.
    """
    events, count_col = named.events, named.count_col
    if events and count_col is not None:
        raise ConfigError(
            f"rows are either events or carry counts; drop either events or count_col={count_col!r}"
        )
    name = find_column(columns, name_col, "name", ())
    others = [column for column in columns if column != name]  # to recognise roles among

    def find(given: str | None, role: str, known: Iterable[str]) -> str | None:
        return find_column(columns if given else others, given, role, known)

    found = {
        "user": find(named.user_col, "user", USER_NAMES),
        "item": find(named.item_col, "item", ITEM_NAMES),
    }
    roles = {role: column for role, column in found.items() if column is not None}
    if len(roles) < len(found):
        error = DataError(_missing(columns, *(found.keys() - roles.keys())))
        error.add_note("in Python: fit(read_interactions(data, user_col=..., item_col=...))")
        raise error
    count = None if events else find(count_col, "count", COUNT_NAMES)
    if count is None and events is False:
        raise DataError(_missing(columns, "count"))
    if count is not None:
        roles["count"] = count
    optional = {
        "time": (named.time_col, (*TIME_NAMES, *ORDER_NAMES)),
        "event": (named.event_col, EVENT_NAMES),
    }
    for role, (given, known) in optional.items():
        # A recognised name must not take a column from another role; a given one is refused below.
        free = columns if given else [c for c in others if c not in roles.values()]
        column = None if is_left_out(columns, given) else find_column(free, given, role, known)
        if column is not None:
            roles[role] = column
    by_column: dict[str, str] = {}
    for role, column in roles.items():
        other = by_column.setdefault(column, role)
        if other != role:
            raise DataError(
                f"column {column!r} cannot be both the {other} and the {role}; "
                f"name another one as {other}_col or {role}_col"
            )
    values = "one event per row" if count is None else f"counts from {count!r}"
    values += "".join(f", {role}s from {roles[role]!r}" for role in optional if role in roles)
    logger.info("users from column %r, items from %r, %s", roles["user"], roles["item"], values)
    report_unused(others, roles, may_count=count is None and events is None)
    return roles


def is_left_out(columns: Sequence[str], given: str | None) -> bool:
    """Whether the caller wrote "none": there is no such column, or it is not to be used."""
    return given is not None and given.casefold() == "none" and given not in columns


def is_order(column: str) -> bool:
    """Whether a column's name says that it holds places in an order."""
    return _plain(column) in ORDER_NAMES


def is_time(column: str) -> bool:
    """Whether a column's name says that it holds times."""
    return _plain(column) in TIME_NAMES


def choose_name_columns(
    columns: Sequence[str],
    *,
    item_col: str | None,
    name_col: str | None,
    data_item_col: str | None = None,
) -> dict[str, str]:
    """Column by role, "item" and "name", of a table of item names.

    `data_item_col` is the item column of the data: taken if this table has it, too.
    """
    if item_col is None and data_item_col in columns:
        item_col = data_item_col
    item = required_column(columns, item_col, "item", (*ITEM_NAMES, "id"))
    name = _name_column(columns, item, name_col)
    others = [column for column in columns if column != item]
    if name is None and len(others) == 1:
        name = others[0]
    if name is None:
        raise DataError(_missing(columns, "name"))
    logger.info("names of items %r from column %r", item, name)
    return {"item": item, "name": name}


def find_name_columns(columns: Sequence[str], item_col: str | None) -> dict[str, str] | None:
    """As `choose_name_columns`, of data that may have a column of names; None if it has none."""
    item = find_column(columns, item_col, "item", ITEM_NAMES)
    name = None if item is None else _name_column(columns, item, None)
    return None if item is None or name is None else {"item": item, "name": name}


def _name_column(columns: Sequence[str], item: str, name_col: str | None) -> str | None:
    """The given column, or else one that is called like the items' names."""
    nouns = dict.fromkeys(_plain(item).removesuffix(ending) for ending in _ID_ENDINGS)
    known = [f"{noun}{form}" for noun in nouns for form in ("name", "title", "")]
    others = [column for column in columns if column != item]
    return find_column(others, name_col, "name", (*known, *LABEL_NAMES))


def report_unused(columns: Sequence[str], roles: dict[str, str], *, may_count: bool) -> None:
    """Log the columns that are not used; with `may_count`, one of them might hold counts."""
    unused = [column for column in columns if column not in roles.values()]
    if not unused:
        return
    known = {*USER_NAMES, *ITEM_NAMES, *LABEL_NAMES, *TIME_NAMES, *ORDER_NAMES, *EVENT_NAMES}
    if may_count and any(_plain(column) not in known for column in unused):
        logger.warning(
            "each row counts as one event; unused columns: %s (name a column of counts as "
            "count_col, or confirm with events=True)",
            _listed(unused),
        )
    else:
        logger.warning("unused columns: %s", _listed(unused))


def required_column(
    columns: Sequence[str], given: str | None, role: str, known: Iterable[str]
) -> str:
    """As `find_column`, but raises `DataError` if there is none."""
    column = find_column(columns, given, role, known)
    if column is None:
        raise DataError(_missing(columns, role))
    return column


def _missing(columns: Sequence[str], *roles: str) -> str:
    """A message that columns were not found, with those there are."""
    headless = any(name.strip().replace(".", "").isdigit() for name in columns)
    hint = " (does the first line hold the column names?)" if headless else ""
    names = sorted(roles, reverse=True)  # the user first
    these = "one of these" if len(names) == 1 else "two of these"
    return (
        f"found no {' and no '.join(names)} column; the columns are {_listed(columns)}{hint}; "
        f"name {these} as {' and '.join(f'{role}_col' for role in names)}"
    )


def find_column(
    columns: Sequence[str], given: str | None, role: str, known: Iterable[str]
) -> str | None:
    """The given column, ignoring case if needed, or else the first with a known name."""
    if given is None:
        by_plain_name = {_plain(column): column for column in reversed(columns)}
        return next((by_plain_name[name] for name in known if name in by_plain_name), None)
    if given in columns:
        return given
    for column in columns:
        if column.casefold() == given.casefold():
            return column
    raise DataError(
        f"there is no {role} column {given!r}; the columns are {_listed(columns)}; "
        f"name one of these as {role}_col"
    )


def _plain(name: str) -> str:
    """Without case and punctuation: `User ID`, `user_id` and `userId` are all `userid`."""
    return "".join(filter(str.isalnum, name.casefold()))


def _listed(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - _SHOWN:,} more" if len(columns) > _SHOWN else ""
    return ", ".join(f"{name!r:.80}" for name in columns[:_SHOWN]) + more if columns else "none"
