"""Answer for somebody never seen before, from a saved model, without torch.

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

from cfnade import CfnadeError, ImplicitCFNADE


def answer(model: ImplicitCFNADE, request: dict[str, Any]) -> dict[str, Any]:
    """Recommend for one request, with the reasons."""
    history, disliked = request.get("history", {}), request.get("disliked", [])
    ids, probabilities = model.recommend_for(
        history, request.get("n", 10), disliked=disliked, unknown="ignore"
    )
    return {
        "items": [
            {
                "item": item,
                "name": model.catalogue_.label(item),
                "probability": round(float(probability), 4),
                "because": because(model, history, disliked, item),
            }
            for item, probability in zip(ids.tolist(), probabilities, strict=True)
        ]
    }


def because(model: ImplicitCFNADE, history: Any, disliked: Any, item: Any) -> list[Any]:
    """The two entries of the history that speak most for an item."""
    explanation = model.explain(history, item, disliked=disliked, unknown="ignore")
    return [effect.item for effect in explanation.because(2)]


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
