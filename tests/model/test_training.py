from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cfnade.beyond.factors import item_scores, start_from_factors
from cfnade.checkpoints import load_checkpoint, save_checkpoint
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import hold_out
from cfnade.errors import ArtifactError, ConfigError, TrainingError
from cfnade.metrics.evaluate import mean_percentage_ranking
from cfnade.model import training as training_module
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.model.inference import NetworkScorer
from cfnade.model.network import CFNADENetwork, InputLayer
from cfnade.model.objective import OutputLayer
from cfnade.model.ordering import draw_window
from cfnade.model.training import Look, first_weights, train
from tests.reference_torch import dense_cost, dense_hidden, dense_logits

MODEL = ModelConfig(n_items=20, n_hidden=8)


TRAINING = TrainingConfig(batch_size=16, max_epochs=6, learning_rate=0.02, validate_every=1)


@pytest.fixture
def ratings(counts):
    return RelativeRating().fit(counts).transform(counts)


def same_weights(a, b) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def changed(config, **changes):
    return type(config)(**{**config.__dict__, **changes})


def test_the_loss_falls_and_a_toy_is_learnt(counts, ratings):
    trained = train(MODEL, changed(TRAINING, max_epochs=60, patience=60), ratings)
    assert trained.epochs[-1].loss < 0.6 * trained.epochs[0].loss
    # given half a group's items, the other half of the group must come out first
    history = np.zeros((1, 20))
    history[0, :10:2] = 1.0
    scores = NetworkScorer(trained.network, RelativeRating().fit(counts)).scores(
        csr_array(history)
    )[0]
    own, other = scores[10::2], scores[1::2]
    assert own.min() > other.max()


def test_same_seed_same_weights_and_another_seed_others(ratings):
    first, again = (train(MODEL, TRAINING, ratings).network.weights for _ in range(2))
    assert same_weights(first, again)
    assert not same_weights(first, train(MODEL, changed(TRAINING, seed=1), ratings).network.weights)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_resumed_run_ends_in_the_same_weights_bit_for_bit(ratings, tmp_path, optimizer):
    training = changed(TRAINING, optimizer=optimizer, validate_every=2)
    mprs = iter([9.0, 5.0, 8.0])
    whole = train(MODEL, training, ratings, validate=lambda network: Look(next(mprs)))
    mprs = iter([9.0, 5.0, 8.0])
    half = changed(training, max_epochs=3)
    train(
        MODEL, half, ratings, validate=lambda network: Look(next(mprs)), checkpoint=tmp_path / "c"
    )
    resumed = train(
        MODEL, training, ratings, validate=lambda network: Look(next(mprs)),
        checkpoint=tmp_path / "c", resume=True,
    )  # fmt: skip
    assert same_weights(whole.network.weights, resumed.network.weights)
    assert [e.loss for e in whole.epochs] == [e.loss for e in resumed.epochs]
    assert whole.best_epoch == resumed.best_epoch == 4


def test_training_stops_early_and_keeps_the_weights_of_the_best_epoch(ratings):
    mprs = iter([9.0, 5.0, 6.0, 6.0, 6.0])
    seen = []

    def validate(network):
        seen.append({name: weight.copy() for name, weight in network.weights.items()})
        return Look(next(mprs))

    training = changed(TRAINING, max_epochs=50, patience=3)
    trained = train(MODEL, training, ratings, validate=validate)
    assert (trained.best_epoch, len(trained.epochs)) == (2, 5)
    assert same_weights(trained.network.weights, seen[1])


def test_the_best_epoch_has_least_of_what_counts_and_that_need_not_be_mpr(ratings):
    looks = iter([Look(9.0, -0.1), Look(5.0, -0.2), Look(6.0, -0.3), Look(4.0, -0.2)])
    training = changed(TRAINING, max_epochs=4, patience=4)
    trained = train(MODEL, training, ratings, validate=lambda network: next(looks))
    assert (trained.best_epoch, trained.epochs[2].validation_mpr) == (3, 6.0)
    assert [epoch.cost for epoch in trained.epochs] == [-0.1, -0.2, -0.3, -0.2]


