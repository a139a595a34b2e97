"""Whatever is in the files of a model: it is refused in one line, or it is a model."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from cfnade.data.catalogue import Catalogue
from cfnade.errors import ArtifactError
from cfnade.estimator import ImplicitCFNADE
from cfnade.storage.folder import inspect_artifact, load_artifact, save_artifact
from tests.storage.saved import random_artifact, random_histories, seal

NAMES = ["model.json", "weights.safetensors", "ratings.safetensors", "items.json"]
name_of_file = st.sampled_from(NAMES)
whole_or_not = settings(max_examples=60, deadline=None)


@pytest.fixture(scope="module", params=["float32", "int16"])
def saved(request, tmp_path_factory) -> Path:
    """With ids that are text, or whole numbers for int16."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    made = random_artifact(np.random.default_rng(0), n_layers=2)
    if request.param == "int16":
        made = replace(made, catalogue=Catalogue(np.arange(9) + 1000, made.catalogue.names))
    save_artifact(made, folder, request.param)
    return folder


class Copy:
    """A copy of a saved model to do damage to."""

    def __init__(self, saved: Path) -> None:
        self.parent = tempfile.TemporaryDirectory()
        self.folder = Path(self.parent.name) / "model"
        shutil.copytree(saved, self.folder)

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.parent.cleanup()


def is_refused(folder: Path) -> bool:
    """Load it in both ways; what loads must be able to answer."""
    refused = []
    for verify in (True, False):
        try:
            with np.errstate(all="ignore"):
                loaded = load_artifact(folder, verify=verify)
                n_items = len(loaded.catalogue)
                history = csr_array(np.arange(min(n_items, 10_000), dtype=float)[None, :])
                history.resize((1, n_items))
                logits = loaded.network.logits(loaded.relative_rating.transform(history))
            assert logits.shape == (1, n_items)
            assert loaded.catalogue.label(loaded.catalogue.ids.tolist()[0])
            refused.append(False)
        except ArtifactError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000
            refused.append(True)
    try:
        json.dumps(inspect_artifact(folder, verify=True)).encode()
    except ArtifactError as error:
        assert "\n" not in str(error)
    return refused[0]


