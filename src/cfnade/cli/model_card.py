"""The model card of a saved model, as Markdown: what `cfnade inspect --card` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfnade.data.sklearn_rules import parameter_names, representation
from cfnade.errors import ArtifactError, ConfigError, n_of
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.rating_estimator import CFNADE
from cfnade.fit.settings import from_json

_HELD_OUT = {
    "pairs": "a random {share} of the items of some users",
    "events": "items that users first have in a held-out {share} of their events",
    "sessions": "new items that occur together, as in a next basket",
    "time": "the last {share} of all events",
    "last": "the last {share} of each user's events",
}
_BY_CLOCK = {None: "pairs", "order": "last"}  # times of another clock: by time

_COUNTS = """\
- **What it is.** Implicit CF-NADE, a neural autoregressive model of counts such as plays, watches
  or purchases. It knows no users: a user is a history of items and counts, given with each
  request.
- **Use it for** ranking items for people, by what they did. Scores rank; only probabilities may
  be read as chances.
- **Do not use it for** decisions about people, such as credit, prices or work, or where nobody
  looks at what is recommended."""
_RATINGS = """\
- **What it is.** CF-NADE, a neural autoregressive model of ratings such as stars. It predicts how
  much somebody would like an item that they chose to try.
- **Use it for** the expected rating beside an item. To choose what to recommend next, a model of
  counts is better.
- **Do not use it for** decisions about people, such as credit, prices or work."""

_LIMITS = """\
- It repeats what is in its data: popular items are recommended more often, and groups with few
  users less well.
- It was judged on held-out data of the people in the data. Only a test with real users shows what
  it changes.
- Items that are not in the model are never recommended. It does not notice that tastes change:
  train it again.
- The folder has the names of items and how often each was used; from the weights, statements
  about people in the data may be inferred. Treat it as you treat the data."""
_RATINGS_IN_IT = "\n- **The folder has every training rating, with the id of its user.**"

_OPEN = """\
- who is responsible for the model, and whom to ask
- where the data come from, who is missing in them, and on what terms they may be used
- where it is used, and what a wrong recommendation costs
- how it compares with the present system, on people who were not in the data"""


def model_card(name: str, described: Mapping[str, Any]) -> str:
    """Describe a saved model to people who did not make it.

    Args:
        name: Of the model.
        described: What `inspect_artifact` returned.

    Raises:
        ArtifactError: If its settings cannot be read.
    """
    kind = described.get("kind", "counts")
    if kind not in ("counts", "ratings"):
        raise ArtifactError(f"there is no card for a model of {kind!r:.20}")
    is_counts = kind == "counts"
    training, settings = described.get("training", {}), described.get("settings", {})
    parts = {
        "": f"Written by `cfnade inspect --card` from the model of cfnade "
        f"{_text(described['cfnade_version'])}.",
        "What it is for": _COUNTS if is_counts else _RATINGS,
        "Data": _table(_data(described)),
        "How good it is": _table(_quality(described, is_counts=is_counts)),
        "The network": _table({**_network(described), **_trained(training)}),
        "Limits": _LIMITS if is_counts else _LIMITS + _RATINGS_IN_IT,
        "How to fit it again": _again(described, _call(settings, is_counts=is_counts)),
        "To be filled in": f"The file does not say:\n\n{_OPEN}",
    }
    sections = [f"## {title}\n\n{text}" if title else text for title, text in parts.items()]
    return "\n\n".join([f"# Model card: {_text(name)}", *sections]) + "\n"


def _data(described: Mapping[str, Any]) -> dict[str, Any]:
    """The data, in counts alone."""
    sizes, data = described.get("data_fingerprint", {}), described.get("data", {})
    data = data if isinstance(data, dict) else {}
    training = described.get("training", {})
    kinds = data.get("events_per_kind")
    return {
        "name": data.get("name"),
        **{f"{noun}s": sizes.get(f"n_{noun}s") for noun in ("user", "item", "pair")},
        "sum of the counts": sizes.get("sum_of_counts"),
        "items of a user, median": data.get("items_per_user_median"),
        "users of an item, median": data.get("users_per_item_median"),
        "events": data.get("n_events"),
        "from, to": _joined([data.get("first_time"), data.get("last_time")]),
        "kinds of events": _joined(kinds),
        "weights of events": _joined(training.get("event_weights")),
        "predicts the event": training.get("target_event"),
        "columns about items": _joined((described["items"] or {}).get("features")),
        "SHA-256": sizes.get("sha256"),
    }


def _quality(described: Mapping[str, Any], *, is_counts: bool) -> dict[str, Any]:
    """The metrics in the file, what they were measured on, and whether probabilities hold."""
    metrics, settings = dict(described.get("metrics", {})), described.get("settings", {})
    training, share = described.get("training", {}), settings.get("validation_share")
    shown = f"{100 * share:g} %" if isinstance(share, int | float) else "part"
    main, unit = ("mpr", " % (0 is best, 50 is chance)") if is_counts else ("rmse", " (0 is best)")
    value = metrics.pop(f"validation_{main}", None)
    found: dict[str, Any] = {f"validation {main.upper()}": "none: nothing was held out"}
    if isinstance(value, int | float):
        found = {f"validation {main.upper()}": f"{value:.4g}{unit}"}
        clock = training.get("clock")
        by = settings.get("validation_by") or _BY_CLOCK.get(clock, "time")
        held_out = _HELD_OUT.get(by, "a {share} of the data").format(share=shown)
        found["held out for it"] = held_out if is_counts else f"a random {shown} of the ratings"
        if is_counts and by in ("time", "last"):
            found["then"] = "trained again on all events; the figure is of the training before"
        chosen = "the readout was" if is_counts else "two temperatures were"
        found["mind"] = f"{chosen} found on the same part, so it is a little too good"
    if is_counts:
        curve = described.get("calibrator")
        n_pairs = curve.get("n_pairs") if curve else None
        found["probabilities"] = (
            f"calibrated on {n_of(n_pairs, 'held-out pair')}"
            if isinstance(n_pairs, int)
            else "none: nothing was held out, or the model was trained further"
        )
    return found | {_words(n): v for n, v in metrics.items() if isinstance(v, str | int | float)}


def _network(described: Mapping[str, Any]) -> dict[str, Any]:
    network, items = described["network"], described["items"] or {}
    tensors = (described["tensors"] or {}).values()
    n_weights = sum(_product(tensor["shape"]) for tensor in tensors)
    return {
        "items": items.get("n_items"),
        "values of a rating": network.get("n_levels"),
        "hidden units, layers": _joined([network.get("n_hidden"), network.get("n_layers")]),
        "alpha": network.get("alpha"),
        "neighbours of an item": network.get("n_neighbours"),
        "numbers in the weights": n_weights,
        "bytes": described["total_bytes"],
    }


def _trained(training: Mapping[str, Any]) -> dict[str, Any]:
    """What a fit found, and how long it took."""
    readout = training.get("readout") or {}
    used = {name: value for name, value in readout.items() if value not in (None, True, False)}
    seconds, n_fits = training.get("fit_seconds"), len(training.get("partial_fits") or [])
    return {
        "epochs": training.get("best_epoch") or None,
        "item_l2, given or found": training.get("item_l2"),
        **{f"readout, {_words(name)}": value for name, value in used.items()},
        "seconds of the fit": seconds,
        "trained further": f"{n_of(n_fits, 'time')} (partial_fit)" if n_fits else None,
    }


def _call(settings: Mapping[str, Any], *, is_counts: bool) -> str:
    """The constructor's call with the settings that are not the default."""
    try:
        if is_counts:
            return representation(
                ImplicitCFNADE(**from_json(settings, parameter_names(ImplicitCFNADE)))
            )
        return representation(CFNADE().set_params(**settings))
    except (ConfigError, TypeError) as error:
        raise ArtifactError(f"the settings in the model cannot be read: {error}") from error


