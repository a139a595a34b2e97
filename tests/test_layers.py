"""Imports point up this list: a package may import those above it, never those below.

Also: names are unique, and `tests/` mirrors the source.
"""

from __future__ import annotations

import ast
from pathlib import Path

import cfnade

LAYERS = [  # the foundations first
    "errors checks folders files checkpoints threads sklearn_rules scorer progress",
    "data",
    "metrics",
    "model",
    "beyond",
    "answer",
    "storage",
    "fit",
    "estimator rating_estimator",
    "baselines",
    "compare",
    "serve",
    "scale",
    "cli",
    "__init__ __main__",
]
SOURCE = Path(cfnade.__file__).parent
TESTS = Path(__file__).parent
UNMIRRORED = {
    "__init__.py": "names to import from elsewhere; test_public_api.py tests the package's own",
    "__main__.py": "one call; tests that start `python -m cfnade` run it",
}
"""Files without a test file of their own, and why."""
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names.split()}


def imports_of(path: Path) -> set[str]:
    """Packages and modules of ours that a file imports, anywhere but for type checking."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    nodes = [node for node in ast.walk(tree) if id(node) not in for_types]
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("cfnade.")}


def test_imports_point_up_the_list():
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        layer = LAYER_OF[place.parts[0].removesuffix(".py")]
        wrong = [name for name in imports_of(path) if LAYER_OF[name] > layer]
        assert not wrong, f"{place} imports {wrong}"


def test_no_package_imports_the_top_level_names():
    """`from cfnade import ...` is for users: inside, it would import everything."""
    for path in sorted(SOURCE.rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        names = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
        assert "cfnade" not in names, path


def test_every_package_says_what_it_is_for_and_what_it_may_import():
    for package in [name for names in LAYERS for name in names.split()]:
        if (SOURCE / package).is_dir():
            text = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text()))
            assert text is not None and "May import" in text, package


def test_no_two_modules_have_the_same_name():
    paths = [path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"]
    modules = [path.name for path in paths]
    assert sorted(modules) == sorted(set(modules))


def test_no_two_public_classes_have_the_same_name():
    names = [
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert sorted(names) == sorted(set(names))


def test_every_module_has_a_test_file_in_the_same_place():
    places = {path.relative_to(SOURCE) for path in SOURCE.rglob("*.py")}
    mirrored = [place for place in places if place.name not in UNMIRRORED]
    assert [p for p in mirrored if not (TESTS / p.parent / f"test_{p.name}").exists()] == []
