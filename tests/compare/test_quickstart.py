"""A quick start fits, recommends for three people, writes a report and says what to type next."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import DataError, ImplicitCFNADE, Interactions
from cfnade.compare.quickstart import (
    Quickstart,
    Sample,
    quick_start,
    render_quickstart,
    typical_rows,
)
from tests.networks import group_counts
from tests.planted import window_shopping


@pytest.fixture(scope="module")
def data():
    plain = Interactions.from_matrix(group_counts())
    names = [f"<Band> {k}" for k in range(20)]
    return replace(plain, item_names=np.array(names, dtype=object))


@pytest.fixture(scope="module")
def found(data, tmp_path_factory):
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("quick")
    return quick_start(data, out, source="my data.csv", options=" --user-col who")


def test_typical_users_have_few_a_usual_number_and_many_items():
    lengths = [0, 9, 1, 5, 3, 7, 2, 0, 8, 4, 6, 10]
    rows = [np.arange(10) < length for length in lengths]
    data = Interactions.from_matrix(csr_array(np.array(rows, dtype=float)))
    assert [lengths[row] for row in typical_rows(data)] == [2, 5, 8]
    assert typical_rows(Interactions.from_matrix(csr_array(np.eye(2)))) == [0, 1]
    assert typical_rows(Interactions.from_matrix(csr_array(np.ones((4, 2))))) == [0, 2, 3]


def test_people_get_what_the_model_recommends_by_name_with_reasons(found, data):
    model = ImplicitCFNADE.load(found.model)
    assert len(found.samples) == 3
    for sample in found.samples:
        own = data.counts[[data.user_index[sample.user]]]
        ids, _ = model.recommend_for(own, 5)
        assert [entry["item"] for entry in sample.recommendations] == ids.tolist()
        expected = model.probability(own, ids)
        shown = [entry["probability"] for entry in sample.recommendations]
        np.testing.assert_allclose(shown, expected, atol=1e-6)
        assert all(entry["name"].startswith("<Band> ") for entry in sample.recommendations)
        assert any(entry["because"] for entry in sample.recommendations)
        assert [entry["count"] for entry in sample.history] == sorted(own.data)[::-1][:5]
        assert sample.n_items == own.nnz and f"and {own.nnz - 5} more" in sample.title


def test_the_words_say_what_was_read_and_how_good_it_is(found, data):
    model = ImplicitCFNADE.load(found.model)
    assert found.data["read"] == f"60 users, 20 items, {data.n_pairs} pairs"
    assert f"stood {model.validation_mpr_:.1f} % down the list" in found.headline
    assert "little" not in found.headline and "calibrated on" in found.fit["probabilities"]


def test_the_next_commands_name_the_model_the_data_and_an_item(found):
    first, similar, compare, serve = [command for command, _ in found.next_steps]
    assert re.fullmatch(rf"cfnade recommend {found.model} '<Band> \d+'=3 .* --explain", first)
    assert similar.startswith(f"cfnade similar {found.model} '<Band> ")
    assert compare == "cfnade compare 'my data.csv' --user-col who"
    assert serve == f"cfnade serve {found.model}"


def test_the_report_shows_all_of_it_as_text(found):
    page = found.report.read_text()
    assert page == render_quickstart(found, "my data.csv")
    assert "<Band>" not in page and page.count("&lt;Band&gt;") > 15
    assert f"<h1>{found.headline}</h1>" in page and "<script" not in page and "$" not in page
    assert page.count("<article>") == 5 and "What to type next" in page
    for sample in found.samples:
        assert f"<h3>User {sample.user}</h3>" in page
        assert f"and {sample.n_items - 5} more" in page
        best = sample.recommendations[0]
        assert f"<b>{best['probability']:.1%}</b>" in page
        reasons = ", ".join(reason["name"] for reason in best["because"])
        assert escape(f"because of {reasons}") in page
    assert "The percentage is the probability" in page


def test_what_predicts_nothing_says_so(tmp_path):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    noise = Interactions.from_matrix(csr_array((rng.random((80, 12)) < 0.4).astype(float)))
    found = quick_start(noise, tmp_path / "noise", source="noise.csv")
    assert found.headline.endswith("These data say little about what people like.")
    single = Interactions.from_matrix(csr_array(np.eye(6)))
    found = quick_start(single, tmp_path / "single", source="single.csv")
    assert found.headline.startswith("Nothing could be held out")
    page = found.report.read_text()
    assert "The numbers are scores" in page and "is the probability" not in page
    score = found.samples[0].recommendations[0]["score"]
    assert f"<b>{score:.3f}</b>" in page and "width:" not in page.split("</style>")[1]


def test_with_a_target_event_all_items_are_new_to_the_user(tmp_path):
    pytest.importorskip("torch")
    data = window_shopping().weighed({"view": 1.0, "cart": 3.0, "buy": 5.0, "skip": 0.0}, "buy")
    assert ImplicitCFNADE(random_state=0).fit(data).answers_.scores_history
    found = quick_start(data, tmp_path, source="shop.csv")
    assert found.fit["predicts"] == "buy events" and "buy" in found.data["events"]
    for sample in found.samples:
        row = data.user_index[sample.user]
        touched = set(data.item_ids[data.log.item[data.log.user == row]].tolist())
        assert len(sample.recommendations) == 5
        assert not touched & {entry["item"] for entry in sample.recommendations}
    assert found.about_samples.endswith("leaves out only those with a buy event.")
    assert escape(found.about_samples) in found.report.read_text()


def test_a_report_that_cannot_be_written_is_one_line(data, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(DataError, match=r"cannot write .*choose another place with --out"):
        quick_start(data, tmp_path, source="plays.csv")


def test_a_folder_that_cannot_be_made_is_refused_before_the_fit(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write .*file/deep: Not a directory"):
        quick_start(
            Interactions.from_matrix(csr_array((2, 2))), tmp_path / "file" / "deep", source=""
        )


@pytest.mark.browser
@pytest.mark.parametrize(("width", "n_columns"), [(1280, 3), (390, 1)])
def test_the_report_fills_its_width_and_needs_no_sideways_scrolling(browser, width, n_columns):
    long = "Every day " * 20 + "or" * 80
    found = {"item": long, "name": long, "probability": 0.5, "because": [{"name": long}]}
    sample = Sample(long, 9, [{"name": long, "count": 12.0}], [found])
    report = Quickstart(
        {"read": long},
        long,
        {"training": long},
        [sample] * 3,
        long,
        [(long, "now")],
        Path(),
        Path(),
    )
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.set_content(render_quickstart(report, long))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cards = [card.bounding_box() for card in page.locator(".three article").all()]
    assert len({box["x"] for box in cards}) == n_columns
    page.close()
