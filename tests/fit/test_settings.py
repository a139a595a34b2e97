from __future__ import annotations

import inspect
import json
import logging
import tomllib
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ConfigError, DataError, ImplicitCFNADE, RelativeRating
from cfnade.beyond.readout import NO_READOUT, Readout
from cfnade.fit.settings import (
    NESTED,
    OVERRIDES,
    RECIPES,
    FitSettings,
    Recipe,
    SettingsFile,
    from_json,
    nested_params,
    read_settings,
    readout_of,
    recipe_of,
    to_json,
    with_nested,
    write_settings,
)
from cfnade.model.config import ModelConfig, TrainingConfig

KEYWORDS = list(inspect.signature(ImplicitCFNADE).parameters)


def params_of(**settings):
    return ImplicitCFNADE(**settings).get_params(deep=False)


def test_defaults_of_the_recipe_are_those_of_the_configurations():
    defaults = {
        field.name: field.default
        for kind in (ModelConfig, TrainingConfig)
        for field in fields(kind)
    }
    for field in fields(Recipe):
        if field.name in defaults and field.default is not None:
            assert field.default == defaults[field.name], field.name
    missing = defaults.keys() - {field.name for field in fields(Recipe)}
    assert missing == {"n_items", "n_neighbours", "seed"}


def test_the_paper_recipe_is_that_of_the_paper():
    paper = RECIPES["paper"]
    assert paper.schedule == "constant" and paper.precision == "float32" and paper.trials == 1
    assert (paper.n_hidden, paper.optimizer, paper.learning_rate) == (256, "sgd", 0.01)
    assert (paper.batch_size, paper.weight_decay, paper.alpha) == (200, 0.01, 300.0)
    assert paper.context_share is None and not paper.item_mean  # Eq. 14 as printed
    assert paper.readout == NO_READOUT and paper.start == "random"  # not in the paper


def test_the_default_trains_once_and_thorough_chooses_from_several_trainings():
    assert list(RECIPES) == ["default", "thorough", "paper"]
    assert RECIPES["default"] == Recipe() and Recipe().trials == 1
    thorough = RECIPES["thorough"]
    assert thorough.trials > 1 and replace(thorough, trials=1) == Recipe()


def test_keywords_override_the_recipe_and_none_leaves_it():
    for recipe in ("default", "thorough", "paper", Recipe(alpha=7.0)):
        assert FitSettings.of(params_of(recipe=recipe)).recipe == recipe_of(recipe)
    values = {"n_hidden": 3, "alpha": 2.0, "item_l2": 0.5, "learning_rate": 0.2,
              "batch_size": 9, "max_epochs": 4, "patience": 2}  # fmt: skip
    assert tuple(values) == OVERRIDES
    found = FitSettings.of(params_of(recipe="paper", **values)).recipe
    assert found == replace(RECIPES["paper"], **values)
    readout = Readout(direct_gain=3.0)
    assert FitSettings.of(params_of(recipe="paper", readout=readout)).recipe.readout == readout


def test_all_else_of_the_estimator_becomes_a_setting_of_the_fit():
    given = {"validation_share": 0.2, "validation_by": "events", "choose_by": "ndcg@5",
             "n_threads": 3, "memory_limit": "1GB"}  # fmt: skip
    assert FitSettings.of(params_of(random_state=4, **given)) == FitSettings(seed=4, **given)
    assert FitSettings.of(params_of()) == FitSettings()


def test_numbers_of_numpy_become_plain_ones():
    found = FitSettings.of(params_of(n_hidden=np.int64(4), alpha=np.float32(2.0)))
    assert type(found.recipe.n_hidden) is int and type(found.recipe.alpha) is float


@pytest.mark.parametrize(
    "wrong",
    [
        {"validation_by": "luck"},
        {"validation_share": 1.0},
        {"validation_share": "half"},
        {"choose_by": "luck"},
        {"recipe": "best"},
        {"recipe": ["paper"]},
        {"recipe": None},
        {"readout": "direct"},
        {"readout": 3},
        {"random_state": "x"},
        {"n_threads": 0},
        {"memory_limit": "much"},
    ],
)
def test_settings_without_meaning_are_refused(wrong):
    name = next(iter(wrong))
    with pytest.raises(ConfigError, match="metric 'luck'" if name == "choose_by" else name):
        FitSettings.of(params_of(**wrong))


@pytest.mark.parametrize(
    "wrong",
    [{"start": "warm"}, {"readout": None}, {"trials": 0}, {"trials": 2.5}, {"trials": "many"}],
)
def test_a_recipe_without_meaning_is_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Recipe(**wrong)


# Nested names ----------------------------------------------------------------------------------


