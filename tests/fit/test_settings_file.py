from __future__ import annotations

import logging
import tomllib

import pytest

from cfnade import ConfigError, DataError, ImplicitCFNADE
from cfnade.fit.settings import Recipe
from cfnade.fit.settings_file import SettingsFile, read_settings, write_settings

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
        ("[settings\n", "is no TOML file"),
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
    with pytest.raises(ConfigError, match="is no TOML file"):
        read_settings(tmp_path / "bytes")
    with pytest.raises(DataError, match="cannot write"):
        write_settings(tmp_path / "bytes" / "settings.toml", SettingsFile({}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1], {"a": 1}, object()])
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
