from __future__ import annotations

import subprocess
import sys

import cfnade


def test_all_is_sorted_and_complete():
    public = [name for name in vars(cfnade) if not name.startswith("_")]
    modules = {"annotations", "os", "version"} | {
        name for name in public if type(getattr(cfnade, name)).__name__ == "module"
    }
    assert sorted(set(public) - modules) == cfnade.__all__ == sorted(cfnade.__all__)


def test_importing_the_package_and_the_command_line_does_not_import_torch_or_other_extras():
    code = (
        "import sys, cfnade, cfnade.cli.main; "
        "print([m for m in ('torch', 'implicit', 'matplotlib', 'pandas', 'sklearn', 'duckdb', "
        "'onnx', 'optuna', 'pyspark', 'pyarrow', 'starlette') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
