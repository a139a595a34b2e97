"""The OpenAPI document says what the service does: schemathesis tries to find a difference."""

from __future__ import annotations

import subprocess
import sys

import pytest

PHASES = "examples,coverage,fuzzing"
TOO_LARGE_IS_REFUSED = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"""


def test_no_answer_differs_from_the_document(service, tmp_path):
    pytest.importorskip("schemathesis")
    (tmp_path / "schemathesis.toml").write_text(TOO_LARGE_IS_REFUSED)
    command = ["run", f"{service.url}/openapi.json", "--checks", "all", "--phases", PHASES]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *command, "--max-examples", "15"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert "No issues found" in done.stdout


def test_the_examples_of_the_document_work(service):
    for path, operations in service.get("/openapi.json").json["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            answer = service.ask(method.upper(), path, body.get("example"))
            assert answer.status == 200, path


def test_limits_are_told(service):
    told = service.get("/openapi.json").json["components"]["schemas"]
    assert told["RecommendRequest"]["properties"]["history"]["maxProperties"] == 1000
    assert told["RecommendRequest"]["properties"]["n"]["maximum"] == 100
    assert told["BatchRequest"]["properties"]["requests"]["maxItems"] == 64