def test_validation_is_looked_at_every_few_epochs(ratings):
    training = changed(TRAINING, max_epochs=7, validate_every=3)
    trained = train(MODEL, training, ratings, validate=lambda network: Look(5.0))
    looked = [e.number for e in trained.epochs if e.validation_mpr is not None]
    assert looked == [3, 6]
    assert trained.best_epoch == 3


def test_patience_is_asked_only_after_a_look(ratings):
    training = changed(TRAINING, max_epochs=20, validate_every=3, patience=1)
    trained = train(MODEL, training, ratings, validate=lambda network: Look(5.0))
    assert (len(trained.epochs), trained.best_epoch) == (6, 3)


def test_a_run_that_is_cut_short_before_any_look_has_its_last_weights(ratings, tmp_path):
    def stop(epoch):
        if epoch.number == 5:
            raise KeyboardInterrupt

    training = changed(TRAINING, max_epochs=60, validate_every=30)
    looks = {"validate": lambda network: Look(5.0), "checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        train(MODEL, training, ratings, on_epoch=stop, **looks)
    short = train(MODEL, changed(training, max_epochs=3), ratings, resume=True, **looks)
    plain = train(MODEL, changed(training, max_epochs=5), ratings)
    assert short.best_epoch == 5 and same_weights(short.network.weights, plain.network.weights)


def test_there_is_a_look_even_if_there_are_fewer_epochs_than_it_takes(ratings):
    training = changed(TRAINING, max_epochs=1, validate_every=2, patience=1)
    trained = train(MODEL, training, ratings, validate=lambda network: Look(5.0))
    assert (trained.best_epoch, trained.epochs[0].validation_mpr) == (1, 5.0)


def test_a_diverging_run_stops_with_the_step_and_keeps_the_last_good_checkpoint(ratings, tmp_path):
    good = train(MODEL, changed(TRAINING, max_epochs=2), ratings, checkpoint=tmp_path / "c")
    poisoned = ratings.copy()
    poisoned.data[:] = np.nan
    with pytest.raises(TrainingError, match=r"nan in epoch 1, update 1 of 4, at .* 0.02"):
        train(MODEL, TRAINING, poisoned)
    wild = changed(TRAINING, optimizer="sgd", learning_rate=1e38, max_epochs=9)
    with pytest.raises(TrainingError, match="try a smaller learning rate"):
        train(MODEL, wild, ratings)
    # the checkpoint from before is untouched and can be gone on from
    resumed = train(MODEL, TRAINING, ratings, checkpoint=tmp_path / "c", resume=True)
    assert [e.loss for e in resumed.epochs[:2]] == [e.loss for e in good.epochs]


def test_divergence_in_a_later_epoch_names_the_checkpoint_that_is_kept(
    ratings, tmp_path, monkeypatch
):
    calls = []

    class Failing(OutputLayer):
        def gradient(self, *args):
            calls.append(args)
            gradient = super().gradient(*args)
            is_bad = len(calls) == 9  # epoch 3, update 1
            return replace(gradient, loss=float("nan")) if is_bad else gradient

    folder = tmp_path / "keep"
    with monkeypatch.context() as patch:
        patch.setattr(training_module, "OutputLayer", Failing)
        with pytest.raises(
            TrainingError, match=r"epoch 3, update 1 of 4.*of epoch 2, is in .*keep"
        ):
            train(MODEL, TRAINING, ratings, checkpoint=folder)
    assert len(train(MODEL, TRAINING, ratings, checkpoint=folder, resume=True).epochs) == 6


def test_an_interrupt_leaves_a_usable_checkpoint(ratings, tmp_path):
    def interrupt(step, n_steps):
        calls.append(step)
        if len(calls) == 10:  # in the middle of epoch 3
            raise KeyboardInterrupt

    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        train(MODEL, TRAINING, ratings, on_step=interrupt, checkpoint=tmp_path / "c")
    resumed = train(MODEL, TRAINING, ratings, checkpoint=tmp_path / "c", resume=True)
    assert same_weights(resumed.network.weights, train(MODEL, TRAINING, ratings).network.weights)


def test_a_checkpoint_of_other_settings_or_data_is_refused(ratings, tmp_path):
    train(MODEL, TRAINING, ratings, checkpoint=tmp_path / "c")
    with pytest.raises(ArtifactError, match="other training"):
        other = changed(TRAINING, learning_rate=0.5)
        train(MODEL, other, ratings, checkpoint=tmp_path / "c", resume=True)
    with pytest.raises(ArtifactError, match="other data"):
        swapped = csr_array((ratings.data, ratings.indices[::-1].copy(), ratings.indptr))
        train(MODEL, TRAINING, swapped, checkpoint=tmp_path / "c", resume=True)


def test_a_checkpoint_with_another_key_is_refused(ratings, tmp_path):
    """The caller says what else must be the same, such as the metric of early stopping."""
    training = changed(TRAINING, max_epochs=2)
    looks = iter([Look(9.0, -0.1), Look(8.0, -0.3), Look(7.0, -0.2), Look(6.0, -0.2)])

    def run(longer, key, **more):
        return train(
            MODEL, longer, ratings, validate=lambda network: next(looks),
            checkpoint=tmp_path / "c", resume_key=key, **more,
        )  # fmt: skip

    run(training, {"choose_by": "ndcg@5"})
    longer = changed(training, max_epochs=4)
    for other in ({"choose_by": None}, {"choose_by": "recall@5"}):
        with pytest.raises(ArtifactError, match="other choose_by: ndcg@5, now"):
            run(longer, other, resume=True)
    resumed = run(longer, {"choose_by": "ndcg@5"}, resume=True)
    assert (resumed.best_epoch, [e.cost for e in resumed.epochs]) == (2, [-0.1, -0.3, -0.2, -0.2])


def test_a_missing_or_damaged_checkpoint_is_refused(ratings, tmp_path):
    with pytest.raises(ConfigError, match="needs the folder"):
        train(MODEL, TRAINING, ratings, resume=True)
    with pytest.raises(ArtifactError, match="no checkpoint in"):
        train(MODEL, TRAINING, ratings, checkpoint=tmp_path / "none", resume=True)
    train(MODEL, TRAINING, ratings, checkpoint=tmp_path / "c")
    (tmp_path / "c" / "state.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ArtifactError, match="damaged"):
        train(MODEL, TRAINING, ratings, checkpoint=tmp_path / "c", resume=True)


def test_a_flipped_bit_of_a_weight_is_noticed_before_training_goes_on(ratings, tmp_path):
    train(MODEL, changed(TRAINING, max_epochs=2), ratings, checkpoint=tmp_path / "c")
    path = tmp_path / "c" / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="checksum"):
        train(MODEL, TRAINING, ratings, checkpoint=tmp_path / "c", resume=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, state: state.update(epochs=[{"number": 1}]),
        lambda arrays, state: state.update(epochs=7),
        lambda arrays, state: state.update(best_epoch=None),
        lambda arrays, state: state.pop("n_updates"),
        lambda arrays, state: arrays.pop("weights/hidden_bias"),
        lambda arrays, state: arrays.update({"weights/hidden_bias": np.zeros(1)}),
        lambda arrays, state: arrays.update({"without a slash": np.zeros(1)}),
        lambda arrays, state: arrays.pop("best/hidden_bias"),
        lambda arrays, state: arrays.update({"best/hidden_bias": np.zeros(1, dtype=np.float32)}),
        lambda arrays, state: arrays.pop("optimizer/n_steps"),
        lambda arrays, state: arrays.update({"optimizer/n_steps": np.zeros(3, dtype=np.float32)}),
        lambda arrays, state: arrays.update(
            {"optimizer/mean/hidden_bias": arrays["optimizer/mean/hidden_bias"].astype(np.int64)}
        ),
        lambda arrays, state: state.update(best_epoch=math.inf),
        lambda arrays, state: state.update(best_epoch=99),
        lambda arrays, state: state.update(n_updates=10**400),
        lambda arrays, state: state["epochs"][0].update(number="1"),
        lambda arrays, state: state["epochs"][0].update(seconds=[]),
        lambda arrays, state: state["epochs"][0].update(validation_cost="low"),
    ],
)
def test_a_checkpoint_of_another_form_is_refused_in_one_line(ratings, tmp_path, change):
    train(MODEL, changed(TRAINING, max_epochs=2), ratings, checkpoint=tmp_path / "c")
    arrays, state = load_checkpoint(tmp_path / "c")
    change(arrays, state)
    save_checkpoint(tmp_path / "c", arrays, state)
    with pytest.raises(ArtifactError, match="damaged") as refused:
        train(MODEL, TRAINING, ratings, checkpoint=tmp_path / "c", resume=True)
    assert "\n" not in str(refused.value)


