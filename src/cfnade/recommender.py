"""`ImplicitCFNADE`, the estimator that people import: fit on counts, recommend for anyone."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.catalogue import Catalogue, Unknown
from cfnade.data.fingerprint import fingerprint
from cfnade.data.ingest import read_interactions
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, DataError
from cfnade.fitting import Callbacks, NetworkScorer, fit_network
from cfnade.model.artifact import Artifact, load_artifact, save_artifact
from cfnade.model.config import PRESETS, Activation, InputScale, Optimizer
from cfnade.model.inference import sigmoid
from cfnade.ranking import top_items

if TYPE_CHECKING:
    from cfnade.model.training import Epoch


class ImplicitCFNADE:
    """Implicit CF-NADE: predicts what a user will like from counts of what they did.

    A user is a history and nothing else: there is no table of users, so a new or changed user
    needs no retraining. Counts become relative ratings, ratings become likes and confidences,
    and a neural autoregressive network gives the probability of a like for every other item.

    The constructor stores its keywords unchanged; they are checked in `fit`. What each does is
    told in `cfnade.model.config.ModelConfig`, `TrainingConfig` and
    `cfnade.fitting.ValidationConfig`; those here only:

    Args:
        relative_rating: Fitted count distributions to use as they are; None fits them.
        random_state: Seed; the same seed, data and number of threads give the same model.
        n_threads: Threads; None takes what the machine or container really has.

    Attributes:
        scorer_: The trained network with each item's count distribution.
        catalogue_: Ids and names of the items.
        n_features_in_: Number of items.
        best_epoch_: Epochs that the network was trained for.
        epochs_: Loss and validation MPR of every epoch.
        validation_mpr_: MPR of the best epoch on the held-out items in percent, or None.
        data_fingerprint_: Sizes and checksum of the data it was fitted on.
    """

    scorer_: NetworkScorer
    n_features_in_: int
    catalogue_: Catalogue
    best_epoch_: int
    epochs_: list[Epoch]
    validation_mpr_: float | None
    data_fingerprint_: dict[str, Any]

    def __init__(
        self,
        *,
        n_hidden: int = 256,
        n_layers: int = 1,
        activation: Activation = "tanh",
        alpha: float = 30.0,
        input_scale: InputScale = "history",
        direct: bool = True,
        optimizer: Optimizer = "adam",
        learning_rate: float = 5e-3,
        batch_size: int = 200,
        weight_decay: float = 0.0,
        item_l2: float = 3e-8,
        item_mean: bool = True,
        context_share: float | None = 0.5,
        dropout: float = 0.25,
        weight_average: float = 0.99,
        bias_start: bool = True,
        direct_l2: float = 300.0,
        direct_dropout: float = 0.5,
        max_epochs: int = 200,
        validate_every: int = 2,
        patience: int = 6,
        validation_share: float = 0.1,
        validation_users: int = 10_000,
        refit: bool | None = None,
        relative_rating: RelativeRating | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.n_layers = n_layers
        self.activation = activation
        self.alpha = alpha
        self.input_scale = input_scale
        self.direct = direct
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.item_l2 = item_l2
        self.item_mean = item_mean
        self.context_share = context_share
        self.dropout = dropout
        self.weight_average = weight_average
        self.bias_start = bias_start
        self.direct_l2 = direct_l2
        self.direct_dropout = direct_dropout
        self.max_epochs = max_epochs
        self.validate_every = validate_every
        self.patience = patience
        self.validation_share = validation_share
        self.validation_users = validation_users
        self.refit = refit
        self.relative_rating = relative_rating
        self.random_state = random_state
        self.n_threads = n_threads

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> ImplicitCFNADE:
        """Make one with the settings of a preset (`default` or `paper`), changed where given.

        Raises:
            ConfigError: If there is no such preset or setting.
        """
        if preset not in PRESETS:
            raise ConfigError(f"there is no preset {preset!r}; choose from {', '.join(PRESETS)}")
        return cls(**PRESETS[preset]).set_params(**changes)

    # scikit-learn's rules ----------------------------------------------------------------------

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's keywords and their values, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> ImplicitCFNADE:
        """Change settings by keyword; they take effect at the next `fit`."""
        for name, value in params.items():
            if name not in self._parameter_names():
                choices = ", ".join(self._parameter_names())
                raise ConfigError(f"there is no setting {name!r}; choose from {choices}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {k: v for k, v in self.get_params().items() if v is not defaults[k].default}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    # Training ----------------------------------------------------------------------------------

    def fit(
        self,
        counts: Any,
        y: None = None,
        *,
        validation: CountMatrix | None = None,
        callbacks: Callbacks | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> ImplicitCFNADE:
        """Learn from counts.

        Args:
            counts: A scipy sparse matrix (n_users, n_items), `Interactions`, or anything that
                `read_interactions` reads: a frame, a file, a folder.
            y: Not used; for scikit-learn.
            validation: Held-out counts of the same users and items to stop early on, disjoint
                from `counts`; by default a part of `counts` is held out.
            callbacks: Called after every epoch or update, for progress.
            checkpoint: Folder to keep checkpoints in, so that training can be resumed.
            resume: Go on from them.

        Returns:
            Itself.

        Raises:
            DataError: If the data cannot be used.
            ConfigError: If a setting has no meaning.
            MissingExtraError: If torch is not installed.
            TrainingError: If the loss is no longer finite.
        """
        interactions = read_interactions(counts)
        fitted = fit_network(
            interactions.counts,
            {**self.get_params(), "seed": self.random_state},
            validation=None if validation is None else as_count_matrix(validation),
            relative_rating=self.relative_rating,
            callbacks=callbacks,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            resume=resume,
        )
        self.epochs_ = fitted.epochs
        self.best_epoch_ = fitted.best_epoch
        self.validation_mpr_ = fitted.validation_mpr
        self.data_fingerprint_ = fingerprint(interactions)
        self._adopt(fitted.scorer, Catalogue(interactions.item_ids, interactions.item_names))
        return self

    def _adopt(self, scorer: NetworkScorer, catalogue: Catalogue) -> None:
        self.scorer_ = scorer
        self.catalogue_ = catalogue
        self.n_features_in_ = len(catalogue)

    # Recommending ------------------------------------------------------------------------------

    def scores(self, histories: Any) -> NDArray[np.float32]:
        """Logit of a like of every item for any histories: what makes it a `Scorer`.

        Args:
            histories: Counts, sparse, (n_users, n_items).

        Returns:
            (n_users, n_items).
        """
        self._check_fitted()
        return self.scorer_.scores(as_count_matrix(histories))

    def recommend(
        self,
        userid: int | NDArray[np.integer] | list[int],
        user_items: Any,
        N: int = 10,  # noqa: N803 (implicit's name)
        filter_already_liked_items: bool = True,
        filter_items: Iterable[Hashable] | None = None,
        items: Iterable[Hashable] | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Recommend for one user or many, with the signature of the `implicit` library.

        Args:
            userid: Only its shape matters, as there is no table of users: a number gives one
                row of results, an array as many rows as it has entries.
            user_items: Counts of these users, sparse, one row for each userid in that order
                (1, n_items) or (n_users, n_items).
            N: Items to recommend.
            filter_already_liked_items: Leave out what is in the user's history.
            filter_items: Ids never to recommend.
            items: Ids to choose from; with `filter_items`, those of them that are not filtered.

        Returns:
            Item ids and probabilities, best first: (n,) each for a single user, (n_users, n)
            each for an array. n is below N if fewer items can be recommended; rows of an array
            that have fewer than others end in id -1 (None for ids that are not integers) and
            probability -inf.

        Raises:
            DataError: If the shapes do not fit or an id is not known.
        """
        self._check_fitted()
        if N < 1:
            raise ConfigError(f"ask for at least 1 item, got {N}")
        histories = as_count_matrix(user_items)
        is_single = np.ndim(userid) == 0
        n_users = 1 if is_single else len(np.asarray(userid))
        if histories.shape != (n_users, self.n_features_in_):
            raise DataError(
                f"user_items must have one row for each userid and one column for each item, "
                f"({n_users}, {self.n_features_in_}); got {histories.shape}; pass "
                "user_items[userid]"
            )
        allowed = self._allowed(items, filter_items)
        chosen = []
        for row, scores in enumerate(self.scores(histories)):
            row_allowed = allowed
            if filter_already_liked_items:
                row_allowed = allowed.copy()
                row_allowed[histories.indices[slice(*histories.indptr[row : row + 2])]] = False
            columns = top_items(scores, N, row_allowed)
            chosen.append((self.catalogue_.ids[columns], sigmoid(scores[columns])))
        return chosen[0] if is_single else _stack(chosen, self.catalogue_.ids.dtype)

    def recommend_for(
        self,
        history: Mapping[Any, float] | Iterable[Any],
        n: int = 10,
        *,
        filter_already_liked_items: bool = True,
        filter_items: Iterable[Hashable] | None = None,
        items: Iterable[Hashable] | None = None,
        unknown: Unknown = "raise",
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Recommend for anyone's history by item id.

        Args:
            history: Counts by item id, or ids alone for a count of 1 each (repeats add up).
            n: Items to recommend.
            filter_already_liked_items: Leave out what is in the history.
            filter_items: Ids never to recommend.
            items: Ids to choose from.
            unknown: What to do about items in the history that the model does not know.

        Returns:
            Item ids and probabilities, best first, (at most n,) each.

        Raises:
            DataError: If a count is not a finite number of at least 0, or an item is not known.
        """
        self._check_fitted()
        row = self.catalogue_.history(history, unknown=unknown)
        return self.recommend(
            0,
            row,
            n,
            filter_already_liked_items=filter_already_liked_items,
            filter_items=filter_items,
            items=items,
        )

    def _allowed(
        self, items: Iterable[Hashable] | None, filter_items: Iterable[Hashable] | None
    ) -> NDArray[np.bool_]:
        """Items that may be recommended, (n_items,)."""
        allowed = np.full(self.n_features_in_, items is None)
        if items is not None:
            allowed[self.catalogue_.columns(items)] = True
        if filter_items is not None:
            allowed[self.catalogue_.columns(filter_items)] = False
        return allowed

    def _check_fitted(self) -> None:
        if not hasattr(self, "scorer_"):
            raise ConfigError(
                f"this {type(self).__name__} is not fitted yet; call fit(counts) or load(folder)"
            )

    # Files -------------------------------------------------------------------------------------

    def save(self, folder: str | Path, **info: Any) -> None:
        """Write the model as a folder of safetensors and JSON.

        Args:
            folder: Where it goes; a model in its place is replaced.
            info: More to keep in `model.json`, such as metrics and where the data came from.
        """
        self._check_fitted()
        settings = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
            if name != "relative_rating"
        }
        known = {
            "settings": settings,
            "training": {"best_epoch": self.best_epoch_},
            "metrics": {"validation_mpr": self.validation_mpr_, **info.pop("metrics", {})},
            "data_fingerprint": self.data_fingerprint_,
        }
        save_artifact(
            Artifact(
                self.scorer_.network,
                self.scorer_.relative_rating,
                self.catalogue_,
                {**known, **info},
            ),
            Path(folder),
        )

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> ImplicitCFNADE:
        """Read a model that `save` wrote; needs no torch, and nothing in it is executed.

        The weights are memory-mapped and read-only: processes that load the same folder share
        its pages.

        Args:
            folder: What `save` wrote.
            verify: Compare checksums, which reads all of the files; False for a quick start from
                a folder that was verified before.

        Raises:
            ArtifactError: If there is none, it is damaged, or a later version wrote it.
        """
        artifact = load_artifact(Path(folder), verify=verify)
        known = cls._parameter_names()
        settings = {k: v for k, v in artifact.info.get("settings", {}).items() if k in known}
        model = cls(**settings)
        model.epochs_ = []
        model.best_epoch_ = artifact.info.get("training", {}).get("best_epoch", 0)
        model.validation_mpr_ = artifact.info.get("metrics", {}).get("validation_mpr")
        model.data_fingerprint_ = artifact.info.get("data_fingerprint", {})
        scorer = NetworkScorer(artifact.network, artifact.relative_rating)
        model._adopt(scorer, artifact.catalogue)
        return model


def _stack(
    rows: list[tuple[NDArray[Any], NDArray[np.float32]]], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Rows of different lengths as two arrays; what is missing is marked, never made up."""
    width = max((ids.size for ids, _ in rows), default=0)
    if dtype.kind in "iu" and dtype != np.uint64:
        ids = np.full((len(rows), width), -1, dtype=np.int64)
    else:
        ids = np.full((len(rows), width), None, dtype=object)
    scores = np.full((len(rows), width), -np.inf, dtype=np.float32)
    for row, (row_ids, row_scores) in enumerate(rows):
        ids[row, : row_ids.size] = row_ids
        scores[row, : row_scores.size] = row_scores
    return ids, scores
