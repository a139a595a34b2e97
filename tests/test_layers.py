"""Imports point one way: a module may import those in earlier lines, never later ones."""

from __future__ import annotations

import ast
from pathlib import Path

import cfnade

LAYERS = [
    ["errors", "scorer", "sklearn_rules", "words"],
    ["threads", "ranking"],
    ["data.interactions", "data.feedback"],
    ["data.sessions"],
    ["data.ratings", "data.splitting", "data.catalogue", "data.describe", "data.ingest"],
    ["data"],  # datasets, fingerprints and the simulated service
    ["calibration", "evaluation.ranking"],
    ["evaluation.bootstrap", "evaluation.metrics"],
    ["evaluation.calibration", "evaluation.evaluate"],
    ["model.config", "model.files", "model.ids", "model.direct"],
    ["model.inputs", "model.neighbours", "model.sparse", "model.tensors", "model.weights"],
    ["model.inference", "model.network", "model.new_items", "model.optimizer", "model.ordering"],
    ["model.units"],
    ["model.factors"],
    ["model.exchange"],
    ["model.input_layer", "model.objective", "model.start"],
    ["model.rows"],
    ["model.leave_one_out"],
    ["model.checkpoint", "model.artifact", "model.training"],
    ["explanation", "filters", "model.onnx_export", "similarity"],
    ["evaluation.tuning"],
    ["memory", "readout", "settings_file", "several"],
    ["fit_validation"],
    ["fitting"],
    ["growing"],
    ["answers"],
    ["recommender"],
    ["serve"],
    ["baselines"],
    ["evaluation.baseline_contenders"],
    ["evaluation.contenders", "evaluation.protocol"],
    ["search_space", "tuning_study", "evaluation.compare", "evaluation.nested"],
    ["tuning"],
    ["evaluation.sweep"],
    ["evaluation"],  # plots and report
    ["demo_story"],
    ["recommendation_file"],
    ["scale"],  # nothing of the core imports it
    ["demo", "console", "cli_options"],
    ["cli_compare", "cli_data", "cli_model", "cli_recommend", "cli_serve", "cli_train", "cli_tune"],
    ["cli_scale"],
    ["cli"],
    ["__main__"],
]
SOURCE = Path(cfnade.__file__).parent


def layer_of(module: str) -> int:
    """The layer of the longest name that the module is or lies in."""
    matches = [
        (len(name), number)
        for number, names in enumerate(LAYERS)
        for name in names
        if module == name or module.startswith(name + ".")
    ]
    assert matches, f"{module} is in no layer: add it to the list"
    return max(matches)[1]


def imports_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cfnade"):
            module = node.module.removeprefix("cfnade").removeprefix(".")
            found |= {module} if module else {alias.name for alias in node.names}
    return found


def test_imports_point_one_way():
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if module.endswith("__init__"):
            continue
        for imported in imports_of(path):
            same_package = module.rsplit(".", 1)[0] == imported.rsplit(".", 1)[0] != module
            if layer_of(imported) > layer_of(module) or (
                layer_of(imported) == layer_of(module) and not same_package and imported != module
            ):
                wrong.append(f"{module} imports {imported}")
    assert not wrong