def test_the_bias_starts_at_the_logit_of_the_share_of_watchers(counts, ratings):
    untrained = changed(TRAINING, max_epochs=1, learning_rate=1e-12)
    trained = train(MODEL, untrained, ratings)
    share = 1.0 / (1.0 + np.exp(-trained.network.weights["output_bias"]))
    expected = (np.bincount(counts.indices, minlength=20) + 0.5) / 61
    np.testing.assert_allclose(share, expected, rtol=1e-5)


def test_frequency_scaled_l2_pulls_item_rows_to_zero_by_their_number_of_watchers(ratings):
    def spread(item_l2):
        weights = train(
            MODEL, changed(TRAINING, item_l2=item_l2, max_epochs=30, patience=30), ratings
        )
        return np.abs(weights.network.weights["output_weight"]).mean()

    assert spread(10.0) < 0.5 * spread(0.0)


def test_training_beats_popularity_on_taste_groups(counts, ratings):
    kept, held_out = hold_out(counts, share=0.2, rng=0)
    fitted = RelativeRating().fit(kept)
    trained = train(MODEL, changed(TRAINING, max_epochs=40, patience=40), fitted.transform(kept))
    scorer = NetworkScorer(trained.network, fitted)
    assert mean_percentage_ranking(scorer, kept, held_out, fitted.transform(held_out)) < 25


