"""A trained model as a folder: safetensors for arrays, JSON for the rest, nothing executable.

The format is described field by field in docs/artifact.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from cfnade.data.addresses import KINDS, safe_address
from cfnade.data.catalogue import Catalogue
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ArtifactError, CfnadeError
from cfnade.folders import new_folder, save_arrays
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.storage.encoding import (
    WeightType,
    decode_ids,
    map_tensors,
    pack_ids,
    pack_weights,
    unpack_weights,
    wrong_weights,
)
from cfnade.storage.feature_arrays import ARRAYS as FEATURES
from cfnade.storage.feature_arrays import pack_features, read_features
from cfnade.storage.untrusted import folder_handle, map_file, parse_json

FORMAT = 2
MODEL = "model.json"
WEIGHTS, RATINGS, ITEMS = FILES = ("weights.safetensors", "ratings.safetensors", "items.json")

# Fields of `model.json` that belong to the format; the others are `Artifact.info`.
_OF_THE_FORMAT = ("format", "cfnade_version", "network", "files", "sha256")
_NO_LONGER_USED = ("n_linear",)  # settings of networks of earlier versions
_OBJECTS = ("settings", "training", "metrics", "data_fingerprint", "calibrator")
_RATING_TYPES = {"item_starts": "i8", "distinct_counts": "f8", "n_watchers_up_to": "i8"}
_GOOD = ("ok", "not verified")  # states of a file
_MOST_MODEL_BYTES = 1 << 24
_TRIES = 100  # to load a model that is replaced while it is read
_MOST_ITEMS_BYTES = 1 << 29


@dataclass(frozen=True, eq=False)
class Artifact:
    """The parts of a saved model."""

    network: NumpyNetwork
    relative_rating: RelativeRating
    catalogue: Catalogue
    info: dict[str, Any] = field(default_factory=dict)  # settings, metrics and origin, for JSON


@dataclass(frozen=True, eq=False)
class SavedParts:
    """A saved model of any kind, as its files hold it."""

    network: dict[str, Any]  # its settings, in `model.json`
    weights: Mapping[str, NDArray[Any]]
    arrays: Mapping[str, NDArray[Any]]  # in `ratings.safetensors`
    items: dict[str, Any]  # in `items.json`
    info: dict[str, Any]  # further fields of `model.json`


Model = TypeVar("Model")


def save_artifact(artifact: Artifact, folder: Path, dtype: WeightType = "float32") -> None:
    """Write a model; a crash leaves the old one or the new one, never half of one.

    Args:
        artifact: The model.
        folder: Where to write it. A model there is replaced; anything else is refused.
        dtype: How matrices of weights are stored.

    Raises:
        ArtifactError: If the folder holds something else, cannot be written, or the model could
            not be loaded again.
        ConfigError: If there is no such dtype.
    """
    config, weights = artifact.network.config, artifact.network.weights
    packed = {} if (problem := wrong_weights(config, weights)) else pack_weights(weights, dtype)
    if problem := problem or wrong_weights(config, unpack_weights(packed)):
        raise ArtifactError(f"this model cannot be saved as {dtype}: {problem}")
    names = artifact.catalogue.names
    items = pack_ids(artifact.catalogue.ids)
    for kind, by_column in artifact.catalogue.addresses.items():
        columns = range(len(artifact.catalogue))
        items[f"{kind}s"] = [by_column.get(column) for column in columns]
    items["names"] = None if names is None else [str(name) for name in names.tolist()]
    features, items["features"] = pack_features(artifact.catalogue.features)
    ratings = {name: getattr(artifact.relative_rating, f"{name}_") for name in _RATING_TYPES}
    arrays = {**ratings, **features}
    save_parts(SavedParts(asdict(config), packed, arrays, items, artifact.info), folder)


def save_parts(parts: SavedParts, folder: Path) -> None:
    """Write a model of any kind; see `save_artifact`."""
    check_place(folder)
    try:
        with new_folder(folder) as new:
            _write_files(parts, new)
            for name in (*FILES, MODEL):
                shutil.copymode(new / ITEMS, new / name)  # safetensors writes for the owner alone
            new.chmod(0o755)  # a new folder is private, a model as readable as its place allows
    except ArtifactError:
        raise
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        raise ArtifactError(f"cannot write the model to {folder}: {error}") from error


def _write_files(parts: SavedParts, folder: Path) -> None:
    text = json.dumps(parts.items, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    (folder / ITEMS).write_text(text, encoding="utf-8")
    if (folder / ITEMS).stat().st_size > _MOST_ITEMS_BYTES:
        raise ArtifactError(f"this model cannot be saved: {ITEMS} is too large")
    save_arrays(folder / WEIGHTS, parts.weights)
    save_arrays(folder / RATINGS, parts.arrays)
    files = {}
    for name in FILES:
        with map_file(folder / name) as file:
            files[name] = {"bytes": len(file), "sha256": hashlib.sha256(file).hexdigest()}
    described = _as_json(
        {
            "format": FORMAT,
            "cfnade_version": version("cfnade"),
            "network": parts.network,
            **{k: v for k, v in parts.info.items() if k not in _OF_THE_FORMAT},
            "files": files,
        }
    )
    text = json.dumps({**described, "sha256": _own_sha256(described)}, indent=2) + "\n"
    if problem := _wrong_description(described) or _unreadable(text):
        raise ArtifactError(f"this model cannot be saved: {problem}")
    (folder / MODEL).write_text(text, encoding="utf-8")


def _unreadable(text: str) -> str | None:
    """Why a text would be refused as `model.json`; None if it would not."""
    if len(text) > _MOST_MODEL_BYTES:
        return f"{MODEL} would have more than {_MOST_MODEL_BYTES:,} bytes"
    try:
        parse_json(text.encode())
    except ArtifactError as error:
        return f"in {MODEL}: {error}"
    return None


def check_place(folder: Path) -> None:
    """Refuse a folder that holds anything but a model, or that cannot be written."""
    if folder.exists() and (why := _wrong_place(folder)):
        raise ArtifactError(
            f"{folder} exists and is not a saved model ({why}); choose another place"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot write the model to {folder}: {error}") from error


def _wrong_place(folder: Path) -> str | None:
    """Why a folder must not be replaced; None if it is empty, or a model and nothing else."""
    if not folder.is_dir():
        return "it is a file"
    names = sorted(path.name for path in folder.iterdir())
    if not names:
        return None
    try:
        with map_file(folder / MODEL, at_most=_MOST_MODEL_BYTES) as file:
            described = parse_json(file[:])
    except ArtifactError:
        return f"no {MODEL} of ours"
    if not isinstance(described, dict) or not set(_OF_THE_FORMAT) <= set(described):
        return f"no {MODEL} of ours"
    ours = {name for name in (MODEL, *FILES) if _is_plain(folder / name)}
    other = next((name for name in names if name not in ours), None)
    return None if other is None else f"it holds {other!r:.80}"


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def load_artifact(folder: Path, *, verify: bool = True) -> Artifact:
    """Read a model; nothing in the files is executed.

    The arrays are read-only views on memory-mapped files: workers that load the same folder share
    its pages, and keep them when the folder is replaced. Weights of 16 bits are copied to float32.

    Args:
        folder: What `save_artifact` wrote.
        verify: Compare checksums and check that every weight is finite, which reads all files.
            False checks only sizes, types and shapes: faster, for folders verified before.

    Raises:
        ArtifactError: If there is none, it is damaged, or a later version wrote it.
    """
    return load_parts(folder, partial(_artifact, look_inside=verify), verify=verify)


def load_parts(folder: Path, build: Callable[[SavedParts], Model], *, verify: bool = True) -> Model:
    """Read a model of any kind; `build` makes it of its parts or raises `CfnadeError`."""
    return _read_whole(folder, lambda handle: _load(folder, handle, build, verify=verify))


def _read_whole(folder: Path, read: Callable[[int | None], Model]) -> Model:
    """Read files by a handle of their folder; again if that fails and another took its place."""
    for _ in range(_TRIES):
        with folder_handle(folder) as handle:
            try:
                return read(handle)
            except ArtifactError:
                if handle is None or _is_at(folder, handle):
                    raise
    raise ArtifactError(f"the model in {folder} is replaced again and again; try later")


def _is_at(folder: Path, handle: int) -> bool:
    """Whether a path still leads to the folder of a handle."""
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except OSError:
        return False


def _load(
    folder: Path, handle: int | None, build: Callable[[SavedParts], Model], *, verify: bool
) -> Model:
    """Load the files of one folder, whatever takes its place meanwhile."""
    described = read_description(folder, handle)
    files = {name: map_file(folder / name, folder=handle) for name in FILES}
    for name, file in files.items():
        state = _state(file, described["files"][name], verify=verify)
        if state not in _GOOD:
            raise _changed(folder / name, state)
    try:
        weights = unpack_weights(map_tensors(files[WEIGHTS]))
        arrays = map_tensors(files[RATINGS])
        info = {k: v for k, v in described.items() if k not in _OF_THE_FORMAT}
        return build(SavedParts(described["network"], weights, arrays, _items(files[ITEMS]), info))
    except CfnadeError as error:
        raise ArtifactError(f"the model in {folder} cannot be read: {error}") from error


def _artifact(parts: SavedParts, *, look_inside: bool) -> Artifact:
    """A model of counts, made of its parts."""
    if "kind" in parts.info:
        raise ArtifactError(f"it is a model of {parts.info['kind']!r:.20}; use CFNADE.load")
    config, weights, arrays = _config(parts.network), parts.weights, dict(parts.arrays)
    if problem := wrong_weights(config, weights, look_inside=look_inside):
        raise ArtifactError(problem)
    of_features = {name: arrays.pop(name) for name in FEATURES if name in arrays}
    artifact = Artifact(
        NumpyNetwork(config, weights),
        _relative_rating(arrays),
        _catalogue(parts.items, of_features),
        parts.info,
    )
    sizes = {config.n_items, artifact.relative_rating.n_items_, len(artifact.catalogue)}
    if len(sizes) > 1:
        raise ArtifactError("weights, ratings and item ids have different numbers of items")
    return artifact


def read_description(folder: Path, handle: int | None = None) -> dict[str, Any]:
    """Read and check `model.json` alone, perhaps by a handle of the folder."""
    path = folder / MODEL
    try:
        path.lstat() if handle is None else os.lstat(MODEL, dir_fd=handle)
    except OSError:
        raise ArtifactError(f"there is no model in {folder} (no {MODEL})") from None
    with map_file(path, at_most=_MOST_MODEL_BYTES, folder=handle) as file:
        content = file[:]
    try:
        described = parse_json(content)
    except ArtifactError as error:
        raise ArtifactError(f"{path} is damaged: {error}") from error
    if not isinstance(described, dict) or "format" not in described:
        raise ArtifactError(f"{path} does not describe a model")
    found = described["format"]
    if type(found) is not int or not 1 <= found <= FORMAT:
        raise ArtifactError(
            f"the model in {folder} has format {found!r:.40}, this version of cfnade "
            f"reads 1 to {FORMAT}; update cfnade or save the model again"
        )
    if described.pop("sha256", None) != _own_sha256(described):
        raise _changed(path, "checksum differs")
    if problem := _wrong_description(described):
        raise ArtifactError(f"{path} does not describe a model: {problem}")
    return described


def _changed(path: Path, state: str) -> ArtifactError:
    advice = "copy the model again or train it anew"
    return ArtifactError(f"{path} is not what was saved (its {state}); {advice}")


def inspect_artifact(folder: Path, *, verify: bool = False) -> dict[str, Any]:
    """Describe a saved model without loading its weights.

    Args:
        folder: What `save_artifact` wrote.
        verify: Also compare the checksums, which reads all files.

    Returns:
        `model.json`, with the `state` of each file (`ok`, `not verified`, or what is wrong), the
        `tensors` with type and shape, and the `items` with number, type, first ids, whether they
        have names, and columns of features; the last two are None if they cannot be read.

    Raises:
        ArtifactError: If `model.json` is missing, damaged, or a later version wrote it.
    """
    return _read_whole(folder, lambda handle: _inspect(folder, handle, verify=verify))


def _inspect(folder: Path, handle: int | None, *, verify: bool) -> dict[str, Any]:
    described = read_description(folder, handle)
    files: dict[str, Any] = {}
    found: dict[str, Any] = {"tensors": None, "items": None}
    for name in FILES:
        listed, state = described["files"][name], "not verified"
        try:
            with map_file(folder / name, folder=handle) as file:
                state = _state(file, listed, verify=verify)
                if name == WEIGHTS:
                    found["tensors"] = {
                        tensor: {
                            "dtype": f"{array.dtype.kind.upper()}{8 * array.itemsize}",
                            "shape": list(array.shape),
                        }
                        for tensor, array in map_tensors(file).items()
                    }
                elif name == ITEMS:
                    items = _items(file)
                    described_by = items.pop("features", None)
                    catalogue = _catalogue(items, {})
                    found["items"] = {
                        "n_items": len(catalogue),
                        "dtype": catalogue.ids.dtype.name,
                        "first_ids": [str(item) for item in catalogue.ids[:3].tolist()],
                        "have_names": catalogue.names is not None,
                        "features": _columns(described_by),
                    }
        except ArtifactError as error:
            if handle is not None and not _is_at(folder, handle):
                raise  # the files of the old folder are being removed
            state = str(error) if state in _GOOD else state
        files[name] = {**listed, "state": state}
    n_bytes = sum(entry["bytes"] for entry in files.values())
    return {**described, "files": files, "total_bytes": n_bytes, **found}


def _state(file: mmap.mmap, listed: dict[str, Any], *, verify: bool) -> str:
    """`ok`, `not verified`, or how a file differs from its entry in `model.json`."""
    if problem := _wrong_size(len(file), listed["bytes"]):
        return problem
    if not verify:
        return "not verified"
    return "ok" if hashlib.sha256(file).hexdigest() == listed["sha256"] else "checksum differs"


def check_size(path: Path, n_bytes: int, listed: int) -> None:
    """Refuse a file of another size than `model.json` lists."""
    if problem := _wrong_size(n_bytes, listed):
        raise _changed(path, problem)


def _wrong_size(n_bytes: int, listed: int) -> str | None:
    return None if n_bytes == listed else f"size is {n_bytes:,} bytes instead of {listed:,}"


def _wrong_description(described: dict[str, Any]) -> str | None:
    """What is wrong with the fields of `model.json`, in words; None if they are right."""
    files = described.get("files")
    if not isinstance(files, dict) or set(files) != set(FILES):
        return f"files must be {', '.join(FILES)}"
    for name, listed in files.items():
        if not (
            isinstance(listed, dict)
            and type(listed.get("bytes")) is int
            and listed["bytes"] > 0
            and isinstance(listed.get("sha256"), str)
        ):
            return f"no size and checksum of {name}"
    if not isinstance(described.get("cfnade_version"), str):
        return "no cfnade_version"
    if not isinstance(described.get("network"), dict):
        return "no network"
    for name in _OBJECTS:
        if not isinstance(described.get(name, {}), dict):
            return f"{name} is not an object"
    return None


def _config(network: dict[str, Any]) -> ModelConfig:
    settings = {name: value for name, value in network.items() if name not in _NO_LONGER_USED}
    extra = sorted(set(settings) - {setting.name for setting in fields(ModelConfig)})
    if extra:
        raise ArtifactError(f"{extra[0]!r:.40} is not a setting of a network in this version")
    if type(settings.get("n_items")) is not int:
        raise ArtifactError("the network needs a number of items")
    try:
        return ModelConfig(**settings)
    except (TypeError, ArithmeticError) as error:  # a huge number, a list for a name
        raise ArtifactError(f"the network's settings are wrong: {error}") from error


def _relative_rating(arrays: Mapping[str, NDArray[Any]]) -> RelativeRating:
    if {name: array.dtype.str[1:] for name, array in arrays.items()} != _RATING_TYPES:
        raise ArtifactError("the count distributions are not the three arrays they should be")
    return RelativeRating.from_distributions(**arrays)


def _items(file: mmap.mmap) -> dict[str, Any]:
    """The object of `items.json`."""
    if len(file) > _MOST_ITEMS_BYTES:
        raise ArtifactError(f"{ITEMS} is too large")
    items = parse_json(file[:])
    if not isinstance(items, dict):
        raise ArtifactError(f"{ITEMS} has no item ids")
    return items


def _catalogue(items: dict[str, Any], of_features: Mapping[str, NDArray[Any]]) -> Catalogue:
    """Ids, names, features and addresses; early versions have no features and addresses."""
    ids, names = decode_ids(items), items.get("names")
    features = read_features(of_features, items.get("features"))
    addresses = {
        kind: _addresses(items[f"{kind}s"], len(ids)) for kind in KINDS if f"{kind}s" in items
    }
    if names is None:
        return Catalogue(ids, None, features, addresses)
    are_texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not are_texts or len(names) != len(ids):
        raise ArtifactError("there must be one name for each item, or none")
    return Catalogue(ids, np.array(names, dtype=object), features, addresses)


def _addresses(listed: Any, n_items: int) -> dict[int, str]:
    """Addresses by column. They are shown on a web page, so each is checked."""
    if not isinstance(listed, list) or len(listed) != n_items:
        raise ArtifactError("there must be one address or null for each item")
    found = {column: text for column, text in enumerate(listed) if text is not None}
    if not all(isinstance(text, str) and safe_address(text) == text for text in found.values()):
        raise ArtifactError("an address of an item is not one of http or https")
    return found


def _columns(texts: Any) -> list[str]:
    """Columns of features in `items.json`; none if it has no features."""
    columns = texts.get("columns") if isinstance(texts, dict) else None
    return [str(name) for name in columns] if isinstance(columns, list) else []


def _own_sha256(described: dict[str, Any]) -> str:
    """Checksum of `model.json` without its own checksum, whatever the layout."""
    text = json.dumps(described, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _as_json(value: Any) -> Any:
    """A value for JSON: plain numbers for numpy's, None for NaN, text for paths."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(entry) for entry in value]
    if isinstance(value, np.generic | np.ndarray):
        return _as_json(value.tolist())
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
