"""A model as one ONNX file, from raw counts of a history to scores of all items.

Inputs are `items`, the columns of the history's items, each once, and `counts`. The output is
`scores` of all items. The count distributions are part of the graph, and the ids of the columns
are in its metadata, as `item_ids`, so no other file is needed.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.ratings import RelativeRating
from cfnade.errors import ArtifactError, MissingExtraError
from cfnade.folders import replace_file
from cfnade.model.config import ModelConfig
from cfnade.model.inference import dislike_scale
from cfnade.storage.encoding import encode_ids
from cfnade.storage.folder import Artifact

OPSET, IR_VERSION = 17, 8  # of 2022, for older runtimes
_MOST_BYTES = (1 << 31) - (1 << 20)  # of a protobuf message


def export_onnx(artifact: Artifact, path: Path) -> None:
    """Write a model as ONNX; a crash leaves the old file, the new one or none.

    Args:
        artifact: The model.
        path: The file to write or replace.

    Raises:
        MissingExtraError: If onnx is not installed.
        ArtifactError: If the model is too large for one file, or the file cannot be written.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "exporting a model") from error
    n_bytes = sum(weight.nbytes for weight in artifact.network.weights.values())
    if n_bytes > _MOST_BYTES:
        raise ArtifactError(
            f"the weights take {n_bytes / 1e9:.1f} GB, one ONNX file holds 2 GB at most; "
            "fit with fewer hidden units"
        )
    model = _model(onnx, artifact)
    onnx.checker.check_model(model)
    try:
        replace_file(path, model.SerializeToString())
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror}") from error


class _Graph:
    """Nodes and constants; values are referred to by name."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: type[np.generic], name: str | None = None) -> str:
        """Add a constant and return its name."""
        name = name or f"constant_{len(self.constants)}"
        array = np.asarray(value, dtype, order="C")
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Add an operation and return the name of its result."""
        name = name or f"{operator}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name


def _model(onnx: Any, artifact: Artifact) -> Any:
    config = artifact.network.config
    graph = _Graph(onnx)
    helper, TensorProto = onnx.helper, onnx.TensorProto
    ratings = _relative_ratings(graph, artifact.relative_rating)
    weights = graph.add("Cast", _input_weight(graph, ratings, config), to=TensorProto.FLOAT)
    graph.add("Identity", _logits(graph, artifact, weights), name="scores")
    inputs = [
        helper.make_tensor_value_info("items", TensorProto.INT64, ["n_history"]),
        helper.make_tensor_value_info("counts", TensorProto.DOUBLE, ["n_history"]),
    ]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [config.n_items])]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "cfnade", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="cfnade",
        producer_version=version("cfnade"),
    )
    ids = json.dumps(encode_ids(artifact.catalogue.ids), ensure_ascii=False)
    helper.set_model_props(model, {"item_ids": ids})
    return model


def _relative_ratings(graph: _Graph, ratings: RelativeRating) -> str:
    """Share of each item's watchers with no larger count: `RelativeRating.of_pairs`.

    Bisection of the item's part of `distinct_counts` finds the last count that is no larger, in as
    many steps as the longest part needs. The result is float64, (n_history,).
    """
    starts = ratings.item_starts_
    one = graph.constant(1, np.int64)
    two = graph.constant(2, np.int64)
    # With one more entry, so that a place after the last one is valid.
    counts = graph.constant(np.append(ratings.distinct_counts_, np.inf), np.float64)
    up_to = graph.constant(np.append(ratings.n_watchers_up_to_, 0), np.int64)
    start = graph.add("Gather", graph.constant(starts[:-1], np.int64), "items")
    end = graph.add("Gather", graph.constant(starts[1:], np.int64), "items")
    low, high = start, end  # the first larger count is in low..high, both included
    for _ in range(int(np.diff(starts).max(initial=0)).bit_length()):
        middle = graph.add("Div", graph.add("Add", low, high), two)
        is_no_larger = graph.add("LessOrEqual", graph.add("Gather", counts, middle), "counts")
        goes_up = graph.add("And", is_no_larger, graph.add("Less", low, high))
        low = graph.add("Where", goes_up, graph.add("Add", middle, one), low)
        high = graph.add("Where", goes_up, high, middle)
    # A place of -1 is the added entry: no watchers.
    n_watchers = graph.add(
        "Where",
        graph.add("Less", start, end),
        graph.add("Gather", up_to, graph.add("Sub", end, one)),
        graph.constant(0, np.int64),
    )
    is_below_all = graph.add("Equal", low, start)
    up_to_count = graph.add("Gather", up_to, graph.add("Sub", low, one))
    n_no_more = graph.add("Where", is_below_all, one, up_to_count)
    n_all = graph.add("Where", is_below_all, graph.add("Add", n_watchers, one), n_watchers)
    shares = [graph.add("Cast", n, to=graph.onnx.TensorProto.DOUBLE) for n in (n_no_more, n_all)]
    return graph.add("Div", *shares)


