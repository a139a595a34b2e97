"""`CFNADE`, the estimator for ratings (Section 3): fit on stars, predict stars for anyone."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from cfnade.checkpoints import open_checkpoints
from cfnade.checks import (
    check_above_zero,
    check_bool,
    check_choice,
    check_number,
    check_share,
    check_whole,
)
from cfnade.data.catalogue import Catalogue
from cfnade.data.rating_table import RatingTable, levels_of, read_ratings
from cfnade.data.sklearn_rules import parameter_names, representation
from cfnade.errors import ArtifactError, ConfigError, DataError, MissingExtraError
from cfnade.fit.html_repr import facts_of_ratings, html_repr
from cfnade.fit.settings import no_setting
from cfnade.model.batches import identity_of
from cfnade.model.config import RatingConfig, TrainingConfig
from cfnade.progress import Callbacks
from cfnade.storage.encoding import WeightType
from cfnade.storage.rating_folder import RatingArtifact, load_rating_artifact, save_rating_artifact
from cfnade.threads import limited_threads

_TEMPERATURES = (0.2, 5.0)
_CHECKPOINT_SECONDS = 60.0


@dataclass(kw_only=True, eq=False, repr=False)
class CFNADE:
    """CF-NADE: predicts ratings, as a distribution over the rating scale.

    For counts, views or purchases use `ImplicitCFNADE`. A user is an id of the data, or anyone's
    ratings by item id, such as `{"film-1": 5, "film-7": 2}`.

    Args:
        by: `items`: a row of the network is an item with all its ratings, as in the best published
            results. `users`: a row is a user.
        n_hidden: Hidden units.
        n_layers: Hidden layers.
        n_factors: Rank of the weights, for many users or a long scale; 0 keeps them whole.
        share: Whether ratings share parameters: a 5 adds to the weights of a 4, and so on.
        ordinal_weight: Of the ordinal cost, from 0 (likelihood alone) to 1 (ordinal cost alone).
        weight_decay: L2 on the weights.
        learning_rate: Highest step size; it rises and falls to 0.
        batch_size: Rows per update.
        max_epochs: Passes over all rows.
        validation_share: Share of the ratings held out to find the two temperatures; 0 leaves them
            at 1.
        scale: The values that a rating can have; None takes those of the data.
        random_state: Seed.
        n_threads: None uses what the machine or container has.

    Attributes:
        network_: The trained network.
        ratings_: The ratings that predictions start from, a `RatingTable`.
        temperatures_: What the scores of Eq. 3 are divided by: for `predict_proba`, so that
            probabilities hold, and for `predict`, so that its RMSE is lowest.
        validation_rmse_: On the held-out ratings, or None.
        epochs_: Loss of every epoch.
        fit_seconds_: How long `fit` took; None if that is unknown.
    """

    by: Literal["items", "users"] = "items"
    n_hidden: int = 500
    n_layers: int = 1
    n_factors: int = 0
    share: bool = True
    ordinal_weight: float = 1.0
    weight_decay: float = 1.2e-4
    learning_rate: float = 4e-3
    batch_size: int = 256
    max_epochs: int = 100
    validation_share: float = 0.02
    scale: Sequence[float] | None = None
    random_state: int = 0
    n_threads: int | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's keywords and their values."""
        return {name: getattr(self, name) for name in parameter_names(type(self))}

    def set_params(self, **params: Any) -> CFNADE:
        """Change settings by keyword, for the next `fit`; raises `ConfigError` for another name."""
        names = parameter_names(type(self))
        for name, value in params.items():
            if name not in names:
                raise ConfigError(no_setting(name, names))
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        return representation(self)

    def _repr_html_(self) -> str:
        return html_repr(repr(self), facts_of_ratings(self))

    def fit(
        self,
        ratings: Any,
        y: None = None,
        *,
        callbacks: Callbacks | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> CFNADE:
        """Learn from ratings.

        Args:
            ratings: What `read_ratings` reads: a frame, a file, or a scipy sparse matrix of which
                every stored entry is a rating.
            y: Not used; for scikit-learn.
            callbacks: Called after every epoch or update, for progress.
            checkpoint: Folder to keep a checkpoint in, so that training can be resumed.
            resume: Continue from it; if there is none yet, start from the beginning.

        Raises:
            DataError: If the data cannot be used.
            ConfigError: If a setting is invalid.
            MissingExtraError: If torch is not installed.
            TrainingError: If the loss is no longer finite.
        """
        check_choice("by", self.by, ("items", "users"))
        check_bool("share", self.share)
        check_share(validation_share=self.validation_share)
        if not 0 <= check_number("ordinal_weight", self.ordinal_weight) <= 1:
            raise ConfigError(f"ordinal_weight must be from 0 to 1, got {self.ordinal_weight}")
        training, started = TrainingConfig.of(self), time.perf_counter()
        table = read_ratings(ratings, scale=self.scale)
        known, held_out = table.split(self.validation_share, self.random_state)
        levels = self._rows(known)
        sizes = (levels.shape[1], len(table.scale), self.n_hidden, self.n_layers, self.n_factors)
        model, cost = RatingConfig(*sizes), self.ordinal_weight
        try:
            from cfnade.model.rating_training import RatingRun
            from cfnade.model.training import run_epochs
        except ImportError as error:
            raise MissingExtraError("torch", "train", "fitting a model") from error
        callbacks = callbacks or Callbacks()
        callbacks.plan({"training": 1.0}, self.max_epochs)
        callbacks.begin("training")
        place = None if checkpoint is None else Path(checkpoint)
        with open_checkpoints(place, resume=resume) as kept, limited_threads(self.n_threads):
            run = RatingRun(model, training, levels, share=self.share, ordinal_weight=cost)
            folder, is_resumed = kept.of("ratings")
            trained = run_epochs(
                run,
                on_epoch=callbacks.on_epoch,
                on_step=callbacks.on_step,
                checkpoint=folder,
                checkpoint_seconds=_CHECKPOINT_SECONDS,
                resume=is_resumed,
            )
            network, info = trained.network, {}
            if held_out.levels.nnz:
                scores = network.scores(network.hidden(levels), *self._places(*held_out.pairs))
                info = _found_temperatures(scores, held_out)
        seconds = round(time.perf_counter() - started, 3)
        info.setdefault("training", {})["fit_seconds"] = seconds
        self.epochs_ = trained.epochs
        self._adopt(RatingArtifact(network, table, info))
        return self

    def predict(self, user: Any, items: Any = None) -> NDArray[np.float64]:
        """Expected ratings of some items, (n_items,).

        Args:
            user: An id, or anyone's ratings by item id.
            items: Ids; None for all items, in the order of `ratings_.item_ids`.

        Raises:
            DataError: If an id is unknown, a rating is not on the scale, or there are no ratings.
        """
        return self._mean(self._scores(user, items))

    def predict_proba(self, user: Any, items: Any = None) -> NDArray[np.float64]:
        """Probability of each value of `ratings_.scale`, (n_items, K); otherwise as `predict`."""
        return np.asarray(softmax(self._scores(user, items) / self.temperatures_[0], axis=1))

    def recommend(
        self, user: Any, n: int = 10, *, filter_already_rated_items: bool = True
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The items with the highest expected ratings for a user of `predict`, best first."""
        check_whole("the number of items", n, 1)
        expected = self.predict(user)
        rated = self._history(user)[1].indices if filter_already_rated_items else []
        order = np.argsort(-expected, kind="stable")
        best = order[~np.isin(order, rated)][:n]
        return self.ratings_.item_ids[best], expected[best]

    def pair_scores(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """Scores of Eq. 3, (n_pairs, K), of pairs by row and column of `ratings_`."""
        return self.network_.scores(self._all_hidden, *self._places(rows, columns))

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """Expected ratings of such pairs, (n_pairs,)."""
        return self._mean(self.pair_scores(rows, columns))

    def _mean(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(softmax(scores / self.temperatures_[1], axis=1) @ self.ratings_.scale)

    def _scores(self, user: Any, items: Any) -> NDArray[np.float64]:
        """Scores of Eq. 3, (n_items, K)."""
        row, history = self._history(user)
        listed = self.ratings_.item_ids if items is None else items
        listed = (
            listed if isinstance(listed, Iterable) and not isinstance(listed, str) else [listed]
        )
        asked = np.array(self._items.columns(listed), dtype=np.int64)
        if row is not None:
            return self.pair_scores(np.full(len(asked), row), asked)
        if self.by == "users":
            hidden = self.network_.hidden(history)
            return self.network_.scores(hidden, np.zeros(len(asked), dtype=np.int64), asked)
        hidden = self._all_hidden
        return self.network_.folded_in(hidden[history.indices], history.data, hidden[asked])

    def _history(self, user: Any) -> tuple[int | None, csr_array]:
        """The row of a user of the data, and the known ratings of anyone, (1, n_items)."""
        table = self._fitted()
        if not isinstance(user, Hashable | Mapping):
            raise DataError(f"give one user id, or ratings by item id; got {user!r:.40}")
        row = None if isinstance(user, Mapping) else self._users.column_of.get(user)
        if isinstance(user, Mapping):
            columns = self._items.columns(list(user))
            levels = levels_of(list(user.values()), table.scale)
            history = csr_array((levels, columns, [0, len(columns)]), (1, len(self._items)))
        elif row is None:
            raise DataError(
                f"user {user!r:.40} is not in this model ({len(self._users):,} users); give "
                "anyone's ratings by item id"
            )
        else:
            history = table.levels[[row]]
        if not history.nnz:
            raise DataError(
                "a user without ratings cannot be predicted; give at least one rating, such as "
                "predict({item: rating})"
            )
        return row, history

    def _fitted(self) -> RatingTable:
        if not hasattr(self, "network_"):
            raise ConfigError("this CFNADE is not fitted yet; call fit(ratings) or load(folder)")
        return self.ratings_

    def _rows(self, table: RatingTable) -> csr_array:
        """The rows of the network: users, or items."""
        return table.levels if self.by == "users" else csr_array(table.levels.T)

    def _places(self, users: NDArray[Any], items: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Rows and columns of the network."""
        return (users, items) if self.by == "users" else (items, users)

    @cached_property
    def _all_hidden(self) -> NDArray[np.float32]:
        return self.network_.hidden(self._rows(self.ratings_))

    def _adopt(self, saved: RatingArtifact) -> None:
        self.network_, self.ratings_, self._info = saved
        self.__dict__.pop("_all_hidden", None)
        self._users, self._items = Catalogue(saved.table.user_ids), Catalogue(saved.table.item_ids)
        self.temperatures_ = self._info.get("training", {}).get("temperatures", [1.0, 1.0])
        self.fit_seconds_ = self._info.get("training", {}).get("fit_seconds")
        self.validation_rmse_ = self._info.get("metrics", {}).get("validation_rmse")

    def save(self, folder: str | Path, *, dtype: WeightType = "float32", **info: Any) -> None:
        """Write the model, with its ratings, as a folder of safetensors and JSON.

        Args:
            folder: Where to write it; an existing model there is replaced.
            dtype: How matrices of weights are stored: `float32`, `float16` or `int16`.
            info: Further fields of `model.json`.
        """
        table = self._fitted()
        sizes = zip(("n_users", "n_items", "sha256"), identity_of(table.levels), strict=True)
        data = {**dict(sizes), "n_pairs": int(table.levels.nnz)}
        described = {"settings": self.get_params(), "data_fingerprint": data, **info}
        saved = RatingArtifact(self.network_, table, {**self._info, **described})
        save_rating_artifact(saved, Path(folder), dtype)

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> CFNADE:
        """Read a model that `save` wrote; nothing in it is executed.

        Raises:
            ArtifactError: If there is none, or it is damaged, of counts or of a later version.
        """
        saved = load_rating_artifact(Path(folder), verify=verify)
        try:
            model = cls().set_params(**saved.info.get("settings", {}))
            model._adopt(saved)
            check_choice("by", model.by, ("items", "users"))
            of_distribution, of_mean = model.temperatures_
            check_above_zero(temperature=of_distribution, temperature_of_mean=of_mean)
            if saved.network.config.n_columns != saved.table.levels.shape[model.by == "users"]:
                raise ConfigError("it has weights of other ids")
        except (ConfigError, TypeError, ValueError) as error:
            raise ArtifactError(f"the model in {folder} cannot be read: {error}") from error
        model.epochs_ = []
        return model


def _found_temperatures(scores: NDArray[np.float64], held_out: RatingTable) -> dict[str, Any]:
    """The temperatures at which held-out ratings are likeliest, and the RMSE is lowest."""
    at = np.arange(len(scores)), held_out.levels.data - 1

    def log_loss(t: float) -> float:
        return float(-np.log(softmax(scores / np.exp(t), axis=1)[at]).mean())

    def rmse(t: float) -> float:
        errors = softmax(scores / np.exp(t), axis=1) @ held_out.scale - held_out.values
        return float(np.sqrt((errors**2).mean()))

    ends = {"bounds": np.log(_TEMPERATURES), "method": "bounded"}
    from scipy.optimize import minimize_scalar

    found = [minimize_scalar(cost, **ends) for cost in (log_loss, rmse)]
    temperatures = [float(np.exp(each.x)) for each in found]
    return {
        "training": {"temperatures": temperatures},
        "metrics": {"validation_rmse": float(found[1].fun)},
    }
