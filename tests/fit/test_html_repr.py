"""A notebook shows whether an estimator is fitted, on what, how well and how long it took."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from cfnade import CFNADE, ImplicitCFNADE, RatingTable
from cfnade.fit.html_repr import facts_of_fit, html_repr
from tests.networks import group_counts


def text_of(html):
    """The text of well-formed HTML, a line for each element."""
    found, tags = [], []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _: tags.append(tag)
    parser.handle_endtag = lambda tag: found.append((tags.pop(), tag))
    lines = []
    parser.handle_data = lambda data: lines.append(data) if tags[-1] != "style" else None
    parser.feed(html)
    assert not tags and all(opened == closed for opened, closed in found)
    return lines


def quick():
    return ImplicitCFNADE(n_hidden=8, max_epochs=4, learning_rate=0.02)


def test_before_the_fit():
    model = ImplicitCFNADE(alpha=3.0)
    assert text_of(model._repr_html_()) == ["ImplicitCFNADE(alpha=3.0)", "not fitted"]
    assert repr(model) == "ImplicitCFNADE(alpha=3.0)"
    assert text_of(CFNADE()._repr_html_()) == ["CFNADE()", "not fitted"]


def test_what_could_be_markup_is_text():
    html = html_repr("Model(choose_by='<b>')", {"fitted on": "<script>", "predicts": ""})
    assert "<script>" not in html and "<b>" not in html
    assert text_of(html)[2:] == ["fitted on", "<script>"]


def test_after_the_fit_and_after_load(tmp_path):
    pytest.importorskip("torch")
    model = quick().fit(group_counts())
    lines = text_of(model._repr_html_())
    told = dict(zip(lines[2::2], lines[3::2], strict=True))
    assert lines[1] == "fitted"
    n_pairs = group_counts().nnz
    assert told["fitted on"] == f"60 users, 20 items, {n_pairs} pairs"
    assert told["validation"].startswith(f"MPR {model.validation_mpr_:.2f} % on held-out items")
    n_held_out = model.calibrator_.n_pairs
    assert told["probabilities"] == f"calibrated on {n_held_out} held-out pairs"
    assert re.fullmatch(r"4 epochs, \d+\.\d seconds", told["training"])
    assert model.fit_seconds_ > 0
    model.save(tmp_path / "model")
    loaded = ImplicitCFNADE.load(tmp_path / "model")
    assert loaded._repr_html_() == model._repr_html_()
    loaded.partial_fit(group_counts(np.random.default_rng(1)), n_epochs=1)
    facts = facts_of_fit(loaded)
    assert facts["trained further"] == "1 time" and facts["validation"] == "none"
    assert facts["probabilities"].startswith("none: nothing was held out")


def test_a_folder_with_forged_sizes_still_has_a_representation(tmp_path):
    pytest.importorskip("torch")
    model = quick().fit(group_counts())
    model.data_fingerprint_ = {"n_users": "many", "n_items": 20}
    model.validation_mpr_ = "good"
    facts = facts_of_fit(model)
    assert facts["fitted on"] == "20 items" and facts["validation"] == "none"


def test_ratings(tmp_path):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    rated = rng.random((30, 12)) < 0.5
    users, items = np.nonzero(rated)
    table = {"user": users, "item": items, "rating": rng.integers(1, 6, users.size)}
    pandas = pytest.importorskip("pandas")
    model = CFNADE(n_hidden=4, max_epochs=2, validation_share=0.1).fit(pandas.DataFrame(table))
    assert isinstance(model.ratings_, RatingTable)
    told = " ".join(text_of(model._repr_html_()))
    assert f"30 users, 12 items, {users.size} ratings" in told
    assert f"RMSE {model.validation_rmse_:.4f} on held-out items (ratings from 1 to 5" in told
    assert "2 epochs, " in told
    model.save(tmp_path / "model")
    loaded = CFNADE.load(tmp_path / "model")
    assert loaded.fit_seconds_ == model.fit_seconds_ > 0