def test_deep_and_other_activations_train(ratings):
    for changes in ({"n_layers": 3}, {"activation": "silu"}, {"input_scale": "none", "alpha": 3.0}):
        trained = train(changed(MODEL, **changes), TRAINING, ratings)
        assert np.isfinite(trained.epochs[-1].loss)
        assert trained.epochs[-1].loss < trained.epochs[0].loss


def test_a_single_item_can_be_trained_on():
    ratings = np.ones((3, 1))
    trained = train(ModelConfig(n_items=1, n_hidden=2), TRAINING, csr_array(ratings))
    assert np.isfinite(trained.network.logits(csr_array(ratings))).all()


def test_what_a_dislike_says_about_other_items_is_learnt(counts, ratings):
    """Users of one group dislike items of the other."""
    is_other = np.arange(60)[:, None] % 2 != np.arange(20)[None, :] % 2
    known = ratings.toarray()
    known[is_other & (known == 0) & (np.random.default_rng(0).random((60, 20)) < 0.5)] = -1.0
    training = changed(TRAINING, max_epochs=60, patience=60)
    trained = train(MODEL, training, csr_array(known))
    history = np.zeros((1, 20))
    history[0, 1:10:2] = -1.0  # nothing but dislikes: of the odd items
    scorer = NetworkScorer(trained.network, RelativeRating().fit(counts))
    scores = scorer.scores(csr_array(history))[0]
    assert scores[10::2].min() > scores[11::2].max()
    nothing = scorer.scores(csr_array((1, 20)))[0]
    assert (scores[11::2] < nothing[11::2]).all()


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("item_mean", [True, False])
def test_an_update_is_a_step_down_the_gradient_of_the_objective(ratings, n_layers, item_mean):
    model = changed(MODEL, n_layers=n_layers)
    training = changed(
        TRAINING, optimizer="sgd", learning_rate=0.5, item_l2=2.0, item_mean=item_mean
    )
    known = ratings.toarray()
    known[:, ::4] = np.where(known[:, ::4] == 0, -1.0, known[:, ::4])  # some dislikes
    run = training_module._Run(model, training, csr_array(known))
    literal = CFNADENetwork(model)
    literal.load_state_dict(run.network.state_dict())
    batch = run.rows.confidence[[0, 3, 5, 8]]
    network = run.network
    run._update(
        batch,
        InputLayer(network.like_weight, network.dislike_weight, model),
        OutputLayer(network.output_weight, network.output_bias),
        np.random.default_rng(3),
    )

    window = draw_window(20, 0.5, np.random.default_rng(3))
    in_context = window.target_number(np.arange(20)) >= window.n_targets
    likes = (batch.toarray() > 0).astype(float)
    confidences = np.where(batch.toarray() != 0, np.abs(batch.toarray()), 1.0)
    logits = dense_logits(literal, dense_hidden(literal, likes, confidences, in_context))
    costs = np.where(likes > 0, confidences, np.sqrt(confidences))  # of a dislike, the root
    loss = dense_cost(logits, likes, costs, in_context) / (20 if item_mean else 1)
    n_watchers = torch.from_numpy(np.diff(csr_array(ratings.T).tocsr().indptr)).float()
    for weight in (literal.like_weight, literal.output_weight):
        loss = loss + 2.0 / (run.rows.n_users * 20) * (n_watchers * (weight**2).sum(dim=1)).sum()
    loss.backward()
    for name, weight in run.network.named_parameters():
        before = literal.get_parameter(name)
        torch.testing.assert_close(weight, before - 0.5 * before.grad)