def _again(described: Mapping[str, Any], call: str) -> str:
    name = call.partition("(")[0]
    lines = [f"from cfnade import {name}{', Readout, Recipe' if 'Re' in call else ''}", ""]
    lines += [f"model = {call}.fit(DATA)"]
    sha256 = described.get("data_fingerprint", {}).get("sha256")
    checked = "" if sha256 is None else " DATA must have the SHA-256 above."
    further = described.get("training", {}).get("partial_fits")
    more = " Then it was trained further, on data that are not described here." if further else ""
    code = "\n".join(line if line.isprintable() else ascii(line) for line in lines)
    return (
        f"```python\n{code.replace('```', '')}\n```\n\n"
        f"With cfnade {_text(described['cfnade_version'])}, as many threads and a processor of the "
        f"same kind this gives the same model; elsewhere, one that is as good.{checked}{more}"
    )


def _table(facts: Mapping[str, Any]) -> str:
    """The facts that are known, one per row."""
    rows = [
        f"| {_text(name)} | {_text(value)} |"
        for name, value in facts.items()
        if value not in (None, "")
    ]
    return "\n".join(["| | |", "|---|---|", *rows]) if rows else "Unknown."


def _text(value: Any) -> str:
    """A value for a cell; what a file says can be neither Markdown nor HTML."""
    if isinstance(value, int | float):
        return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
    text = value if isinstance(value, str) else str(value)
    text = text if text.isprintable() else ascii(text)
    for sign in "\\`*_[]<>|#&":
        text = text.replace(sign, f"\\{sign}")
    return text


def _joined(values: Any) -> str:
    """Several values in a cell; nothing if there are none."""
    if isinstance(values, dict):
        values = [f"{name} {value:,g}" if isinstance(value, int | float) else name
                  for name, value in values.items()]  # fmt: skip
    if not isinstance(values, list):
        return ""
    return ", ".join(str(value) for value in values if value is not None)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _product(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
