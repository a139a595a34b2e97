"""`ImplicitCFNADE`, the estimator that people import: fit on counts, recommend for anyone."""

from __future__ import annotations

import copy
import time
from collections.abc import Hashable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from cfnade.answer.all_users import by_row, recommend_all
from cfnade.answer.audience import Audience, find_audiences
from cfnade.answer.dials import Dials
from cfnade.answer.explain import Explanation
from cfnade.answer.filters import Items, Ranked, stack
from cfnade.answer.probability import Calibrator
from cfnade.answer.recommend import Answers, AnswerTable
from cfnade.answer.result_frame import AsFrame, Frame, frame_of, library_of
from cfnade.answer.user_table import UserTable, weighed
from cfnade.beyond.features import FeatureStrengths
from cfnade.beyond.history_reader import HistoryReader
from cfnade.beyond.readout import Readout
from cfnade.checks import check_bytes, check_whole
from cfnade.data.catalogue import Catalogue, History, Unknown, as_histories
from cfnade.data.events import Clock
from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.frames import frame_library
from cfnade.data.ingest.items_table import with_items_table
from cfnade.data.interactions import (
    CountMatrix,
    as_count_matrix,
)
from cfnade.data.ratings import RelativeRating
from cfnade.data.sklearn_rules import parameter_names, representation, tags
from cfnade.errors import ArtifactError, ConfigError, DataError
from cfnade.fit.cold_start import add_cold_items
from cfnade.fit.extend import N_EPOCHS, TrainedItems, extend, n_recorded, recorded, used_log
from cfnade.fit.fit_record import FitRecord
from cfnade.fit.html_repr import facts_of_fit, html_repr
from cfnade.fit.pipeline import calibrate, fit_network
from cfnade.fit.plan import FitPlan, recommending_block
from cfnade.fit.settings import (
    FitSettings,
    Recipe,
    ValidationBy,
    from_json,
    nested_params,
    read_settings,
    to_json,
    with_nested,
)
from cfnade.model.inference import NetworkScorer
from cfnade.progress import Callbacks, fit_progress
from cfnade.storage.encoding import WeightType
from cfnade.storage.folder import Artifact, load_artifact, save_artifact
from cfnade.threads import available_threads