def test_items_are_back_in_their_order_when_the_network_is_asked_for(ratings):
    run = training_module._Run(MODEL, changed(TRAINING, learning_rate=1e-12), ratings)
    before = {name: weight.detach().clone() for name, weight in run.network.named_parameters()}
    run.epoch(None, None)
    run.current_network()
    for name, weight in run.network.named_parameters():
        torch.testing.assert_close(weight.detach(), before[name], rtol=0, atol=1e-9)
    assert run.optimizer.state["mean/output_weight"].abs().sum() > 0


def test_epochs_of_few_updates_share_an_order_and_the_next_ones_have_another(ratings, monkeypatch):
    monkeypatch.setattr(training_module, "_ORDER_UPDATES", 8)  # two epochs of four updates
    run = training_module._Run(MODEL, TRAINING, ratings)
    places = [run._arrange(epoch)[0].tolist() for epoch in (1, 2, 3, 4, 5)]
    assert places[0] == places[1] != places[2] == places[3] != places[4] != places[0]
    assert all(sorted(order) == list(range(20)) for order in places)
    layers = run._arrange(5)[1]
    assert run._arrange(6)[1] is layers  # nothing moves
    other = training_module._Run(MODEL, changed(TRAINING, seed=1), ratings)
    assert other._arrange(1)[0].tolist() != places[0]