def test_nested_params_are_what_is_inside_recipe_and_readout():
    found = nested_params(params_of(recipe="paper"))
    assert sorted(found) == sorted(NESTED)
    assert found["recipe__optimizer"] == "sgd" and found["readout__direct"] is False
    found = nested_params(params_of(recipe="paper", readout=Readout(direct_gain=3.0)))
    assert found["readout__direct"] is True and found["readout__direct_gain"] == 3.0
    assert "recipe__readout" not in found


def test_nested_names_change_one_field_of_the_recipe_or_readout():
    changed = with_nested(params_of(), {"recipe__n_layers": 2, "alpha": 3.0})
    assert changed == {"alpha": 3.0, "recipe": Recipe(n_layers=2)}
    changed = with_nested(params_of(recipe="paper"), {"readout__direct_gain": 3.0})
    assert changed == {"readout": replace(NO_READOUT, direct_gain=3.0)}
    given = params_of(readout=Readout(direct_l2=5.0))
    both = {"readout__direct_gain": 3.0, "readout__direct": False, "recipe__trials": 3}
    assert with_nested(given, both) == {
        "readout": Readout(False, direct_l2=5.0, direct_gain=3.0),
        "recipe": Recipe(trials=3),
    }


def test_a_group_and_its_fields_can_be_set_together():
    changed = with_nested(params_of(), {"recipe__n_layers": 2, "recipe": "paper"})
    assert changed == {"recipe": replace(RECIPES["paper"], n_layers=2)}
    changed = with_nested(params_of(), {"recipe": "paper", "readout__direct_l2": 0.1})
    assert changed["readout"] == replace(NO_READOUT, direct_l2=0.1)


@pytest.mark.parametrize(
    "name", ["depth", "n_layers", "recipe__depth", "readout__n_layers", "alpha__x",
             "recipe__readout", "recipe__readout__direct", "__class__"]
)  # fmt: skip
def test_other_names_are_refused_with_those_that_exist(name):
    with pytest.raises(ConfigError, match=f"no setting '{name}'; (did you mean|choose from n_)"):
        with_nested(params_of(), {name: 1})


@pytest.mark.parametrize(
    ("name", "hint"),
    [("n_layers", "recipe__n_layers"), ("direct_gain", "readout__direct_gain"),
     ("alpah", "alpha"), ("xyzzy", "choose from n_hidden, alpha"),
     ("n_hiden", r"did you mean n_hidden\?"), ("epochs", r"did you mean max_epochs\?"),
     ("lr", r"did you mean learning_rate\?"), ("seed", r"did you mean random_state\?"),
     ("layers", r"did you mean recipe__n_layers\?")],
)  # fmt: skip
def test_a_name_that_is_nearly_right_gets_a_hint(name, hint):
    with pytest.raises(ConfigError, match=hint):
        with_nested(params_of(), {name: 1})


# JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"recipe": "paper", "n_hidden": 3},
        {"recipe": Recipe(n_layers=2, readout=Readout(direct=False)), "alpha": 2.0},
        {"readout": Readout(direct_gain=3.0), "choose_by": "ndcg@5", "memory_limit": "1GB"},
    ],
)
def test_settings_are_the_same_after_json(settings):
    params = params_of(**settings)
    again = from_json(json.loads(json.dumps(to_json(params))), KEYWORDS)
    assert params_of(**again) == params


def test_count_distributions_are_not_settings_that_are_saved():
    given = RelativeRating().fit(csr_array(np.ones((1, 1))))
    assert "relative_rating" not in to_json(params_of(relative_rating=given))
    assert to_json(params_of(alpha=np.float64(2.0)))["alpha"] == 2.0
    assert from_json({"recipe": "paper", "relative_rating": [1]}, KEYWORDS) == {"recipe": "paper"}


def test_settings_of_earlier_versions_are_read():
    saved = {
        "n_hidden": 4, "alpha": 20.0, "n_layers": 2, "optimizer": "sgd", "batch_size": 50,
        "direct": True, "direct_gain": 3.0, "direct_dropout": 0.5, "popularity_tilt": None,
        "zero_share": 1.0, "validation_users": 10_000, "n_networks": 4, "refit": False,
        "start_from_factors": False, "item_l2": 0.1, "random_state": 3, "memory_limit": None,
    }  # fmt: skip
    found = FitSettings.of(params_of(**from_json(saved, KEYWORDS)))
    expected = Recipe(
        n_hidden=4, alpha=20.0, n_layers=2, optimizer="sgd", batch_size=50,
        start="random", item_l2=0.1, readout=Readout(direct_gain=3.0),
    )  # fmt: skip
    assert found == FitSettings(expected, seed=3)
    assert from_json({"start_from_factors": True}, KEYWORDS)["recipe"].start == "factors"
    assert from_json({"start_from_factors": None}, KEYWORDS)["recipe"] == Recipe()
    assert FitSettings.of(params_of(**from_json({}, KEYWORDS))) == FitSettings()
    grouped = {"recipe": {"n_layers": 2, "refit": False, "readout": {"direct_gain": 3.0}}}
    found = FitSettings.of(params_of(**from_json(grouped, KEYWORDS)))
    assert found.recipe == Recipe(n_layers=2, readout=Readout(direct_gain=3.0))


