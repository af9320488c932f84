"""Policies: a model with a distribution of actions, and policy files without code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from rlox.errors import CheckpointError, ConfigError
from rlox.files import open_regular, write_atomically
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as tensors_bytes
from tensordict import TensorDict

from rlox_rl8 import _specs as specs
from rlox_rl8 import distributions, models
from rlox_rl8._specs import Composite, TensorSpec
from rlox_rl8.data import Device
from rlox_rl8.distributions import Distribution
from rlox_rl8.models import Model, RecurrentModel
from rlox_rl8.views import ViewKind

PolicyT = TypeVar("PolicyT", bound="GenericPolicyBase")

FORMAT_VERSION = 1
KEY = "rlox_rl8_policy"


def __getattr__(name: str) -> Any:
    if name in ("MLflowPolicyModel", "MLflowRecurrentPolicyModel"):
        from rlox_rl8 import mlflow_models  # MLflow takes seconds to import

        return getattr(mlflow_models, name)
    raise AttributeError(f"module '{__name__}' has no '{name}'")


class GenericPolicyBase:
    """Base of both kinds.

    Args:
        observation_spec: spec of one env.
        action_spec: spec of one env.
        model: a model, or ``None`` to make one.
        model_cls: its class; ``None``: the default for the specs.
        model_config: options of the class.
        distribution_cls: class of the actions' distribution; ``None``: the default for the spec.
        device: the model's device.

    Raises:
        ValueError: both ``model`` and ``model_cls`` are given.
        TypeError: there are no defaults for the specs.
    """

    default: Any

    def __init__(
        self,
        observation_spec: TensorSpec,
        action_spec: TensorSpec,
        /,
        *,
        model: Any = None,
        model_cls: Any = None,
        model_config: dict[str, Any] | None = None,
        distribution_cls: type[Distribution] | None = None,
        device: Device = "cpu",
    ) -> None:
        if model is not None and model_cls is not None:
            raise ValueError("model and model_cls exclude each other; pass one of them")
        if model is None:
            if model_cls is None:
                model_cls = self.default.default_model_cls(observation_spec, action_spec)
            model = model_cls(observation_spec, action_spec, **(model_config or {}))
        self.observation_spec, self.action_spec = observation_spec, action_spec
        self.model = model.to(device)
        self.distribution_cls = distribution_cls or Distribution.default_dist_cls(action_spec)
        self.device = torch.device(device)
        self._entered: bool | None = None
        """Whether the running block of :meth:`mode` needs gradients; ``None`` outside."""

    @contextmanager
    def mode(self, requires_grad: bool) -> Iterator[None]:
        """Run the model in evaluation mode, and restore every module's mode after the block.

        ``sample`` in the block skips setting the mode, which takes as long as a small model.
        """
        if self._entered is requires_grad:
            yield
            return
        modes = [(module, module.training) for module in self.model.modules()]
        before, self._entered = self._entered, requires_grad
        self.model.eval()
        for module, _ in modes:
            # cuDNN has no gradient in evaluation
            if requires_grad and isinstance(module, torch.nn.RNNBase) and not module.dropout:
                module.training = True
        try:
            with torch.set_grad_enabled(requires_grad):
                yield
        finally:
            self._entered = before
            for module, training in modes:
                module.training = training

    def _outputs(
        self,
        features: TensorDict,
        deterministic: bool,
        return_actions: bool,
        return_logp: bool,
        return_values: bool,
    ) -> TensorDict:
        out = TensorDict({"features": features}, batch_size=features.batch_size)
        if return_actions or return_logp:
            dist = self.distribution_cls(features, self.model)
            actions = dist.deterministic_sample() if deterministic else dist.sample()
            if return_actions:
                out["actions"] = actions
            if return_logp:
                out["logp"] = dist.logp(actions)
        if return_values:
            out["values"] = self.model.value_function()
        return out

    def save(self, path: str | os.PathLike[str], /) -> Any:
        """Write the policy's parameters, specs and the names of its classes to a file without code.

        Returns:
            Model for MLflow's ``pyfunc.save_model(python_model=..., artifacts={"policy": path})``.
        """
        from rlox_rl8 import mlflow_models  # MLflow takes seconds to import

        config = self.model.config
        try:
            json.dumps(config)
        except (TypeError, ValueError):
            config = None
        header = {
            "format_version": FORMAT_VERSION,
            "kind": type(self).__name__,
            "model": type(self.model).__name__,
            "config": config,
            "distribution": self.distribution_cls.__name__,
            "observation_spec": _to_data(self.observation_spec),
            "action_spec": _to_data(self.action_spec),
        }
        state = self.model.state_dict().items()
        tensors = {name: x.detach().cpu().contiguous().clone() for name, x in state}
        content = tensors_bytes(tensors, metadata={KEY: json.dumps(header)})
        write_atomically(Path(path), content)
        own = {"model_cls": type(self.model), "distribution_cls": self.distribution_cls}
        return getattr(mlflow_models, f"MLflow{type(self).__name__}Model")(**own)

    @classmethod
    def load(
        cls: type[PolicyT],
        path: str | os.PathLike[str],
        /,
        *,
        model: Any = None,
        model_cls: Any = None,
        distribution_cls: type[Distribution] | None = None,
        device: Device = "cpu",
    ) -> PolicyT:
        """Return the policy that :meth:`save` wrote to a file.

        A custom model, or one that ``model_cls`` makes with the configuration in the file, receives
        the parameters; a custom class of distributions is passed as well.

        Raises:
            CheckpointError: the file is missing, damaged, foreign, or of another kind or model.
            ConfigError: the file names a custom class, and none is given.
        """
        header, tensors = _read(path)
        if header["kind"] != cls.__name__:
            raise CheckpointError(f"'{path}' holds a {header['kind']}, not a {cls.__name__}")
        if model is None and model_cls is None:
            model_cls = _known(models, header["model"], "model", path)
        if distribution_cls is None:
            distribution_cls = _known(distributions, header["distribution"], "distribution", path)
        policy = cls(
            _from_data(header["observation_spec"], device),
            _from_data(header["action_spec"], device),
            model=model,
            model_cls=model_cls,
            model_config=header["config"],
            distribution_cls=distribution_cls,
            device=device,
        )
        try:
            policy.model.load_state_dict(tensors)
        except RuntimeError as error:
            raise CheckpointError(f"'{path}' belongs to another model: {error}") from None
        return policy

    def to(self, device: Device, /) -> Any:
        """Move the model and return this policy."""
        self.device = torch.device(device)
        self.model = self.model.to(device)
        return self


class Policy(GenericPolicyBase):
    """A feed-forward policy; see :class:`GenericPolicyBase`."""

    model: Model
    default = Model

    def sample(
        self,
        batch: TensorDict,
        /,
        *,
        kind: ViewKind = "last",
        deterministic: bool = False,
        inplace: bool = False,
        requires_grad: bool = False,
        return_actions: bool = True,
        return_logp: bool = False,
        return_values: bool = False,
        return_views: bool = False,
    ) -> TensorDict:
        """Return features and the requested outputs.

        Args:
            batch: (B, T) with observations; or with ``views`` made before.
            kind: rows for the last step, (B), or for all steps, (B·T).
            deterministic: use the mode of the distribution.
            inplace: write the outputs into ``batch`` if its number of rows fits.
            requires_grad: keep the graph.
            return_actions: whether to return ``actions``.
            return_logp: whether to return the actions' ``logp`` (., 1).
            return_values: whether to return ``values`` (., 1).
            return_views: whether to return the model's ``views``.
        """
        with self.mode(requires_grad):
            made = "views" in batch.keys()  # noqa: SIM118  # a TensorDict iterates over rows
            views = batch["views"] if made else self.model.apply_view_requirements(batch, kind=kind)
            out = self._outputs(
                self.model(views), deterministic, return_actions, return_logp, return_values
            )
        if return_views:
            out["views"] = views
        return batch.update(out) if inplace and batch.batch_size == out.batch_size else out


class RecurrentPolicy(GenericPolicyBase):
    """A recurrent policy; see :class:`GenericPolicyBase`."""

    model: RecurrentModel
    default = RecurrentModel

    @property
    def state_spec(self) -> Composite:
        """Spec of one env's states."""
        return self.model.state_spec

    def init_states(self, n: int, /) -> TensorDict:
        """Return the initial states of n sequences."""
        return self.model.init_states(n)

    def views(self, batch: TensorDict, /) -> TensorDict:
        """Return the model's views (B, T) of a batch (B, T)."""
        return self.model.apply_view_requirements(batch, kind="all").unflatten(0, batch.shape)

    def latest(self, batch: TensorDict, /) -> TensorDict:
        """Return the last step (B, 1) of a batch (B, T), with its views."""
        if not self.model.sees_past:
            return batch[:, -1:]
        views = self.model.apply_view_requirements(batch, kind="last")[:, None]
        return TensorDict({"views": views}, views.batch_size, device=views.device)

    def sample(
        self,
        batch: TensorDict,
        /,
        states: TensorDict | None = None,
        *,
        deterministic: bool = False,
        inplace: bool = False,
        requires_grad: bool = False,
        return_actions: bool = True,
        return_logp: bool = False,
        return_values: bool = False,
    ) -> tuple[TensorDict, TensorDict]:
        """Return features and the requested outputs (B·T), and the states (B) after the last step.

        Arguments are those of :meth:`Policy.sample`; any ``views`` are (B, T). ``states`` (B) are
        those before the first step; ``None``: initial ones.
        """
        with self.mode(requires_grad):
            if states is None:
                states = self.init_states(batch.shape[0])
            if "views" in batch.keys():  # noqa: SIM118  # a TensorDict iterates over rows
                seen = batch["views"]
            else:
                seen = self.views(batch) if self.model.sees_past else batch
            features, after = self.model(seen, states)
            out = self._outputs(features, deterministic, return_actions, return_logp, return_values)
        if inplace and batch.batch_size == out.batch_size:
            out = batch.update(out)
        return out, after


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with open_regular(Path(path), "rb") as file:
            content = file.read()
        tensors = load_tensors(content)
        size = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][KEY])
        version = header["format_version"]
    except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"'{path}' is not an rlox.rl8 policy, or damaged: {error}") from None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"'{path}' has format version {version!r}, this rlox reads {FORMAT_VERSION}; upgrade"
        )
    return header, tensors