def _input_weight(graph: _Graph, ratings: str, config: ModelConfig) -> str:
    """What multiplies `like_weight`, from the confidence (Eq. 6): float64, (n_history,)."""
    one = graph.constant(1.0, np.float64)
    alpha = graph.constant(config.alpha, np.float64)
    weight = graph.add("Add", one, graph.add("Mul", alpha, ratings))
    if config.input_scale == "none":
        return weight
    weight = graph.add("Div", weight, graph.constant(1.0 + config.alpha, np.float64))
    if config.input_scale == "alpha":
        return weight
    # With an added zero, the sum over an empty history is 0 in every runtime.
    entries = graph.add("Concat", weight, graph.constant([0.0], np.float64), axis=0)
    total = graph.add("ReduceSum", entries, keepdims=0)
    return graph.add("Div", weight, graph.add("Sqrt", total))


def _logits(graph: _Graph, artifact: Artifact, weight: str) -> str:
    """The network (Eq. 12 and 13): `NumpyNetwork.logits` of one history, float32, (n_items,)."""
    network = artifact.network
    weights, config = network.weights, network.config

    def keep(array: NDArray[np.float32], name: str) -> str:
        return graph.constant(array, np.float32, name)

    # With an added item of weight 0, no array is empty, whatever the history.
    items = graph.add("Concat", "items", graph.constant([0], np.int64), axis=0)
    zero = graph.constant([0.0], np.float32)
    like = graph.add("Concat", weight, zero, axis=0)  # (n_history + 1,)
    ones = graph.add(
        "ConstantOfShape",
        graph.add("Shape", "items"),
        value=graph.onnx.numpy_helper.from_array(np.ones(1, dtype=np.float32)),
    )
    one_each = graph.add("Concat", ones, zero, axis=0)  # (n_history + 1,)
    W = graph.add("Gather", keep(weights["like_weight"], "like_weight"), items)
    scaled_A = np.float32(dislike_scale(config)) * weights["dislike_weight"]
    A = graph.add("Gather", keep(scaled_A, "dislike_weight"), items)
    liked = graph.add("Sub", graph.add("MatMul", like, W), graph.add("MatMul", one_each, A))
    hidden = graph.add("Add", keep(network.empty_input, "empty_input"), liked)  # (n_hidden,)
    hidden = _activation(graph, hidden, config)
    for layer in range(config.n_layers - 1):
        U, b = (keep(weights[f"deep_{x}.{layer}"], f"deep_{x}.{layer}") for x in ("weight", "bias"))
        hidden = graph.add("Add", graph.add("MatMul", U, hidden), b)
        hidden = _activation(graph, hidden, config)
    V = keep(weights["output_weight"], "output_weight")
    d = keep(network.bias, "output_bias")
    logits = graph.add("Add", graph.add("MatMul", V, hidden), d)  # (n_items,)
    if config.n_neighbours:
        nothing = keep(np.zeros(config.n_items, dtype=np.float32), "nothing_liked")
        is_liked = graph.add("ScatterElements", nothing, items, one_each, reduction="add")
        neighbours = graph.constant(weights["neighbours"], np.int64, "neighbours")
        liked_neighbours = graph.add("Gather", is_liked, neighbours)  # (n_items, n_neighbours)
        B = keep(weights["neighbour_weight"], "neighbour_weight")
        from_each = graph.add("Mul", liked_neighbours, B)
        axis = graph.constant([1], np.int64)
        direct = graph.add("ReduceSum", from_each, axis, keepdims=0)  # (n_items,)
        logits = graph.add("Add", logits, direct)
    return logits


def _activation(graph: _Graph, x: str, config: ModelConfig) -> str:
    if config.activation == "identity":
        return x
    if config.activation == "silu":
        return graph.add("Mul", x, graph.add("Sigmoid", x))
    names = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu"}
    return graph.add(names[config.activation], x)