def flip(content: bytes, places: list[int]) -> bytes:
    changed = bytearray(content)
    for place in places:
        changed[place // 8 % len(changed)] ^= 1 << place % 8
    return bytes(changed)


def test_an_unchanged_copy_is_not_refused(saved):
    with Copy(saved) as folder:
        assert not is_refused(folder)
        seal(folder)
        assert not is_refused(folder)


@whole_or_not
@given(name=name_of_file, content=st.binary(max_size=200))
def test_random_bytes_are_refused(saved, name, content):
    with Copy(saved) as folder:
        (folder / name).write_bytes(content)
        assert is_refused(folder)


@whole_or_not
@given(name=name_of_file, share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(saved, name, share):
    with Copy(saved) as folder:
        content = (folder / name).read_bytes()
        kept = content[: int(share * len(content))]
        (folder / name).write_bytes(kept)
        # the line break at the end of model.json says nothing
        assert is_refused(folder) or kept.rstrip() == content.rstrip()


@whole_or_not
@given(name=st.sampled_from(NAMES[1:]), place=st.integers(0, 1 << 20))
def test_a_flipped_bit_is_refused(saved, name, place):
    with Copy(saved) as folder:
        (folder / name).write_bytes(flip((folder / name).read_bytes(), [place]))
        assert is_refused(folder)


@whole_or_not
@given(place=st.integers(0, 1 << 20))
def test_a_flipped_bit_in_the_description_is_refused_or_changes_nothing(saved, place):
    with Copy(saved) as folder:
        before = (folder / "model.json").read_bytes()
        after = flip(before, [place])
        (folder / "model.json").write_bytes(after)
        if not is_refused(folder):
            assert json.loads(after) == json.loads(before)


@whole_or_not
@given(
    name=st.sampled_from(NAMES[1:]),
    places=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=4),
    at_the_start=st.booleans(),
)
def test_forged_bits_with_right_checksums_are_refused_or_a_model(saved, name, places, at_the_start):
    with Copy(saved) as folder:
        if at_the_start:  # where the header is
            places = [place % 4000 for place in places]
        (folder / name).write_bytes(flip((folder / name).read_bytes(), places))
        seal(folder)
        is_refused(folder)


@whole_or_not
@given(name=st.sampled_from(NAMES[1:]), content=st.binary(min_size=1, max_size=300))
def test_forged_bytes_with_right_checksums_are_refused(saved, name, content):
    with Copy(saved) as folder:
        (folder / name).write_bytes(content)
        seal(folder)
        assert is_refused(folder)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@whole_or_not
@given(
    key=st.sampled_from(
        ["format", "cfnade_version", "network", "settings", "training", "metrics", "files"]
    ),
    value=json_values,
)
def test_any_value_in_the_description_is_refused_or_a_model(saved, key, value):
    with Copy(saved) as folder:
        described = json.loads((folder / "model.json").read_text())
        if key == "files":
            described["files"]["items.json"] = value
            (folder / "model.json").write_text(json.dumps(described))
        else:
            seal(folder, **{key: value})
        refused = is_refused(folder)
        harmless = key in ("cfnade_version", "settings", "training", "metrics")
        assert refused or harmless or (key == "format" and value in (1, 2))


@whole_or_not
@given(
    key=st.sampled_from(
        ["n_items", "n_hidden", "n_layers", "activation", "alpha", "input_scale", "n_neighbours"]
    ),
    value=json_values | st.just(10**30) | st.just(10**9),
)
def test_any_value_in_the_network_is_refused_or_a_model(saved, key, value):
    with Copy(saved) as folder:
        network = json.loads((folder / "model.json").read_text())["network"]
        seal(folder, network={**network, key: value})
        refused = is_refused(folder)
        assert refused or key == "alpha" or value == network[key]


@whole_or_not
@given(key=st.sampled_from(["dtype", "types", "ids", "names", "packed"]), value=json_values)
def test_any_value_in_the_items_is_refused_or_a_model(saved, key, value):
    with Copy(saved) as folder:
        items = json.loads((folder / "items.json").read_text())
        (folder / "items.json").write_text(json.dumps({**items, key: value}))
        seal(folder)
        is_unused = key == "packed" and "packed" not in items
        assert is_refused(folder) or (key, value) == ("names", None) or is_unused


HOSTILE_JSON = {
    "deep lists": b"[" * 100_000,
    "deep and closed": b"[" * 500 + b"]" * 500,
    "deep objects": b'{"a":' * 100_000,
    "no UTF-8": b'{"format": "\xff\xfe"}',
    "half a character": b'{"format": 1, "x": "\\ud800"}',
    "NaN": b'{"format": NaN}',
    "infinity": b'{"format": 1e999}',
    "a number of many digits": b'{"format": ' + b"9" * 100_000 + b"}",
    "a key twice": b'{"format": 1, "format": 1}',
    "true for one": b'{"format": true}',
    "nothing": b"",
    "null bytes": b"\0" * 1000,
    "a pickle": b"cos\nsystem\n(S'false'\ntR.",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", HOSTILE_JSON.values(), ids=HOSTILE_JSON.keys())
def test_hostile_json_is_refused(saved, name, content):
    with Copy(saved) as folder:
        header = len(content).to_bytes(8, "little") if name.endswith("tensors") else b""
        (folder / name).write_bytes(header + content)
        assert is_refused(folder)
        if name != "model.json":
            seal(folder)
            assert is_refused(folder)


@pytest.mark.parametrize("name", NAMES)
def test_links_pipes_and_folders_in_place_of_a_file_are_refused(saved, name):
    with Copy(saved) as folder:
        path = folder / name
        outside = folder.parent / "outside"
        path.rename(outside)
        path.symlink_to(outside)
        with pytest.raises(ArtifactError, match="is a link; a model has no links"):
            load_artifact(folder)
        assert is_refused(folder)
        path.unlink()
        path.symlink_to("/dev/zero")
        assert is_refused(folder)
        path.unlink()
        os.mkfifo(path)  # opening one for reading would wait for ever
        assert is_refused(folder)
        path.unlink()
        path.mkdir()
        assert is_refused(folder)


def test_names_that_lead_out_of_the_folder_are_refused(saved):
    with Copy(saved) as folder:
        described = json.loads((folder / "model.json").read_text())
        (folder.parent / "outside.json").write_text((folder / "items.json").read_text())
        (folder / "../outside.json").resolve(strict=True)
        files = dict(described["files"])
        files["../outside.json"] = files.pop("items.json")
        seal(folder, files=files)
        with pytest.raises(ArtifactError, match="files must be"):
            load_artifact(folder)


def test_a_model_may_be_reached_through_a_link_to_its_folder(saved):
    with Copy(saved) as folder:
        (folder.parent / "current").symlink_to(folder.name)
        assert not is_refused(folder.parent / "current")


def test_a_weight_that_is_not_finite_is_refused(saved):
    for value in (np.nan, np.inf):
        with Copy(saved) as folder:
            path = folder / "weights.safetensors"
            arrays = load_file(path)
            name = "output_weight.scale" if "output_weight.scale" in arrays else "output_weight"
            arrays[name][2, 0] = value
            save_file(arrays, path)
            seal(folder)
            with pytest.raises(ArtifactError, match="holds NaN or infinite numbers"):
                load_artifact(folder)


SCALE = "like_weight.scale"
FORGED = {
    "no scale": lambda a: {k: v for k, v in a.items() if k != SCALE},
    "a flat scale": lambda a: {**a, SCALE: a[SCALE][:, 0]},
    "a short scale": lambda a: {**a, SCALE: a[SCALE][:-1]},
    "a wide scale": lambda a: {**a, SCALE: np.ones((9, 3), dtype=np.float32)},
    "a scale for each column": lambda a: {**a, SCALE: np.ones((1, 3), dtype=np.float32)},
    "a scale of float64": lambda a: {**a, SCALE: a[SCALE].astype(np.float64)},
    "a scale of whole numbers": lambda a: {**a, SCALE: a[SCALE].astype(np.int16)},
    "a scale of a scale": lambda a: {**a, f"{SCALE}.scale": a[SCALE]},
    "a scale of nothing": lambda a: {**a, "colour.scale": a[SCALE]},
    "a scale of a bias": lambda a: {**a, "output_bias.scale": a[SCALE]},
    "a bias of int16": lambda a: {
        **{**a, "output_bias": np.zeros(9, dtype=np.int16)},
        **{"output_bias.scale": np.ones((9, 1), dtype=np.float32)},
    },
    "a bias of float16": lambda a: {**a, "output_bias": a["output_bias"].astype(np.float16)},
    "one number": lambda a: {**a, "output_bias": np.array(0, dtype=np.int16)},
    "whole numbers that are not int16": lambda a: {**a, "like_weight": np.ones((9, 3), np.int64)},
    "too few items": lambda a: {**a, "like_weight": a["like_weight"][:-1], SCALE: a[SCALE][:-1]},
    "a neighbour too far": lambda a: {**a, "neighbours": np.full((9, 2), 9, dtype=np.uint8)},
    "a neighbour below 0": lambda a: {**a, "neighbours": np.full((9, 2), -1, dtype=np.int16)},
    "broken neighbours": lambda a: {**a, "neighbours": np.ones((9, 2), dtype=np.float32)},
    "flat neighbours": lambda a: {**a, "neighbours": np.ones(18, dtype=np.uint8)},
    "neighbours with a scale": lambda a: {
        **{**a, "neighbours": np.ones((9, 2), dtype=np.int16)},
        **{"neighbours.scale": np.ones((9, 1), dtype=np.float32)},
    },
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_forged_weights_of_16_bits_are_refused(forge, tmp_path):
    folder = tmp_path / "model"
    save_artifact(random_artifact(np.random.default_rng(0)), folder, "int16")
    assert not is_refused(folder)
    save_file(
        {
            name: np.ascontiguousarray(array) if array.ndim else array
            for name, array in forge(load_file(folder / "weights.safetensors")).items()
        },
        folder / "weights.safetensors",
    )
    seal(folder)
    for verify in (True, False):
        with pytest.raises(ArtifactError, match="cannot be read"):
            load_artifact(folder, verify=verify)
    assert is_refused(folder)


@pytest.mark.parametrize(
    ("array", "place", "value"),
    [
        ("item_starts", 0, 1),
        ("item_starts", 1, -1),
        ("item_starts", 1, 10**12),
        ("item_starts", -1, 10**12),
        ("distinct_counts", 0, 0.0),
        ("distinct_counts", 0, -1.0),
        ("distinct_counts", 0, np.nan),
        ("distinct_counts", -1, np.inf),
        ("distinct_counts", 0, 1e9),
        ("n_watchers_up_to", 0, 0),
        ("n_watchers_up_to", 0, -5),
        ("n_watchers_up_to", 0, 10**9),
    ],
)
def test_impossible_count_distributions_are_refused(saved, array, place, value):
    with Copy(saved) as folder:
        arrays = load_file(folder / "ratings.safetensors")
        arrays[array][place] = value
        save_file(arrays, folder / "ratings.safetensors")
        seal(folder)
        with pytest.raises(ArtifactError, match="cannot be read"):
            load_artifact(folder)


def test_parts_of_different_models_do_not_fit(saved, tmp_path):
    save_artifact(random_artifact(np.random.default_rng(1), n_items=8), tmp_path / "other")
    for name in NAMES[1:]:
        with Copy(saved) as folder:
            shutil.copy(tmp_path / "other" / name, folder / name)
            seal(folder)
            assert is_refused(folder)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    n_items=st.integers(2, 12),
    n_hidden=st.integers(1, 5),
    n_layers=st.integers(1, 3),
    n_neighbours=st.integers(0, 3),
    activation=st.sampled_from(["tanh", "sigmoid", "relu", "silu", "identity"]),
    alpha=st.floats(0, 1e6),
    ids=st.lists(st.text(min_size=1) | st.integers(), min_size=12, max_size=12, unique=True),
    note=json_values,
)
def test_save_and_load_change_nothing(seed, ids, note, **network):
    rng = np.random.default_rng(seed)
    artifact = random_artifact(rng, **network)
    chosen = np.empty(network["n_items"], dtype=object)
    chosen[:] = ids[: network["n_items"]]
    object.__setattr__(artifact.catalogue, "ids", chosen)
    artifact.info["note"] = note
    histories = random_histories(rng, 6, network["n_items"])
    with tempfile.TemporaryDirectory() as parent:
        save_artifact(artifact, Path(parent) / "model")
        loaded = load_artifact(Path(parent) / "model")
        assert loaded.info == artifact.info
        assert loaded.network.config == artifact.network.config
        assert loaded.catalogue.ids.tolist() == chosen.tolist()
        assert loaded.catalogue.names.tolist() == artifact.catalogue.names.tolist()
        for name, weight in artifact.network.weights.items():
            np.testing.assert_array_equal(loaded.network.weights[name], weight)
        before, after = (a.relative_rating.transform(histories) for a in (artifact, loaded))
        np.testing.assert_array_equal(before.toarray(), after.toarray())
        np.testing.assert_array_equal(loaded.network.logits(after), artifact.network.logits(before))


@pytest.mark.parametrize(
    ("dtype", "types", "ids"),
    [
        ("<i8", ["decimal"], [f"{i}E+99999999" for i in range(1, 10)]),
        ("<f8", ["decimal"], [f"{i}E+99999999" for i in range(1, 10)]),
        ("object", ["decimal"], [f"{i}E+99999999" for i in range(1, 10)]),
        ("object", ["decimal"], ["1" * 1_000_000 + str(i) for i in range(9)]),
        ("object", ["decimal"], ["sNaN", *map(str, range(8))]),
        ("<i8", ["str"], [str(i) for i in range(9)]),
        ("|b1", ["int"], list(range(9))),
    ],
)
def test_ids_that_would_take_hours_to_convert_are_refused_at_once(saved, dtype, types, ids):
    with Copy(saved) as folder:
        items = json.loads((folder / "items.json").read_text())
        items |= {"dtype": dtype, "types": types, "ids": ids, "packed": None}
        (folder / "items.json").write_text(json.dumps(items))
        seal(folder)
        started = time.monotonic()
        assert is_refused(folder) and time.monotonic() - started < 2


def test_a_calibrator_of_many_knots_is_refused(saved):
    with Copy(saved) as folder:
        calibrator = {
            "intercept": 0.0, "history_slope": 0.0, "shortest_history": 1, "longest_history": 9,
            "held_out_share": 0.1, "n_pairs": 5, "mean_confidence": 1.0,
            "knots": list(range(700_000)), "slopes": [1.0] * 700_001,
        }  # fmt: skip
        seal(folder, calibrator=calibrator)
        with pytest.raises(ArtifactError, match="lists of 100"):
            ImplicitCFNADE.load(folder)


@pytest.mark.parametrize("name", ["n_items", "n_hidden", "n_layers", "n_neighbours"])
@pytest.mark.parametrize("value", [9 * 10**4299, 9 * 10**307], ids=["4300", "308"])
def test_numbers_too_long_to_be_printed_are_refused_in_one_line(saved, name, value):
    with Copy(saved) as folder:
        network = json.loads((folder / "model.json").read_text())["network"]
        seal(folder, network={**network, name: value})
        assert is_refused(folder)


@pytest.mark.parametrize("value", [2**63 - 1, 2**53, -(2**63)])
def test_numbers_of_watchers_that_overflow_are_refused(saved, value):
    with Copy(saved) as folder:
        path = folder / "ratings.safetensors"
        arrays = load_file(path)
        arrays["n_watchers_up_to"][-1] = value
        save_file(arrays, path)
        seal(folder)
        with pytest.raises(ArtifactError, match="number of watchers"):
            load_artifact(folder)