@pytest.mark.parametrize("order_updates", [1, 8, 50])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_looks_and_checkpoints_between_epochs_change_nothing(
    ratings, tmp_path, monkeypatch, order_updates, optimizer
):
    """They put the items back in their own order, whichever epochs share one."""
    monkeypatch.setattr(training_module, "_ORDER_UPDATES", order_updates)
    training = changed(TRAINING, optimizer=optimizer, patience=6)
    whole = train(MODEL, training, ratings).network.weights
    mprs = iter(range(9, 0, -1))  # the last epoch is the best
    looked_at = train(MODEL, training, ratings, validate=lambda network: Look(next(mprs)))
    assert same_weights(looked_at.network.weights, whole)
    train(MODEL, changed(training, max_epochs=3), ratings, checkpoint=tmp_path / "c")
    resumed = train(MODEL, training, ratings, checkpoint=tmp_path / "c", resume=True)
    assert same_weights(resumed.network.weights, whole)


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, [1, 2, 3, 4, 5, 6]), (10.0, [3, 6])])
def test_a_checkpoint_is_kept_after_every_so_many_seconds(
    ratings, tmp_path, monkeypatch, seconds, expected
):
    clock, saved = [0.0], []
    monkeypatch.setattr(training_module.time, "perf_counter", lambda: clock[0])

    def on_step(step, n_steps):
        clock[0] += 1.0  # four in an epoch

    def on_epoch(epoch):
        state = tmp_path / "c" / "state.json"
        if state.exists():
            saved.append(len(json.loads(state.read_text())["epochs"]))

    train(
        MODEL, TRAINING, ratings, on_step=on_step, on_epoch=on_epoch,
        checkpoint=tmp_path / "c", checkpoint_seconds=seconds,
    )  # fmt: skip
    assert sorted(set(saved)) == expected


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_a_run_in_bfloat16_is_resumed_bit_for_bit(ratings, tmp_path, schedule):
    training = changed(TRAINING, precision="bfloat16", schedule=schedule)

    def stop(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(MODEL, training, ratings, checkpoint=tmp_path / "c", on_epoch=stop)
    resumed = train(MODEL, training, ratings, checkpoint=tmp_path / "c", resume=True)
    whole = train(MODEL, training, ratings)
    assert same_weights(resumed.network.weights, whole.network.weights)
    exact = train(MODEL, changed(training, precision="float32"), ratings)
    assert not same_weights(exact.network.weights, whole.network.weights)
    assert whole.epochs[-1].loss == pytest.approx(exact.epochs[-1].loss, rel=0.02)


def test_a_run_starts_from_given_weights_and_leaves_them_alone(ratings):
    first = train(MODEL, TRAINING, ratings).network.weights
    for weight in first.values():
        weight.flags.writeable = False  # as those of a loaded model are
    before = {name: weight.copy() for name, weight in first.items()}
    still = train(
        MODEL, changed(TRAINING, learning_rate=1e-12, max_epochs=1), ratings, start=first
    ).network.weights
    for name, weight in first.items():
        np.testing.assert_allclose(still[name], weight, atol=1e-9)
    longer = train(MODEL, TRAINING, ratings, start=first)
    assert longer.epochs[0].loss < train(MODEL, TRAINING, ratings).epochs[0].loss
    assert same_weights(first, before)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_only_the_rows_of_the_trained_items_move(ratings, optimizer, weight_decay):
    model = changed(MODEL, n_layers=2)
    first = train(model, TRAINING, ratings).network.weights
    first["output_weight"][3] = first["like_weight"][3] = first["output_bias"][3] = 0.0
    trained_items = np.zeros(20, dtype=bool)
    trained_items[[3, 17]] = True
    training = changed(TRAINING, optimizer=optimizer, weight_decay=weight_decay)
    weights = train(
        model, training, ratings, start=first, trained_items=trained_items
    ).network.weights
    for name, weight in weights.items():
        if name in ("like_weight", "output_weight", "output_bias"):
            moved = (weight != first[name]).reshape(20, -1).any(axis=1)
            np.testing.assert_array_equal(moved, trained_items)
        else:
            np.testing.assert_array_equal(weight, first[name])


def test_trained_rows_move_as_they_do_when_all_are_trained(ratings):
    """In the first update; later ones have seen the others move."""
    training = changed(TRAINING, optimizer="sgd", learning_rate=0.5, weight_decay=0.01)
    start = train(MODEL, TRAINING, ratings).network.weights
    outcomes = []
    for trained_items in (None, np.arange(20) % 4 == 0):
        run = training_module._Run(MODEL, training, ratings, start, trained_items)
        network = run.network
        run._update(
            run.rows.confidence[[0, 3, 5, 8]],
            InputLayer(network.like_weight, network.dislike_weight, MODEL),
            OutputLayer(network.output_weight, network.output_bias),
            np.random.default_rng(3),
        )
        outcomes.append({n: w.detach()[::4] for n, w in network.named_parameters()})
    for name in ("like_weight", "output_weight", "output_bias"):
        torch.testing.assert_close(outcomes[0][name], outcomes[1][name])
        assert not np.array_equal(outcomes[1][name], start[name][::4])


def test_a_linear_schedule_rises_and_falls_to_zero(ratings):
    training = changed(TRAINING, schedule="linear", max_epochs=10)  # 4 updates an epoch
    run = training_module._Run(MODEL, training, ratings)
    rates = []
    for run.n_updates in range(40):
        rates.append(run._learning_rate())
    assert rates[0] == pytest.approx(0.02 * 0.5)  # the rise takes two updates
    assert max(rates) == rates[1] == pytest.approx(0.02 * 39 / 40)
    assert rates[1:] == sorted(rates[1:], reverse=True) and rates[-1] == pytest.approx(0.02 / 40)


def from_factors(model, ratings):
    drawn = first_weights(model, TRAINING, ratings)
    options = {"n_factors": 10, "alpha": 10.0, "max_users": 99, "n_iterations": 15}
    return start_from_factors(drawn, item_scores(ratings, model, **options), seed=0)


def test_a_start_from_factors_begins_below_a_random_one(ratings):
    random, warm = (
        train(MODEL, changed(TRAINING, max_epochs=3), ratings, start=start).epochs
        for start in (None, from_factors(MODEL, ratings))
    )
    assert warm[0].loss < random[0].loss


def test_the_first_weights_are_what_training_starts_from_by_default(ratings):
    start = first_weights(MODEL, TRAINING, ratings)
    usual, given = (train(MODEL, TRAINING, ratings, start=s).network for s in (None, start))
    assert same_weights(usual.weights, given.weights)
    other = first_weights(MODEL, changed(TRAINING, seed=1), ratings)
    assert not np.array_equal(start["like_weight"], other["like_weight"])


def test_a_start_from_factors_leaves_no_unit_without_a_gradient(ratings):
    wide = changed(MODEL, n_hidden=30)  # more units than factors
    run = training_module._Run(wide, TRAINING, ratings, from_factors(wide, ratings))
    before = {n: w.detach().clone() for n, w in run.network.named_parameters()}
    run.epoch(None, None)
    for name in ("like_weight", "output_weight"):
        moved = (run.network.get_parameter(name).detach() - before[name]).abs()
        assert (moved.sum(dim=0) > 0).all() and before[name].abs().max() < 100


def test_the_last_epoch_of_a_schedule_is_judged(ratings):
    seen = []
    training = changed(TRAINING, schedule="linear", max_epochs=5, validate_every=2)
    train(MODEL, training, ratings, validate=lambda network: seen.append(network) or Look(1.0))
    assert len(seen) == 3


def test_a_schedule_cannot_be_made_longer_on_resuming(ratings, tmp_path):
    training = changed(TRAINING, schedule="linear", max_epochs=2)
    train(MODEL, training, ratings, checkpoint=tmp_path / "c")
    with pytest.raises(ArtifactError, match="other training"):
        train(
            MODEL,
            changed(training, max_epochs=4),
            ratings,
            checkpoint=tmp_path / "c",
            resume=True,
        )