@dataclass(kw_only=True, eq=False, repr=False)
class ImplicitCFNADE:
    """Implicit CF-NADE: predicts what users will like from counts of what they did.

    A user is a history and nothing else. There is no table of users, so new and changed users
    need no retraining.

    The constructor stores its keywords unchanged; `fit` checks them. If a setting is None, the
    recipe decides. If the recipe has None too, `fit` derives it from the data; `plan` shows the
    values.

    Args:
        n_hidden: Hidden units (recipe: 256).
        alpha: Rate of confidence, c = 1 + alpha r (recipe: 30).
        item_l2: Regularisation of the items' weights (by the data).
        learning_rate: Step size at the start (by the data).
        batch_size: Users per update (by the data, at most 1,000).
        max_epochs: Passes over all users at most (by the data).
        patience: Epochs without a better validation result before training stops; not used if the
            step size falls to 0, as by default.
        validation_share: Share of a user's items held out, from up to 2,000 users, to find the
            readout, calibrate probabilities and stop early; 0 holds out nothing.
        validation_by: What to hold out. `pairs`: random pairs. `events`: items first seen in a
            held-out share of the events. `sessions`: new items that occur together, like the next
            basket. `time`: the last events of all. `last`: the last events of each user. After
            these two the network is trained again on all events. None holds out by time if events
            have times, the last of each user if they have an order, and else pairs.
        choose_by: Metric for the readout and early stopping, such as `ndcg@20`; None weighs MPR and
            nDCG@100 alike.
        recipe: How the network is built and trained: `default`, `thorough`, `paper` or a `Recipe`.
        readout: What is added after training, a `Readout`; None leaves it to the recipe.
        relative_rating: Fitted count distributions to use as they are; None fits them.
        random_state: Seed; the same seed, data and number of threads give the same model.
        n_threads: None uses what the machine or container has.
        memory_limit: Such as `4GB`. To stay within it, `fit` and `recommend` use smaller blocks of
            scores; then `fit` drops the direct path. If that is not enough, ConfigError is raised.

    Attributes:
        scorer_: The trained network with each item's count distribution.
        catalogue_: Ids and names of the items.
        n_features_in_: Number of items.
        best_epoch_: Epochs that the network was trained for.
        epochs_: Loss of every epoch of the last `fit` or `partial_fit`, and the validation MPR of
            those that were validated. That MPR includes the usual direct path.
        validation_mpr_: MPR on the held-out items in percent, or None.
        n_looks_: How often an epoch or a readout was judged on the held-out items.
        calibrator_: Turns scores into probabilities; None if nothing was held out.
        item_l2_: The regularisation that was used.
        readout_: What was added after training.
        feature_strengths_: How strongly features of items count; None without features.
        clock_: What the times of the events were that the model was fitted on: `seconds` since
            1970, a `number` of another unit or an `order`; None without times.
        event_weights_: Weight of each kind of event, given or found; None if all count alike.
        target_event_: The kind of event that the model predicts; None for any.
        data_fingerprint_: Sizes and checksum of the data.
        partial_fits_: The latest `partial_fit`s since, at most 30, and the one with the most pairs:
            number, data, epochs, new items.
        fit_seconds_: How long the last `fit` took; None if that is unknown.
    """

    n_hidden: int | None = None
    alpha: float | None = None
    item_l2: float | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    max_epochs: int | None = None
    patience: int | None = None
    validation_share: float = 0.1
    validation_by: ValidationBy | None = None
    choose_by: str | None = None
    recipe: str | Recipe = "default"
    readout: Readout | None = None
    relative_rating: RelativeRating | None = None
    random_state: int = 0
    n_threads: int | None = None
    memory_limit: str | None = None

    @classmethod
    def from_settings(cls, path: str | Path, **changes: Any) -> ImplicitCFNADE:
        """Make a model with the settings in a file of `cfnade tune`; `changes` override them.

        Raises:
            ConfigError: If it cannot be read, or there is no such setting.
        """
        return cls().set_params(**{**read_settings(path).all_settings, **changes})

    @classmethod
    def from_parts(
        cls,
        scorer: NetworkScorer,
        catalogue: Catalogue,
        *,
        calibrator: Calibrator | None = None,
        info: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> ImplicitCFNADE:
        """Make a fitted model from a trained network.

        Args:
            scorer: The network and the count distributions.
            catalogue: Ids and names of the items.
            calibrator: Turns scores into probabilities.
            info: What `save` keeps in `model.json`: training, metrics, data_fingerprint and more.
            settings: Keywords of the constructor.

        Raises:
            ArtifactError: If the info cannot be used.
        """
        model, info = cls(**settings), dict(info or {})
        model.data_fingerprint_ = info.get("data_fingerprint", {})
        training = info.pop("training", {})
        FitRecord.of(training, model.item_l2, model.data_fingerprint_).give_to(model)
        model._trained_on = None
        model.epochs_ = []
        model.validation_mpr_ = info.get("metrics", {}).get("validation_mpr")
        model.calibrator_ = calibrator
        model._info = info
        model._adopt(scorer, catalogue)
        return model

    # scikit-learn's rules ----------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's keywords and their values.

        Args:
            deep: Include what is inside `recipe` and `readout`, as `readout__direct_gain`.
        """
        params = {name: getattr(self, name) for name in parameter_names(type(self))}
        return params | nested_params(params) if deep else params

    def set_params(self, **params: Any) -> ImplicitCFNADE:
        """Change settings by keyword or nested name; they take effect at the next `fit`.

        Raises:
            ConfigError: If there is no such setting.
        """
        for name, value in with_nested(self.get_params(deep=False), params).items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        return representation(self)

    def _repr_html_(self) -> str:
        return html_repr(repr(self), facts_of_fit(self))

    def __sklearn_tags__(self) -> Any:
        return tags()

    def __sklearn_clone__(self) -> ImplicitCFNADE:
        """A clone is not fitted, but keeps the fitted `relative_rating` that it was given."""
        return type(self)(**copy.deepcopy(self.get_params(deep=False)))

    # Training ----------------------------------------------------------------------------------

    def fit(
        self,
        counts: Any,
        y: None = None,
        *,
        items: Any = None,
        show_progress: bool = False,
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
            items: What is known about items, as `read_items` reads it: a table, or a list of
                tables, of categories, tags or text. Items that only the table has can be
                recommended too, and get columns after the others.
            show_progress: Show a progress bar, in a terminal or a notebook.
            validation: Held-out counts of the same users and items to choose on, disjoint
                from `counts`; by default a part of `counts` is held out.
            callbacks: Called after every epoch or update, for progress.
            checkpoint: Folder to keep checkpoints in, so that training can be resumed.
            resume: Continue from them; if there are none yet, start from the beginning.

        Returns:
            The fitted model itself.

        Raises:
            DataError: If the data cannot be used.
            ConfigError: If a setting is invalid.
            MissingExtraError: If torch is not installed.
            TrainingError: If the loss is no longer finite.
        """
        settings, started = self._settings(), time.perf_counter()
        with ExitStack() as stack:
            if show_progress and callbacks is None:
                callbacks = stack.enter_context(fit_progress())
            interactions = read_interactions(counts)
            catalogue = Catalogue(interactions.item_ids, interactions.item_names)
            if items is not None:
                catalogue = with_items_table(catalogue, items)
            fitted = fit_network(
                interactions,
                settings,
                features=catalogue.features,
                validation=None if validation is None else as_count_matrix(validation),
                relative_rating=self.relative_rating,
                callbacks=callbacks,
                checkpoint=None if checkpoint is None else Path(checkpoint),
                resume=resume,
            )
        self.epochs_ = fitted.epochs
        self.best_epoch_ = fitted.best_epoch
        self.validation_mpr_ = fitted.validation_mpr
        self.calibrator_ = fitted.calibrator
        self.n_looks_ = fitted.n_looks
        self.item_l2_ = fitted.plan.training.item_l2
        self.readout_ = fitted.readout
        self.feature_strengths_ = fitted.strengths
        self.clock_: Clock | None = interactions.clock
        self.event_weights_ = fitted.event_weights
        self.target_event_ = interactions.target_event
        self.data_fingerprint_ = interactions.fingerprint()
        self.partial_fits_: list[dict[str, Any]] = []
        self.fit_seconds_: float | None = round(time.perf_counter() - started, 3)
        self._trained_on = frame_library(counts)
        self._info: dict[str, Any] = {}  # further fields of `model.json`
        self._adopt(fitted.scorer, catalogue)
        return self

    def add_items(self, items: Any) -> ImplicitCFNADE:
        """Add items that nobody has touched, by what is known about them; trains nothing.

        Scores of the other items stay as they are. It needs no torch.

        Args:
            items: As for `fit`. Rows about known items replace what was known about these; only
                items without watchers are predicted again.

        Returns:
            Itself.

        Raises:
            DataError: If the table cannot be used, or has none of the model's items.
        """
        scorer, catalogue = self.answers_.scorer, with_items_table(self.catalogue_, items)
        if catalogue.features is not None:
            self.feature_strengths_ = self.feature_strengths_ or FeatureStrengths()
            scorer = add_cold_items(
                scorer, catalogue.features, self.feature_strengths_, self.n_threads
            )
        self._adopt(scorer, catalogue)
        return self

    def histories(self, data: Any, *, unknown: Unknown = "raise") -> CountMatrix:
        """Histories as the model reads them: recent events weigh more, if that was found to help.

        Pass them to `recommend`, `similar_users` or an evaluation. Without times, or if the model
        does not use them, these are plain counts, weighed by the kinds of events; below 0 for a
        dislike.

        Args:
            data: As for `fit`.
            unknown: What to do about items that the model does not know.

        Returns:
            (n_users, n_items), in the order of the users of the data and the model's columns.

        Raises:
            DataError: If the data cannot be used, or their times are not those of the model.
        """
        return UserTable.of(self.answers_, data, unknown).histories

    def owned(self, data: Any) -> CountMatrix | None:
        """Pairs of a table that are not to be recommended: those with the event to predict.

        Other items of a history, such as those viewed but not bought, are candidates.

        Args:
            data: As for `histories`.

        Returns:
            (n_users, n_items), as `histories` has them. None if all pairs of the histories are to
            be left out: the model predicts any event, or had too few to score items of a history.
        """
        return UserTable.of(self.answers_, data).owned

    def plan(self, counts: Any) -> FitPlan:
        """What `fit` would do with these counts; `plan(counts).lines()` is readable.

        Raises:
            DataError: If the data cannot be used.
            ConfigError: If a setting is invalid.
        """
        data = read_interactions(counts)
        return FitPlan.of(data.counts, self._settings(), data.clock)

    def _settings(self) -> FitSettings:
        return FitSettings.of(self.get_params(deep=False))

    def partial_fit(
        self,
        counts: Any,
        y: None = None,
        *,
        items: Any = None,
        n_epochs: int = N_EPOCHS,
        train: TrainedItems = "all",
        callbacks: Callbacks | None = None,
    ) -> ImplicitCFNADE:
        """Train further on more data: more users, longer histories, new items.

        Training starts from the current weights and sees only this data, so pass whole histories,
        including those of earlier users. A model that is not fitted yet is fitted. New items get
        columns after the known ones.

        If the model weighs recent events and this data has times, recent counts and the trends of
        all items are computed from it, with the half-lives and strengths that `fit` found. Without
        times known items keep theirs.

        Training settings such as `learning_rate` apply now, network settings at the next `fit`.
        Nothing is held out: `validation_mpr_` becomes None, and after `train="all"` there is no
        `probability` until `calibrate`.

        Args:
            counts: As for `fit`. In a frame, a file or `Interactions` items are found by their
                ids. A bare matrix must have the model's columns in their order; further
                columns are new items, if ids are column numbers.
            y: Not used; for scikit-learn.
            items: As for `fit`; rows about known items replace what was known about these. New
                items, with or without watchers, get weights by their features.
            n_epochs: Passes over this data. 0 adds new items with their start weights and changes
                nothing else.
            train: `all` trains everything. `new` trains the new items only: for a history of known
                items, known items keep their scores.
            callbacks: Called after every epoch or update, for progress.

        Returns:
            Itself.

        Raises:
            DataError: If the data cannot be used, or the model knows none of its items.
            ConfigError: If a setting is invalid.
            MissingExtraError: If torch is not installed.
            TrainingError: If the loss is no longer finite; the model then stays unchanged.
        """
        if not hasattr(self, "_answers"):
            return self.fit(counts, items=items, callbacks=callbacks)
        data = self.catalogue_.numbered(counts) if issparse(counts) else read_interactions(counts)
        data = weighed(self.answers_, data)
        catalogue, known = self.catalogue_.grown(data)
        if items is not None:
            catalogue = with_items_table(catalogue, items)
            shape = (data.n_users, len(catalogue))
            known = csr_array((known.data, known.indices, known.indptr), shape)
        strengths = self.feature_strengths_
        if catalogue.features is not None:
            strengths = strengths or FeatureStrengths()
        seen = [p.get("data_fingerprint", {}) for p in self.partial_fits_]
        # Other orderings than before.
        n_fits = 1 + n_recorded(self.partial_fits_)
        changes: dict[str, Any] = {"random_state": self.random_state + n_fits}
        if self.item_l2 is None:
            changes["item_l2"] = self.item_l2_
        scorer, self.epochs_ = extend(
            self.scorer_,
            replace(
                data,
                counts=known,
                item_ids=catalogue.ids,
                item_names=None,
                log=used_log(data, catalogue, self.readout_, self.answers_.reader),
            ),
            FitSettings.of({**self.get_params(deep=False), **changes}),
            n_epochs=n_epochs,
            train_items=train,
            readout=self.readout_,
            seen=[self.data_fingerprint_, *seen],
            relative_rating=self.relative_rating,
            features=catalogue.features,
            strengths=strengths,
            callbacks=callbacks,
        )
        self.feature_strengths_ = strengths
        self.best_epoch_ += len(self.epochs_)
        self.validation_mpr_ = None
        if train == "all" and self.epochs_:
            self.calibrator_ = None  # the network has changed
        self._info.pop("metrics", None)
        record = {
            "data_fingerprint": data.fingerprint(),
            "n_epochs": int(n_epochs),
            "train": train,
            "n_new_items": len(catalogue) - len(self.catalogue_),
        }
        self.partial_fits_ = recorded(self.partial_fits_, record)
        self._adopt(scorer, catalogue)
        return self

    def _adopt(self, scorer: NetworkScorer, catalogue: Catalogue) -> None:
        self.scorer_ = scorer
        self.catalogue_ = catalogue
        self.n_features_in_ = scorer.network.config.n_items
        half_life = self.readout_.history_half_life or 0.0
        reader = HistoryReader(half_life, self.clock_, self.event_weights_, self.target_event_)
        self._answers = Answers(scorer, catalogue, reader=reader)

    # Recommending ------------------------------------------------------------------------------

    def scores(self, histories: Any) -> NDArray[np.float32]:
        """Score every item for any histories, by the logit of a like; see `Scorer`.

        Args:
            histories: Counts, sparse, (n_users, n_items).

        Returns:
            (n_users, n_items).
        """
        return self.answers_.scorer.scores(as_count_matrix(histories, signed=True))

    def recommend(
        self,
        userid: Any,
        user_items: Any,
        N: int = 10,  # noqa: N803 (implicit's name)
        filter_already_liked_items: bool = True,
        filter_items: Items | None = None,
        recalculate_user: bool = True,
        items: Items | None = None,
        *,
        owned: CountMatrix | None = None,
        dials: Dials | None = None,
        unknown: Unknown = "raise",
        as_frame: AsFrame = False,
    ) -> Ranked | Frame:
        """Recommend for one user or many, with the signature of the `implicit` library.

        `items` and `filter_items` can be used together. Each is one of

        - ids, for all users;
        - a list with one list, set or array of ids for each user;
        - a mask: a boolean array or sparse matrix, (n_items,) or (n_users, n_items);
        - a mapping: for columns of the items table a value or several, such as
          `{"category": "film", "genre": ["Drama", "Crime"]}`. An item must have one in each column.

        Args:
            userid: Only its shape matters, as there is no table of users: one value for a single
                answer, a list or array for many.
            user_items: Counts of these users, sparse, one row for each userid in that order:
                `user_items[userid]`.
            N: Maximum number of items to recommend.
            filter_already_liked_items: Leave out items in the user's history. Scores of these mean
                something only if the model was fitted on events with times, or with a kind of event
                to predict.
            filter_items: Items never to recommend.
            recalculate_user: For compatibility with `implicit`; has no effect, as a user is
                always computed from `user_items`.
            items: Items to choose from.
            owned: Pairs to leave out instead of those of `user_items`, of the same shape: what
                `owned(table)` returns if the model predicts a kind of event.
            dials: What to prefer apart from the users' taste: popularity, diversity, pins, boosts.
            unknown: What to do about unknown ids in the filters and dials.
            as_frame: Return a frame: `"pandas"`, `"polars"`, or True for the one that `fit` was
                given, else the one that is installed.

        Returns:
            Item ids and scores (logits, as `scores` gives them, with what popularity and boosts
            add), in the order of the list, best first: (n,) each for a single user, (n_users, n)
            each for many. n is below N if fewer items can be recommended; if it differs between
            users, both are object arrays (n_users,) with one array for each user. Nothing is
            padded.
            As a frame: one row for each item, with the columns `user_id` (as in `userid`),
            `item_id`, `name`, `rank` (from 1), `probability` and `score`. The probability is
            missing where there is none: without a calibrator, and for items of the history.

        Raises:
            DataError: If a shape is wrong, or an id or a category is unknown.
            ConfigError: If the dials contradict each other.
            MissingExtraError: If the library of the frame is not installed.
        """
        answers = self.answers_
        check_whole("the number of items", N, 1)
        library = library_of(as_frame, self._trained_on) if as_frame else None
        histories = as_histories(user_items)
        is_single = np.ndim(userid) == 0
        n_users = 1 if is_single else len(userid)
        if histories.shape != (n_users, self.n_features_in_):
            raise DataError(
                f"user_items must have one row for each userid and one column for each item, "
                f"({n_users}, {self.n_features_in_}); got {histories.shape}; pass "
                "user_items[userid]"
            )
        n_threads = available_threads() if self.n_threads is None else self.n_threads
        found = recommend_all(
            answers,
            histories,
            N,
            filter_already_liked_items=filter_already_liked_items,
            owned=owned,
            filter_items=filter_items,
            items=items,
            dials=dials,
            unknown=unknown,
            block_bytes=self._block(histories, N, n_threads),
            n_threads=n_threads,
        )
        blocks = (block for _, block in found)
        if library is not None:
            users = [userid] if is_single else userid
            return frame_of(AnswerTable.joined(blocks), self.catalogue_, users, library)
        ids, scores = by_row(blocks, self.catalogue_.ids, n_users, N)
        return (ids[0], scores[0]) if is_single else (ids, scores)

    def _block(self, histories: CountMatrix, n: int, n_threads: int) -> int | None:
        """Bytes of scores in a block of users to recommend for; None for the default."""
        if self.memory_limit is None:
            return None
        config, limit = self.scorer_.network.config, check_bytes("memory_limit", self.memory_limit)
        at_once = recommending_block(histories.shape[0], histories.nnz, n, config, limit)
        return at_once // n_threads

    def recommend_for(
        self,
        history: History,
        n: int = 10,
        *,
        disliked: Mapping[Any, float] | Iterable[Any] | None = None,
        filter_already_liked_items: bool = True,
        filter_items: Items | None = None,
        items: Items | None = None,
        dials: Dials | None = None,
        unknown: Unknown = "raise",
        as_frame: AsFrame = False,
    ) -> Ranked | Frame:
        """Recommend for anyone's history by item id.

        Args:
            history: Counts by item id, or ids alone for a count of 1 each (repeats add up), or a
                row of counts, sparse. With times: `{item: [count, when]}`, or several such pairs
                in a list. `when` is in terms of `clock_`: a number, or if that is `seconds`, also
                a date or time (ISO text or `datetime`, taken as UTC without a time zone). Entries
                without a time are as late as the latest. If the model does not weigh recent
                events more, times make no difference. If it knows kinds of events, a value may
                name them: `{item: {"view": 3, "cart": [1, when]}}`; events without a kind count
                as the one to predict.
            n: Maximum number of items to recommend.
            disliked: Items known to be disliked, never recommended: confidences of at least 1 by
                item id (Eq. 9 with like 0), or ids alone. These weigh as much as the strongest
                like: each of them if the model was trained with dislikes, else all together. A
                confidence of 1 has the same effect as an unseen item; with scaled inputs, the
                default, one near the number of items weighs as much as a like.
            filter_already_liked_items: Leave out items in the history; with a kind of event to
                predict, those that have it.
            filter_items: Items never to recommend, as in `recommend`.
            items: Items to choose from, as in `recommend`.
            dials: What to prefer apart from taste, as in `recommend`.
            unknown: What to do about unknown items, wherever they are.
            as_frame: As in `recommend`; the frame has no `user_id`.

        Returns:
            Item ids and scores as in `recommend`, (at most n,) each. `probability` gives the
            items' probabilities, and a frame has them.

        Raises:
            DataError: If a count is not a finite number of at least 0, a time cannot be read, an
                item or a category is unknown, or an item is both liked and disliked.
            ConfigError: If the dials contradict each other.
        """
        answers = self.answers_
        check_whole("the number of items", n, 1)
        library = library_of(as_frame, self._trained_on) if as_frame else None
        query = answers.query(
            history,
            n,
            disliked=disliked,
            filter_already_liked_items=filter_already_liked_items,
            filter_items=filter_items,
            items=items,
            dials=dials,
            unknown=unknown,
        )
        (answer,) = answers.recommend([query])
        if library is not None:
            return frame_of(answer.table, self.catalogue_, None, library)
        return self.catalogue_.ids[answer.columns], answer.scores

    def recommend_users(
        self,
        itemid: Any,
        user_items: Any,
        N: int = 10,  # noqa: N803 (implicit's name)
        *,
        filter_already_liked_users: bool = True,
    ) -> Audience | list[Audience]:
        """Find the users to recommend an item to: those with the highest score of it.

        Users are scored in blocks: only their histories are held in memory, not their scores.

        Args:
            itemid: A known item id, or a list or array of them.
            user_items: Counts of the users to choose from, sparse, (n_users, n_items), with the
                model's items as columns; or anything that `read_interactions` reads.
            N: Maximum number of users.
            filter_already_liked_users: Leave out users who have the item already; with a kind of
                event to predict and a table, those who have that event.

        Returns:
            Users, scores and probabilities, highest score first, (at most N,) each; a list of these
            for several ids. Users are row numbers of a matrix, or else the ids of the table.

        Raises:
            DataError: If an id is unknown, or the data cannot be used.
        """
        answers = self.answers_
        check_whole("the number of users", N, 1)
        if isinstance(itemid, np.ndarray) and itemid.ndim == 0:
            itemid = itemid.item()
        is_single = not isinstance(itemid, (list, np.ndarray))
        columns = self.catalogue_.columns([itemid] if is_single else itemid)
        owned = None
        if issparse(user_items):
            histories = as_histories(user_items)
            user_ids = np.arange(histories.shape[0])
        else:
            table = UserTable.of(answers, user_items, "warn")
            histories, user_ids, owned = table.histories, table.user_ids, table.owned
        include_owners = not filter_already_liked_users
        audiences = find_audiences(
            answers, histories, columns, N, include_owners=include_owners, owned=owned
        )
        found = [audience._replace(users=user_ids[audience.users]) for audience in audiences]
        return found[0] if is_single else found

    def explain(
        self,
        history: History,
        itemid: Hashable,
        *,
        disliked: Mapping[Any, float] | Iterable[Any] | None = None,
        unknown: Unknown = "raise",
    ) -> Explanation:
        """Compute what each entry of a history does for an item, by leaving it out.

        For `explain(userid, user_items, itemid)` of `implicit`, pass `user_items[userid]`.

        Args:
            history: As in `recommend_for`.
            itemid: The item to explain, recommended or not.
            disliked: As in `recommend_for`.
            unknown: What to do about unknown items in the history.

        Returns:
            The item's score and probability, and the signed effects of all entries, largest first.

        Raises:
            DataError: As `recommend_for`, and if the item to explain is unknown.
        """
        answers = self.answers_
        return answers.explain(answers.query(history, disliked=disliked, unknown=unknown), itemid)

    def probability(
        self,
        history: History,
        items: Iterable[Any] | None = None,
        *,
        disliked: Mapping[Any, float] | Iterable[Any] | None = None,
        unknown: Unknown = "raise",
    ) -> NDArray[np.float64]:
        """Calibrated probability that each item is missing from this user's history.

        Precisely: some of each user's items are assumed to be missing, as large a share as `fit`
        holds out (`validation_share`, a tenth by default; `validation_by` says how). The value is
        the probability that an item is one of those missing. Over all items it sums to about their
        number, a ninth of the history by default, so it is small. For another event, such as next
        week's items, use `calibrate`.

        If events have times, the last of them are held out: the value is the probability that an
        item is among a user's new ones in a period as long as the last tenth of the events took.

        The order of the items is that of `recommend`. If a history is shorter or longer than all
        those that `fit` held out items from, it counts as the nearest length.

        Args:
            history: As in `recommend_for`.
            items: Ids of the items; None for all, in the order of the catalogue.
            disliked: As in `recommend_for`. They do not change the number of items
                that is expected.
            unknown: What to do about unknown items in the history; `items` must be known.

        Returns:
            (n_asked,), in (0, 1); NaN for items in the history, which cannot be held out.

        Raises:
            ConfigError: If the model has no calibrator.
            DataError: As `recommend_for`, and if an item of `items` is unknown.
        """
        answers = self.answers_
        if self.calibrator_ is None:
            raise ConfigError(
                "this model has no calibrated probabilities: nothing was held out when it was "
                "fitted, or it was trained further since; call calibrate(histories, held_out), or "
                "fit with validation_share above 0"
            )
        columns = None if items is None else self.catalogue_.columns(items)
        found = answers.probability(answers.query(history, disliked=disliked, unknown=unknown))
        return found if columns is None else found[columns]

    def calibrate(self, histories: Any, held_out: Any) -> ImplicitCFNADE:
        """Fit the probabilities on data of your own, instead of the part that `fit` held out.

        The value is then the probability that an item not in the history is among those held
        out here: those of the following week, for example. Scores do not change.

        Args:
            histories: Counts, sparse, (n_users, n_items).
            held_out: Further counts of the same users that the model was not trained on, sparse,
                (n_users, n_items), disjoint from the histories. Include users without any: their
                empty rows count.

        Returns:
            Itself.

        Raises:
            DataError: If the two do not match, or nothing is held out.
        """
        scorer = self.answers_.scorer
        histories, held_out = as_count_matrix(histories), as_count_matrix(held_out)
        if histories.shape[1] != self.n_features_in_:
            raise DataError(
                f"histories must have the model's {self.n_features_in_} items as columns, got "
                f"{histories.shape[1]}"
            )
        self.calibrator_ = calibrate(scorer, histories, held_out)
        return self

    # Similarity --------------------------------------------------------------------------------

    def similar_items(
        self,
        itemid: Any,
        N: int = 10,  # noqa: N803 (implicit's name)
        recalculate_item: bool = False,
        item_users: Any = None,
        filter_items: Items | None = None,
        items: Items | None = None,
        *,
        unknown: Unknown = "raise",
    ) -> Ranked:
        """Find the items that are recommended to the same people.

        Args:
            itemid: A known item id, or a list or array of them.
            N: Maximum number of items, including the item itself, which comes first.
            recalculate_item: For compatibility with `implicit`; has no effect.
            item_users: Likewise.
            filter_items: Items to leave out, as in `recommend`, for all ids or for each.
            items: Items to choose from, likewise.
            unknown: What to do about unknown ids in the filters.

        Returns:
            Item ids and similarities, best first: (n,) each for one id, (n_ids, n) for many, as
            in `recommend`. A similarity is a cosine, 1 for the item itself.

        Raises:
            DataError: If an id is unknown.
        """
        answers = self.answers_
        check_whole("the number of items", N, 1)
        if isinstance(itemid, np.ndarray) and itemid.ndim == 0:
            itemid = itemid.item()
        is_single = not isinstance(itemid, (list, np.ndarray))
        columns = self.catalogue_.columns([itemid] if is_single else itemid)
        filters = answers.filters(len(columns), items, filter_items, unknown)
        similar = answers.similar_items(np.array(columns, dtype=np.int64), N, *filters)
        ids = self.catalogue_.ids
        found = [(ids[places], similarities) for places, similarities in similar]
        return found[0] if is_single else stack(found, ids, N)

    def similar_users(
        self,
        history: Any,
        user_items: Any,
        N: int = 10,  # noqa: N803 (implicit's name)
        *,
        unknown: Unknown = "raise",
    ) -> Ranked:
        """Find the users with the most similar histories.

        There is no table of users, so the caller passes the histories to search.

        Args:
            history: One history as in `recommend_for`, or several: counts, sparse,
                (n_asked, n_items) with n_asked other than 1.
            user_items: Counts of the users to search, sparse, (n_users, n_items). A user who has
                the same history comes first.
            N: Maximum number of users to find.
            unknown: What to do about unknown items in the history.

        Returns:
            Rows of `user_items` and similarities, best first: (n,) each for one history,
            (n_asked, n) for many. A similarity is a cosine between hidden layers.

        Raises:
            DataError: If a shape is wrong or an item is unknown.
        """
        answers = self.answers_
        is_single = not issparse(history) or len(history.shape) == 1 or history.shape[0] == 1
        signed = partial(as_count_matrix, signed=True)
        read = partial(answers.history, unknown=unknown) if is_single else signed
        asked = read(history)
        check_whole("the number of items", N, 1)
        found = answers.similar_users(asked, signed(user_items), N)
        return found[0] if is_single else stack(found, np.empty(0, dtype=np.int64), N)

    @property
    def answers_(self) -> Answers:
        """Answers queries in batches, with scores and probabilities: for services and jobs."""
        if not hasattr(self, "_answers"):
            raise ConfigError(
                f"this {type(self).__name__} is not fitted yet; call fit(counts) or load(folder)"
            )
        if self._answers.calibrator is not self.calibrator_:  # fitted or dropped since
            self._answers = replace(self._answers, calibrator=self.calibrator_)
        return self._answers

    # Files -------------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, dtype: WeightType = "float32", **info: Any) -> None:
        """Write the model as a folder of safetensors and JSON.

        Args:
            folder: Where to write it; an existing model there is replaced.
            dtype: How matrices of weights are stored. `float16` and `int16` halve the folder;
                `int16`, with a scale for each row, rounds less.
            info: Further fields of `model.json`, such as metrics and the origin of the data.
        """
        scorer = self.answers_.scorer
        known = {
            "settings": to_json(self.get_params(deep=False)),
            "training": FitRecord.of_model(self).to_json(),
            "metrics": {
                **self._info.get("metrics", {}),
                "validation_mpr": self.validation_mpr_,
                **info.pop("metrics", {}),
            },
            "data_fingerprint": self.data_fingerprint_,
        }
        if self.calibrator_ is not None:
            known["calibrator"] = self.calibrator_.to_json()
        described = {**self._info, **known, **info}
        artifact = Artifact(scorer.network, scorer.relative_rating, self.catalogue_, described)
        save_artifact(artifact, Path(folder), dtype)

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> ImplicitCFNADE:
        """Read a model that `save` wrote; needs no torch, and nothing in it is executed.

        The weights are memory-mapped and read-only: processes that load the same folder share
        its pages. Weights of 16 bits are copied to float32 in each process.

        Args:
            folder: What `save` wrote.
            verify: Compare checksums, which reads all of the files; False for a quick start from
                a folder that was verified before.

        Raises:
            ArtifactError: If there is no model, it is damaged, or a later version wrote it.
        """
        artifact = load_artifact(Path(folder), verify=verify)
        info = dict(artifact.info)
        scorer = NetworkScorer(artifact.network, artifact.relative_rating)
        try:
            settings = from_json(info.pop("settings", {}), parameter_names(cls))
            FitSettings.of({**cls().get_params(deep=False), **settings})  # refuses wrong ones
            saved = info.pop("calibrator", None)  # early versions have none
            calibrator = Calibrator.from_json(saved) if saved else None
            return cls.from_parts(
                scorer, artifact.catalogue, calibrator=calibrator, info=info, **settings
            )
        except (ConfigError, ArtifactError, DataError) as error:
            raise ArtifactError(f"the model in {folder} cannot be read: {error}") from error