def test_recipes_and_readouts_are_read_as_they_are_or_as_json():
    assert recipe_of(Recipe(alpha=2.0)) == Recipe(alpha=2.0)
    later = {"alpha": 2.0, "readout": {"direct": False}, "from_a_later_version": 1}
    assert recipe_of(later) == Recipe(alpha=2.0, readout=Readout(direct=False))
    assert readout_of({"direct_gain": 2.0, "factor_gain": 1.0}) == Readout(direct_gain=2.0)


SETTINGS = {
    "alpha": 24.9,
    "item_l2": 1e-05,
    "n_hidden": 64,
    "readout__direct": False,
    "recipe__context_share": None,
    "recipe__input_scale": "none",
    "memory_limit": '4"GB\\ \x7f é',
}


def test_what_is_written_is_read_again_and_none_is_no_word(tmp_path):
    path = tmp_path / "new" / "settings.toml"
    file = SettingsFile(SETTINGS, "paper", {"validation_mpr": 4.5, "n_trials": 3})
    write_settings(path, file, remarks="One.\nTwo.")
    assert read_settings(path) == file
    assert path.read_text().startswith('# One.\n# Two.\nrecipe = "paper"\n\n[settings]\nalpha = ')
    assert tomllib.loads(path.read_text())["settings"]["item_l2"] == 1e-05
    assert [p.name for p in path.parent.iterdir()] == ["settings.toml"]


def test_a_model_is_made_of_the_recipe_the_file_and_the_changes(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text('recipe = "paper"\n[settings]\nalpha = 7.5\nn_hidden = 16\n')
    model = ImplicitCFNADE.from_settings(path, n_hidden=8)
    expected = ImplicitCFNADE(recipe="paper", alpha=7.5, n_hidden=8)
    assert model.get_params() == expected.get_params()


def test_a_file_by_hand_needs_no_more_than_the_settings(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text("[settings]\nalpha = 7.5\n")
    expected = ImplicitCFNADE(alpha=7.5)
    assert ImplicitCFNADE.from_settings(path).get_params() == expected.get_params()


def test_nested_settings_are_read_into_the_recipe_and_the_readout(tmp_path):
    path = tmp_path / "settings.toml"
    write_settings(path, SettingsFile({"recipe__context_share": None, "readout__direct_gain": 3.0}))
    model = ImplicitCFNADE.from_settings(path, recipe__n_layers=2)
    assert model.recipe == Recipe(context_share=None, n_layers=2)
    assert model.readout.direct_gain == 3.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha = 3", "settings go below"),
        ("[settings\n", "is not a valid TOML file"),
        ("settings = 3", "must be tables"),
        ('recipe = "best"', "there is no recipe 'best'"),
        ("recipe = [1]", "there is no recipe"),
        ("[settings]\nrelative_rating = 1", "relative_rating cannot be set"),
        ("[settings]\nalpah = 1", "there is no setting 'alpah'"),
        ("[settings]\nrecipe__depth = 1", "there is no setting 'recipe__depth'"),
        ("[settings]\nn_layers = 1", "there is no setting 'n_layers'"),
        ('preset = "paper"', "holds 'preset'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, text, message):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        ImplicitCFNADE.from_settings(path)


def test_a_missing_file_bytes_that_are_no_text_and_a_bad_place_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the settings in"):
        read_settings(tmp_path / "nowhere.toml")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not a valid TOML file"):
        read_settings(tmp_path / "bytes")
    with pytest.raises(DataError, match="cannot write"):
        write_settings(tmp_path / "bytes" / "settings.toml", SettingsFile({}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("nan")], {"a": 1}, object()])
def test_what_a_file_cannot_hold_is_refused(tmp_path, value):
    with pytest.raises(ConfigError, match="a settings file holds"):
        write_settings(tmp_path / "settings.toml", SettingsFile({"alpha": value}))


def test_settings_are_not_judged_on_pairs_that_they_were_chosen_with(caplog):
    file = SettingsFile({}, search={"data_sha256": "abc", "seed": 1, "test_share": 0.1})
    file.check_test_is_unseen("abc", seed=1, test_share=0.1)
    for seed, share in ((0, 0.1), (1, 0.2)):
        with pytest.raises(ConfigError, match="some test pairs have been seen"):
            file.check_test_is_unseen("abc", seed=seed, test_share=share)
    SettingsFile({}).check_test_is_unseen("abc", seed=0, test_share=0.1)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        file.check_test_is_unseen("xyz", seed=0, test_share=0.1)
    assert "chosen on other data" in caplog.text
