"""A trained model together with the encoding of the tables it reads, as plain JSON on disk.

A model directory holds ``model.json`` (released weights, public schema) and ``certificate.json``.
Neither holds data, seeds or anything computed from data but the released weights.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dplateau import estimators
from dplateau.certificate.evaluation import Evaluation
from dplateau.certificate.files import CERTIFICATE, MODEL, Place, reserved
from dplateau.certificate.model_file import FORMAT, read_document
from dplateau.errors import DataError, PlanError, nothing_released
from dplateau.estimators.base import PrivateLinearModel
from dplateau.estimators.intervals import INTERCEPT, Intervals
from dplateau.tables.columns import column_from_dict
from dplateau.tables.encoding import PublicTableEncoder, columns_of, load_schema
from dplateau.tables.people import owners, without
from dplateau.tables.preparing import (
    estimator_for,
    refuse_streamed,
    scaled,
    split,
    unscaled,
    whitenable,
)
from dplateau.tables.scaling import scaled_columns, whitened_features
from dplateau.tables.scattered import TableElsewhere
from dplateau.tables.streaming import TableStream
from dplateau.training.sandwich import Sandwich

if TYPE_CHECKING:
    from dplateau.ledger import Reservation

# Parameters of estimators that the plan's loss holds, so that no file repeats them.
_OF_THE_LOSS = {"quantile": "quantile", "width": "width", "residual_clip": "threshold"}


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator, the encoder of its features, and the column it predicts.

    Build one with `train`; `write` and `read` are inverse to each other.
    """

    estimator: PrivateLinearModel
    encoder: PublicTableEncoder
    target: str
    name: str = ""
    date: str = ""

    @classmethod
    @nothing_released()
    def train(
        cls,
        table: Any,
        schema: Mapping[str, Any] | str | Path,
        target: str,
        *,
        rows: str = "auto",
        model: str | None = None,
        scaling: str = "auto",
        search: Mapping[str, Any] | None = None,
        name: str = "",
        person: str | None = None,
        reservation: Reservation | None = None,
        checkpoint: str | Path | None = None,
        **options: Any,
    ) -> TableModel:
        """Train on a table with named columns.

        The target's entry in the schema chooses the model: a category or boolean column gives
        `PrivateLogisticRegression` with its categories as classes, a number
        `PrivateLinearRegression` with its bounds as target bounds.

        Parameters
        ----------
        table : pyarrow Table, DataFrame, mapping of columns, TableStream or TableElsewhere
            A stream is encoded in scratch space as float32, so that it need not fit into memory.
            The last is a table in files that the workers of a Dask cluster read.
        schema : mapping or path
            As for `PublicTableEncoder`, with the target among its columns.
        target : str
            The column to predict.
        rows : {"auto", "unit", "bound"}
            How rows are scaled: see `PublicTableEncoder`.
        name : str
            What the table is called in the report; nothing is taken from its path.
        model : {"logistic", "svm", "linear", "quantile"}, optional
            Another estimator for such a column.
        scaling : {"auto", "public", "standard", "whiten"}
            Whether a share of the budget buys narrower bounds for the numbers: "standard" does,
            "whiten" buys a linear map that makes them uncorrelated as well, "public" keeps the
            schema's, "auto" does where the noise is small against the number of rows (where that is
            private: against a count of them). A ``search`` follows it, on the same bounds.
        search : mapping, optional
            Arguments of `PrivateSearch`, its ``param_grid`` among them: the settings are chosen
            privately, with the same budget.
        person : str, optional
            The column that says whose each row is: the unit of the guarantee is then a person. It
            is no feature, and nothing of it is kept.
        reservation : Reservation, optional
            Budget that a ledger holds back for this training: see `dplateau.Ledger`.
        checkpoint : path, optional
            A private resume file: see `dplateau.release`.
        **options
            Parameters of the estimator: ``epsilon``, ``delta`` and so on.
        """
        facts = without(load_schema(schema), person)
        # a resumed training would look a second time
        if person is not None or reservation is not None or checkpoint is not None:
            scaling = unscaled(scaling, search, person)
        if scaling == "whiten":
            rows = whitenable(facts, rows)
        facts, bought, clipped, axes, count = scaled(facts, table, target, scaling, search, options)
        encoder, column = split(facts, target, rows)
        budget = {name: options.pop(name) for name in ("epsilon", "delta") if search is not None}
        kind = scaling if scaling == "auto" else "public"  # others have been bought above
        norm = encoder.data_norm * clipped
        if any(encoder.signs):
            options["monotonic_cst"] = encoder.signs
        estimator = estimator_for(column, model, data_norm=norm, scaling=kind, **options)
        estimator._bought, estimator._longest = bought, encoder.data_norm
        estimator._count = count  # type: ignore[misc]
        if axes is not None:
            estimator._mapping = whitened_features(encoder, scaled_columns(facts, target), *axes)  # type: ignore[misc]
        targets: Any
        encode = estimator._encoded
        if isinstance(table, TableStream):
            refuse_streamed(person, search)
            features, targets = table.encoded(encoder, column, encode)
        elif isinstance(table, TableElsewhere):
            features, targets = table.partitions(encoder, column, encode, person), None
        else:
            cells = table.column(target) if hasattr(table, "column") else table[target]
            features, targets = encoder.transform(table), column.targets(cells)
        if not isinstance(table, TableElsewhere) and features.shape[0] == 0:
            raise DataError("the table has no rows to train on. Check that it is the right file.")
        if search is None:
            estimator.fit(
                features,
                targets,
                groups=None if person is None or targets is None else owners(table, person),
                reservation=None if reservation is None else reservation.confirming(),
                checkpoint=checkpoint,
            )
        else:
            if checkpoint is not None or reservation is not None:
                raise PlanError(
                    "a search keeps no resume file, and its winner's plan is not known when a "
                    "ledger wants to hear it. Enter its certificate in the ledger afterwards."
                )
            chooser = estimators.PrivateSearch(estimator, **search, **budget)
            estimator = chooser.fit(features, targets).best_estimator_
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        trained = cls(estimator, encoder, target, name, today)
        estimator.certificate_ = estimator.certificate_.bound_to(trained.to_dict())
        if reservation is not None:  # entered first, then shown
            reservation.settle(estimator.certificate_)
        return trained

    @property
    def certificate(self) -> Any:
        """What is promised about the released weights."""
        return self.estimator.certificate_

    def predict(self, table: Any) -> NDArray[Any]:
        """A prediction for every row."""
        features = self.encoder.transform(table)
        if features.shape[0] == 0:
            return np.asarray(getattr(self.estimator, "classes_", np.empty(0)))[:0]
        return np.asarray(self.estimator.predict(features))

    def predict_proba(self, table: Any) -> NDArray[np.float64] | None:
        """The classes' probabilities for every row; None for a regression."""
        if not hasattr(self.estimator, "predict_proba"):
            return None
        features = self.encoder.transform(table)
        if features.shape[0] == 0:
            return np.empty((0, len(self.estimator.classes_)))
        return np.asarray(self.estimator.predict_proba(features))

    def confidence_intervals(self, level: float = 0.95) -> Intervals:
        """Intervals for the encoded features' coefficients: see the estimator's method."""
        found = self.estimator.confidence_intervals(level)
        named = [*self.encoder.get_feature_names_out(), INTERCEPT][: len(found.names)]
        return dataclasses.replace(found, names=named)

    def predict_interval(self, table: Any, level: float = 0.95) -> NDArray[np.float64]:
        """An interval for every row's prediction on average: see the estimator's method."""
        features = self.encoder.transform(table)
        if features.shape[0] == 0:
            return np.empty((0, 2))
        return self.estimator.predict_interval(features, level)

    def columns(self, level: float | None = None) -> list[str]:
        """The names of what `answers` gives: prediction, probabilities, the interval's ends."""
        model: Any = self.estimator
        labels = model.classes_.tolist() if hasattr(model, "predict_proba") else []
        ends = [] if level is None else ["low", "high"]
        return [self.target, *(f"p({label})" for label in labels), *ends]

    def answers(self, table: Any, level: float | None = None) -> list[list[Any]]:
        """All that is said about the rows, column by column; they are encoded once."""
        model: Any = self.estimator
        features = self.encoder.transform(table)
        found = [model.predict(features).tolist()]
        if hasattr(model, "predict_proba"):
            found += model.predict_proba(features).T.tolist()
        if level is not None:
            found += model.predict_interval(features, level).T.tolist()
        return found

    def score_private(
        self, table: Any, *, epsilon: float | None, random_state: Any = None
    ) -> Evaluation:
        """Scores on a table that the model was not trained on: see the estimator's method.

        The table holds the target, in the column that the model predicts.
        """
        return self.tallied([table], epsilon=epsilon, random_state=random_state)()

    def tallied(
        self, parts: Iterable[Any], *, epsilon: float | None, random_state: Any = None
    ) -> Callable[[], Evaluation]:
        """Count over a table in parts, one after the other; what is returned draws the scores."""
        return self.estimator._answered(
            self._asked(parts), epsilon=epsilon, random_state=random_state
        )

    def _asked(self, parts: Iterable[Any]) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Features and targets of every part that has rows."""
        column = column_from_dict(self.target, self._target_facts())
        for part in parts:
            cells = columns_of(part)
            if self.target not in cells:
                raise DataError(
                    f"the table has no column {self.target!r}, which is what is predicted."
                )
            features = self.encoder.transform(part)
            if features.shape[0]:
                yield features, column.targets(cells[self.target])

    def _target_facts(self) -> dict[str, Any]:
        """The target's entry in a schema, as far as the model knows it."""
        model: Any = self.estimator
        if not hasattr(model, "classes_"):
            return {"type": "number", "bounds": list(model.target_bounds)}
        labels = model.classes_.tolist()
        if labels == ["false", "true"]:
            return {"type": "boolean"}
        return {"type": "category", "categories": labels}

    # -- on disk ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything that predicting needs, as JSON values."""
        model = self.estimator
        if hasattr(model, "classes_"):
            facts = {"classes": model.classes_.tolist()}
        else:
            facts = {"target_bounds": list(model.target_bounds)}
        return {
            "format": FORMAT,
            "estimator": type(model).__name__,
            "target": self.target,
            **({"name": self.name} if self.name else {}),
            **({"date": self.date} if self.date else {}),
            **facts,
            "schema": dict(load_schema(self.encoder.schema)),
            "rows": self.encoder.scaling,  # what was done, whatever chose it
            "features": self.encoder.get_feature_names_out().tolist(),
            # Coefficients are made from these again: what predicts is what was certified.
            "weights": model.weights_.tolist(),
            **({"scaling": model.scaling_.tolist()} if hasattr(model, "scaling_") else {}),
            **({} if model.moments_ is None else {"moments": model.moments_.to_dict()}),
        }

    def write(self, place: str | Path | Place, *, force: bool = False) -> list[Path]:
        """Write model and certificate, all or nothing; the paths written.

        Parameters
        ----------
        place : path or Place
            A directory, or one that `dplateau.certificate.files.reserved` holds since before the
            training.
        force : bool
            Allow to replace the model in a directory; one that is not empty is refused without.
            Report and signature of the model before go with it, other files stay.
        """
        if not isinstance(place, Place):
            with reserved(place, force=force) as held:
                return self.write(held)
        model = json.dumps(self.to_dict(), allow_nan=False) + "\n"
        return place.publish({MODEL: model, CERTIFICATE: self.certificate.to_json()})

    @classmethod
    def read(cls, directory: str | Path) -> TableModel:
        """The model in a directory, ready to predict."""
        from dplateau.certificate.record import Certificate

        path = Path(directory) / MODEL
        stored = read_document(path)
        if stored.get("format") != FORMAT:
            raise DataError(f"{path.name} has an unknown format; this version reads {FORMAT}.")
        certificate = Certificate.read(path.with_name(CERTIFICATE))
        try:
            model = cls._restored(stored, certificate)
        except (KeyError, TypeError, AttributeError):
            raise DataError(f"{path.name} lacks a part of the model. Train again.") from None
        wrong = next((check for check in certificate.identify(stored) if not check.passed), None)
        if wrong is not None:
            raise DataError(
                f"{path.name} is not what its certificate was issued for ({wrong.name}: "
                f"{wrong.found}). Get both from where they were trained."
            )
        return model

    @classmethod
    def _restored(cls, stored: dict[str, Any], certificate: Any) -> TableModel:
        encoder = PublicTableEncoder(stored["schema"], rows=stored["rows"]).fit()
        facts: dict[str, Any] = {
            key: stored[key] for key in ("classes", "target_bounds") if key in stored
        }
        kind = getattr(estimators, stored["estimator"])
        for name, of_loss in _OF_THE_LOSS.items():
            if name in kind.__dataclass_fields__:
                facts[name] = getattr(certificate.plan.loss, of_loss)
        model = kind(
            delta=certificate.delta,
            data_norm=encoder.data_norm,
            neighboring_relation=certificate.relation,
            fit_intercept=certificate.plan.loss.intercept > 0,
            **facts,
        )
        if "classes" in stored:
            model.classes_ = np.array(stored["classes"])
        model.weights_ = np.array(stored["weights"], dtype=np.float64)
        model.n_features_in_ = encoder.n_features_out_
        if "scaling" in stored:
            model.scaling_ = np.array(stored["scaling"], dtype=np.float64)
            if model.scaling_.shape not in (
                (model.n_features_in_, 2),
                (model.n_features_in_, model.n_features_in_ + 2),
            ):
                raise KeyError("scaling")
        sums = stored.get("moments")
        model.moments_ = None if sums is None else Sandwich.from_dict(sums)
        if model.weights_.size != certificate.plan.dimension:
            raise KeyError("weights")
        if (sums is None) != (certificate.bought.moments is None):
            raise KeyError("moments")
        model.certificate_, model.plan_ = certificate, certificate.plan
        model.n_iter_ = int(certificate.plan.iterations)
        return cls(model, encoder, stored["target"], stored.get("name", ""), stored.get("date", ""))


def load_model(directory: str | Path) -> TableModel:
    """The model that ``dplateau train --out`` wrote, with its certificate, ready to predict.

    Parameters
    ----------
    directory : path
        The directory that holds ``model.json`` and ``certificate.json``.

    Returns
    -------
    TableModel
        ``predict(table)`` and ``predict_proba(table)`` take a data frame, an arrow table or a
        mapping of columns; ``score_private(table, epsilon=...)`` one that holds the target too;
        ``certificate`` is what is promised about it.

    Raises
    ------
    DataError
        When there is none, or it is not the one that its certificate was issued for.
    """
    return TableModel.read(directory)
