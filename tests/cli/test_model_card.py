"""The model card says what the file knows, and nothing that the file does not know."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import CFNADE, ImplicitCFNADE, Recipe, read_interactions
from cfnade.cli.main import run
from cfnade.cli.model_card import model_card
from cfnade.errors import ArtifactError
from cfnade.storage.folder import inspect_artifact
from tests.cli.helpers import check_refused
from tests.networks import group_counts
from tests.storage.saved import KEPT, seal

CARD = {
    "What it is for",
    "Data",
    "How good it is",
    "The network",
    "Limits",
    "How to fit it again",
    "To be filled in",
}


def facts(text, section):
    """The table of a section."""
    (found,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line.removesuffix("|") for line in found.splitlines() if line.startswith("| ")]
    rows = [re.split(r"(?<!\\)\|", line)[1:] for line in lines]
    return {name.strip(): value.strip() for name, value in rows[1:]}


def card_of(folder):
    return model_card("plays", inspect_artifact(folder))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model of counts, fitted here."""
    pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("card") / "model"
    recipe = Recipe(n_hidden=8, max_epochs=4)
    model = ImplicitCFNADE(recipe=recipe, random_state=3).fit(read_interactions(group_counts()))
    model.save(place, metrics={"test_mpr": 12.25}, data={"name": "a|b\n# c <b>"})
    return model, place


def test_inspect_prints_the_card_and_nothing_else(capsys):
    assert run(["inspect", str(KEPT), "--card"]) == 0
    shown = capsys.readouterr()
    assert shown.out == model_card("v1", inspect_artifact(KEPT)) and shown.err == ""
    assert set(re.findall(r"^## (.+)$", shown.out, flags=re.MULTILINE)) == CARD


def test_a_damaged_model_ends_in_exit_code_2_with_a_card_too(tmp_path, capsys):
    folder = shutil.copytree(KEPT, tmp_path / "model")
    with (folder / "weights.safetensors").open("ab") as file:
        file.write(b"x")
    assert run(["inspect", str(folder), "--card"]) == 2
    assert "is not what was saved" in capsys.readouterr().err


def test_card_and_json_are_refused_together(capsys):
    check_refused(capsys, ["inspect", "M", "--card", "--json", "-"], "do not go together", M=KEPT)


def test_the_figures_are_those_of_the_model(fitted):
    model, place = fitted
    text = card_of(place)
    data = facts(text, "Data")
    assert (data["users"], data["items"], data["pairs"]) == (
        *("60", "20"),
        f"{model.data_fingerprint_['n_pairs']:,}",
    )
    assert data["SHA-256"] == model.data_fingerprint_["sha256"]
    quality = facts(text, "How good it is")
    assert quality["validation MPR"].startswith(f"{model.validation_mpr_:.4g} %")
    assert quality["held out for it"] == "a random 10 % of the items of some users"
    assert quality["probabilities"].startswith(f"calibrated on {model.calibrator_.n_pairs}")
    assert quality["test mpr"] == "12.25"
    assert facts(text, "The network")["hidden units, layers"] == "8, 1"
    assert facts(text, "The network")["epochs"] == str(model.best_epoch_)


def test_the_code_on_the_card_makes_the_same_settings(fitted):
    model, place = fitted
    (code,) = re.findall(r"```python\n(.*?)```", card_of(place), flags=re.DOTALL)
    scope = {"DATA": None}
    exec(code.replace(".fit(DATA)", ""), scope)
    assert scope["model"].get_params() == model.get_params()


@pytest.mark.parametrize(
    ("clock", "given", "held_out", "is_trained_again"),
    [
        (None, None, "a random 10 % of the items of some users", False),
        ("seconds", None, "the last 10 % of all events", True),
        ("order", None, "the last 10 % of each user's events", True),
        ("seconds", "pairs", "a random 10 % of the items of some users", False),
        (None, "sessions", "new items that occur together, as in a next basket", False),
    ],
)
def test_it_says_what_was_held_out(clock, given, held_out, is_trained_again):
    described = inspect_artifact(KEPT)
    described["training"] = {"clock": clock}
    described["settings"] = {"validation_share": 0.1, "validation_by": given}
    quality = facts(model_card("m", described), "How good it is")
    assert quality["held out for it"] == held_out
    assert ("then" in quality) == is_trained_again


def test_what_is_not_known_is_not_claimed():
    described = inspect_artifact(KEPT)
    for name in ("metrics", "training", "data", "data_fingerprint", "settings"):
        del described[name]
    text = model_card("m", described)
    assert facts(text, "How good it is") == {
        "validation MPR": "none: nothing was held out",
        "probabilities": "none: nothing was held out, or the model was trained further",
    }
    assert "Unknown." in text and "SHA-256" not in text


def test_events_and_further_training_are_on_the_card():
    described = inspect_artifact(KEPT)
    described["data"] = {"events_per_kind": {"view": 9000, "purchase": 80}, "n_events": 9080}
    described["training"] = {"target_event": "purchase", "partial_fits": [{}, {}]}
    text = model_card("m", described)
    data = facts(text, "Data")
    assert data["kinds of events"] == "view 9,000, purchase 80"
    assert data["predicts the event"] == "purchase" and data["events"] == "9,080"
    assert facts(text, "The network")["trained further"] == "2 times (partial\\_fit)"
    assert "on data that are not described here" in text


def test_what_a_file_says_is_never_markdown_html_or_an_item(fitted):
    _, place = fitted
    text = card_of(place)
    assert "<b>" not in text.replace("\\<b\\>", "") and "\n# c" not in text
    assert facts(text, "Data")["name"] == "'a\\|b\\\\n\\# c \\<b\\>'"
    ids = json.loads((place / "items.json").read_text())["ids"]
    assert not any(re.search(rf"\bitem {re.escape(str(item))}\b", text) for item in ids)


def test_a_card_of_ratings(tmp_path):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    stars = csr_array(rng.integers(1, 6, (40, 12)) * (rng.random((40, 12)) < 0.6))
    model = CFNADE(n_hidden=4, max_epochs=3, validation_share=0.1).fit(stars)
    model.save(tmp_path / "stars")
    text = card_of(tmp_path / "stars")
    assert facts(text, "How good it is") == {
        "validation RMSE": f"{model.validation_rmse_:.4g} (0 is best)",
        "held out for it": "a random 10 % of the ratings",
        "mind": "two temperatures were found on the same part, so it is a little too good",
    }
    assert facts(text, "The network")["values of a rating"] == "5"
    assert facts(text, "Data")["users"] == "40" and facts(text, "Data")["pairs"] == str(stars.nnz)
    assert "every training rating" in text and "from cfnade import CFNADE\n" in text


def test_a_model_of_another_kind_has_no_card(tmp_path):
    folder = shutil.copytree(KEPT, tmp_path / "model")
    seal(folder, kind="songs")
    with pytest.raises(ArtifactError, match="no card for a model of 'songs'"):
        card_of(folder)
