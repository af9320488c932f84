"""Models for MLflow that act with a saved policy."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from rlox.errors import missing_extra
from rlox.registry.table import resolve
from tensordict import TensorDict


def _parent() -> Any:
    """Return MLflow's base class of models, or ``object`` without MLflow."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow warns about its own classes
            return importlib.import_module("mlflow.pyfunc").PythonModel
    except ModuleNotFoundError:
        return object


PythonModel: Any = _parent()


class _SavedPolicy(PythonModel):  # type: ignore[misc]
    """Base of both kinds; ``classes`` are custom ones of the policy, as for its ``load``."""

    kind: str
    """Class of the policy, by name because its module imports this one."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Skip MLflow's own hook, which warns that nested arrays are not a typed list."""

    @property
    def predict_type_hints(self) -> Any:
        """No types, because MLflow would derive table columns from them."""
        return SimpleNamespace(input=None, output=None)

    def __init__(self, **classes: Any) -> None:
        self._classes = classes
        self.policy: Any = None

    def load_context(self, context: Any) -> None:
        """Read the policy from the artifact ``policy``."""
        self.policy = resolve(self.kind).load(context.artifacts["policy"], **self._classes)

    def _batch(self, obs: Any) -> TensorDict:
        """Return observations (B, T, ...), arrays or mappings of them, as a batch."""
        observed = self._tensors(self.policy.observation_spec, obs)
        first = obs
        while isinstance(first, Mapping):
            first = next(iter(first.values()))
        shape = np.shape(first)[:2]
        return TensorDict({"obs": observed}, shape, device=self.policy.device)

    def _tensors(self, spec: Any, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._tensors(spec[key], part) for key, part in value.items()}
        return torch.as_tensor(np.asarray(value)).to(self.policy.device, spec.dtype)


class MLflowPolicyModel(_SavedPolicy):
    """A feed-forward policy: ``predict({"obs": array (B, T, ...)})``."""

    kind = "rlox_rl8.policies:Policy"

    def predict(self, context: Any, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Return a data frame of B·T rows: ``actions``, ``logp`` and ``values``.

        ``obs`` are arrays nested like the observations; MLflow's other arguments are unused.
        """
        out = self.policy.sample(
            self._batch(model_input["obs"]), kind="all", deterministic=True, return_logp=True,
            return_values=True,
        )  # fmt: skip
        return _frame(out.select("actions", "logp", "values"))


class MLflowRecurrentPolicyModel(_SavedPolicy):
    """A recurrent policy: ``predict({"obs": array (B, T, ...), "states": ...})``."""

    kind = "rlox_rl8.policies:RecurrentPolicy"

    def predict(self, context: Any, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Return two data frames: the one of a feed-forward policy, and B rows of states.

        ``states`` are arrays (B, ...) by name from the previous call, or none at the beginning.
        """
        batch, states = self._batch(model_input["obs"]), model_input.get("states")
        if states is not None:
            # columns of a data frame have a list in each row
            columns = {k: list(states[k]) for k in self.policy.state_spec.keys()}  # noqa: SIM118
            parts = self._tensors(self.policy.state_spec, columns)
            states = TensorDict(parts, batch.shape[:1], device=self.policy.device)
        out, after = self.policy.sample(
            batch, states, deterministic=True, return_logp=True, return_values=True
        )
        return [_frame(out.select("actions", "logp", "values")), _frame(after)]


def _frame(rows: TensorDict) -> Any:
    try:
        pandas = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise missing_extra("a prediction as a data frame", "mlflow") from error
    return pandas.DataFrame({str(key): value.cpu().numpy().tolist() for key, value in rows.items()})
