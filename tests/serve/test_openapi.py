"""The OpenAPI document says what the service does: schemathesis tries to find a difference."""

from __future__ import annotations

import subprocess
import sys

import pytest

PHASES = "examples,coverage,fuzzing"
SETTINGS = """
hooks = "hooks.py"

[phases.coverage]  # without QUERY, which older HTTP parsers refuse as no method at all
unexpected-methods = ["get", "put", "post", "delete", "options", "patch", "trace"]

[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"""

# What no schema can say: the times of one history are all with a time zone, or all without.
HOOKS = """
import re

import schemathesis


def times(part):
    if isinstance(part, str):
        return [part]
    values = part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    return [time for value in values for time in times(value)]


@schemathesis.hook
def filter_body(context, body):
    requests = body.get("requests", [body]) if isinstance(body, dict) else []
    histories = [r.get("history") for r in requests if isinstance(r, dict)]
    zoned = [{bool(re.search(r"(Z|[+-][0-9:]+)$", t[10:])) for t in times(h)} for h in histories]
    return all(len(kinds) < 2 for kinds in zoned)
"""


def test_no_answer_differs_from_the_document(service, tmp_path):
    pytest.importorskip("schemathesis")
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    (tmp_path / "hooks.py").write_text(HOOKS)
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