def _known(module: Any, name: str, what: str, path: Any) -> Any:
    found = vars(module).get(name)
    if not isinstance(found, type) or found.__module__ != module.__name__:
        raise ConfigError(
            f"'{path}' names the {what} class '{name}', which is not rlox's; pass {what}_cls="
        )
    return found


def _to_data(spec: specs.TensorSpec) -> dict[str, Any]:
    kind = specs.kind_of(spec)
    if kind is None:
        raise ConfigError(f"the spec {spec} cannot be written")
    if kind is specs.Composite:
        parts = {str(key): _to_data(spec[key]) for key in spec.keys()}  # noqa: SIM118
        return {"kind": "Composite", "parts": parts}
    data = {"kind": kind.__name__, "shape": list(spec.shape), "dtype": str(spec.dtype)}
    if kind is specs.MultiCategorical:
        data["numbers"] = spec.nvec.tolist()
    elif kind is specs.Categorical:
        data["number"] = int(spec.n)
    elif kind is specs.Bounded:
        data |= {"low": spec.low.tolist(), "high": spec.high.tolist()}
    return data


def _from_data(data: dict[str, Any], device: Any) -> specs.TensorSpec:
    kind = data["kind"]
    if kind == "Composite":
        parts = {key: _from_data(part, device) for key, part in data["parts"].items()}
        return specs.Composite(parts)
    shape = torch.Size(data["shape"])
    given = {"device": device, "dtype": getattr(torch, data["dtype"].removeprefix("torch."))}
    if kind == "MultiCategorical":
        return specs.MultiCategorical(data["numbers"], **given)
    if kind == "Categorical":
        return specs.Categorical(data["number"], shape=shape, **given)
    if kind == "Bounded":
        low, high = (torch.tensor(data[name], dtype=given["dtype"]) for name in ("low", "high"))
        return specs.Bounded(low, high, shape=shape, **given)
    return (specs.Binary if kind == "Binary" else specs.Unbounded)(shape=shape, **given)
