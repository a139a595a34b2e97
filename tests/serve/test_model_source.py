"""A good model takes over, a bad one is refused."""

from __future__ import annotations

import asyncio
import shutil

import numpy as np
import pytest

from cfnade.errors import ArtifactError
from cfnade.serve import model_source as loading
from cfnade.serve.model_source import ModelSource
from cfnade.storage.folder import load_artifact, save_artifact
from tests.storage.saved import random_artifact, seal


@pytest.fixture
def outcomes():
    return []


@pytest.fixture
def source(folder, outcomes):
    return ModelSource(folder, outcomes.append)


def put_other_model(folder):
    save_artifact(random_artifact(np.random.default_rng(5)), folder)


def test_an_unchanged_folder_is_left_alone(source, outcomes):
    before = source.current
    assert not source.check()
    assert source.current is before and outcomes == ["loaded"]


def test_a_new_model_in_the_folder_takes_over(source, folder, outcomes):
    before = source.current
    put_other_model(folder)
    assert source.check() and not source.check()
    assert source.current.n_items == 9 and source.current.version != before.version
    assert outcomes == ["loaded", "swapped"]
    assert before.model.recommend_for({"film-0": 1}, n=3)[0].size == 3  # the old one still answers


def test_a_changed_file_is_refused_once_and_the_old_model_stays(source, folder, outcomes, caplog):
    before = source.current
    shutil.copytree(folder, folder.parent / "good")
    content = bytearray((folder / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "new").write_bytes(content)  # beside it, then renamed, as no mapped file may change
    (folder / "new").rename(folder / "weights.safetensors")
    assert not source.check() and not source.check()
    assert source.current is before and outcomes == ["loaded", "refused"]
    assert "weights.safetensors is not what was saved" in source.refused
    assert "refused a new model" in caplog.text
    shutil.rmtree(folder)
    (folder.parent / "good").rename(folder)
    assert source.check() and source.refused is None


def test_the_old_model_put_back_is_no_longer_refused(source, folder):
    old = folder.rename(folder.parent / "old")
    shutil.copytree(old, folder)
    (folder / "items.json").write_text("damaged")
    assert not source.check()
    assert source.refused.endswith("copy to another folder and rename that into place")
    shutil.rmtree(folder)
    old.rename(folder)
    assert not source.check() and source.refused is None


@pytest.mark.parametrize("error", [OverflowError("int64"), MemoryError(), RecursionError()])
def test_an_error_of_any_kind_is_a_refusal_and_not_tried_again(
    source, folder, outcomes, monkeypatch, error
):
    def fail(folder, name):
        raise error

    put_other_model(folder)
    monkeypatch.setattr(loading, "load", fail)
    assert not source.check() and not source.check()
    assert outcomes == ["loaded", "refused"]
    assert source.refused.startswith(type(error).__name__)


def test_a_model_that_came_while_the_service_started_is_seen_without_being_asked_for(
    source, folder
):
    async def main():
        watch = asyncio.create_task(source.watch(0))
        for _ in range(200):
            if source.current.n_items == 9:
                break
            await asyncio.sleep(0.05)
        watch.cancel()

    put_other_model(folder)
    asyncio.run(main())
    assert source.current.n_items == 9


def test_a_model_that_does_not_answer_well_is_refused(source, folder, monkeypatch):
    put_other_model(folder)
    real = loading.LoadedModel.search.func

    def broken(self):
        raise RuntimeError("cannot")

    monkeypatch.setattr(loading.LoadedModel, "search", property(broken))
    assert not source.check()
    monkeypatch.setattr(loading.LoadedModel, "search", property(real))
    assert source.current.n_items == 12
    assert source.check(is_forced=True)


def test_a_forged_model_with_huge_weights_does_not_take_over(source, folder):
    artifact = load_artifact(folder)
    weights = {name: array.copy() for name, array in artifact.network.weights.items()}
    weights["output_weight"][:] = np.float32(3e38)
    artifact.network.weights.update(weights)
    save_artifact(artifact, folder)
    assert not source.check()
    assert "first request" in source.refused


def test_a_folder_that_is_gone_is_no_news(source, folder):
    shutil.rmtree(folder)
    assert not source.check() and source.refused is None
    assert not source.check(is_forced=True)
    assert "there is no model" in source.refused


def test_no_model_to_begin_with_is_an_error(tmp_path):
    with pytest.raises(ArtifactError, match="there is no model"):
        ModelSource(tmp_path)


def test_a_folder_that_keeps_changing_is_told(folder, monkeypatch):
    counter = iter(range(100))
    monkeypatch.setattr(loading, "stamp_of", lambda folder: ((next(counter), 0, 0),))
    with pytest.raises(ArtifactError, match="changed while it was loaded"):
        loading.load(folder)


def test_a_sealed_model_of_nothing_but_text_is_refused(source, folder):
    (folder / "items.json").write_text("[]")
    seal(folder)
    assert not source.check()
    assert source.refused
