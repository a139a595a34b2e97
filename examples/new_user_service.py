"""Recommend for new users from a saved model, without torch.

Reads one JSON object a line from standard input and writes one a line to standard output, so
that any program can ask. `history` is a list of item ids or an object of counts by item id:

    {"history": {"show-1": 12, "film-9": 1}, "disliked": ["film-3"], "n": 5}

Needs `pip install cfnade`, no extras.

    python examples/new_user_service.py MODEL < requests.jsonl
"""

from __future__ import annotations

import json
import sys
from typing import Any

from cfnade import CfnadeError, Explanation, ImplicitCFNADE


def answer(model: ImplicitCFNADE, request: dict[str, Any]) -> dict[str, Any]:
    """Recommend for one request, with the reasons."""
    known = {"disliked": request.get("disliked", []), "unknown": "ignore"}
    history = request.get("history", {})
    ids, _ = model.recommend_for(history, request.get("n", 10), **known)
    return {"items": [describe(model, model.explain(history, i, **known)) for i in ids.tolist()]}


def describe(model: ImplicitCFNADE, explained: Explanation) -> dict[str, Any]:
    """An item with its score, its probability and the two best reasons for it."""
    return {
        "item": explained.item,
        "name": model.catalogue_.label(explained.item),
        "score": explained.score,
        "probability": explained.probability,  # None if the model has no calibrator
        "because": [effect.item for effect in explained.because(2)],
    }


def main(folder: str) -> None:
    """Load the model once, then answer line by line; a bad request does not end the service."""
    model = ImplicitCFNADE.load(folder)
    for line in sys.stdin:
        try:
            answered = answer(model, json.loads(line))
        except (CfnadeError, ValueError, TypeError, AttributeError) as error:
            answered = {"error": str(error)}
        print(json.dumps(answered), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
