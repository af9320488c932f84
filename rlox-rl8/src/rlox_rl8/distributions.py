"""Action distributions over a model's features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rlox_rl8 import _specs as specs


class Distribution(ABC):
    """A distribution of actions, from a model's features of N rows and the model, if needed."""

    def __init__(self, features: TensorDict, model: nn.Module | None = None, /) -> None:
        self.features = features
        self.model = model

    def _action_spec(self) -> Any:
        if self.model is None:
            raise ValueError(f"{type(self).__name__} needs the model, whose action_spec it reads")
        return self.model.action_spec

    @staticmethod
    def default_dist_cls(action_spec: specs.TensorSpec, /) -> type[Distribution]:
        """Return the default class for a spec of actions.

        Raises:
            TypeError: there is none; pass ``distribution_cls=``.
        """
        defaults: dict[Any, type[Distribution]] = {
            specs.Binary: Bernoulli,
            specs.MultiCategorical: MultiCategorical,
            specs.Categorical: Categorical,
            specs.Bounded: BoundedBeta,
            specs.Unbounded: Normal,
        }
        kind = specs.kind_of(action_spec)
        if kind not in defaults:
            raise TypeError(
                f"actions of {type(action_spec).__name__} have no default distribution; "
                "pass distribution_cls="
            )
        return defaults[kind]

    @abstractmethod
    def deterministic_sample(self) -> Any:
        """Return the mode."""

    @abstractmethod
    def sample(self) -> Any:
        """Return a sample."""

    @abstractmethod
    def logp(self, samples: Any) -> Tensor:
        """Return log-probabilities (N, 1)."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Return entropies (N, 1) in nats."""


class TorchDistributionWrapper(Distribution):
    """One of torch's distributions, summed over the last dimension of actions."""

    dist: torch.distributions.Distribution

    def deterministic_sample(self) -> Tensor:
        return self.dist.mode

    def sample(self) -> Tensor:
        return self.dist.sample()

    def logp(self, samples: Tensor) -> Tensor:
        return self.dist.log_prob(samples).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        return self.dist.entropy().sum(-1, keepdim=True)


class Categorical(TorchDistributionWrapper):
    """Discrete actions from ``logits`` (N, A, n).

    It draws like torch's, from the same numbers, without its checks, which take longer than a
    small model.
    """

    def __init__(self, features: TensorDict, model: nn.Module | None = None, /) -> None:
        super().__init__(features, model)
        self.logits: Tensor = features["logits"].log_softmax(-1)

    @cached_property
    def dist(self) -> torch.distributions.Categorical:  # type: ignore[override]
        """The distribution of torch."""
        return torch.distributions.Categorical(logits=self.logits, validate_args=False)

    def deterministic_sample(self) -> Tensor:
        return self.logits.argmax(-1)

    def sample(self) -> Tensor:
        """Return a sample: the first arrival of exponential clocks with the classes' rates."""
        return (self.logits.exp() / torch.empty_like(self.logits).exponential_()).argmax(-1)

    def logp(self, samples: Tensor) -> Tensor:
        logp = self.logits.gather(-1, samples[..., None].long())
        return logp.squeeze(-1).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        """Return entropies (N, 1) in nats; a class of probability 0 adds none."""
        finite = self.logits.clamp(min=torch.finfo(self.logits.dtype).min)
        return -(finite * self.logits.exp()).sum((-2, -1))[:, None]


class MultiCategorical(Distribution):
    """Categories of unequal counts from ``logits`` (N, n_1 + ... + n_A).

    The model's ``action_spec`` is a ``MultiCategorical``, which holds the counts.
    """

    def __init__(self, features: TensorDict, model: nn.Module | None = None, /) -> None:
        super().__init__(features, model)
        parts = torch.split(features["logits"][:, None], self._action_spec().nvec.tolist(), -1)
        self._parts = [Categorical(TensorDict({"logits": part}, features.shape)) for part in parts]

    def deterministic_sample(self) -> Tensor:
        return torch.cat([part.deterministic_sample() for part in self._parts], -1)

    def sample(self) -> Tensor:
        return torch.cat([part.sample() for part in self._parts], -1)

    def logp(self, samples: Tensor) -> Tensor:
        pairs = zip(self._parts, torch.split(samples, 1, -1), strict=True)
        return torch.cat([part.logp(column) for part, column in pairs], -1).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        return torch.cat([part.entropy() for part in self._parts], -1).sum(-1, keepdim=True)


class Bernoulli(TorchDistributionWrapper):
    """Binary actions from ``logits`` (N, A), as int8."""

    def __init__(self, features: TensorDict, model: nn.Module | None = None, /) -> None:
        super().__init__(features, model)
        self.dist = torch.distributions.Bernoulli(logits=features["logits"], validate_args=False)

    def deterministic_sample(self) -> Tensor:
        """Return the mode; 0 where both values are equally probable."""
        return torch.gt(self.features["logits"], 0).to(torch.int8)

    def sample(self) -> Tensor:
        return super().sample().to(torch.int8)

    def logp(self, samples: Tensor) -> Tensor:
        return super().logp(samples.to(self.features["logits"].dtype))


class BoundedBeta(TorchDistributionWrapper):
    """Bounded numbers, from ``alpha`` and ``beta`` above 1, both (N, A).

    The model's ``action_spec`` is a ``Bounded``, which holds the bounds.

    Source:
        Chou et al. 2017, "Improving stochastic policy gradients in continuous control with deep
        reinforcement learning using the Beta distribution", sec. 4.
    """

    def __init__(self, features: TensorDict, model: nn.Module | None = None, /) -> None:
        super().__init__(features, model)
        spec = self._action_spec()
        self._low: Tensor = spec.low
        self._range: Tensor = spec.high - spec.low
        shape = features["alpha"], features["beta"]
        self.dist = torch.distributions.Beta(*shape, validate_args=False)

    def deterministic_sample(self) -> Tensor:
        return self._low + self._range * super().deterministic_sample()

    def sample(self) -> Tensor:
        return self._low + self._range * super().sample()

    def logp(self, samples: Tensor) -> Tensor:
        eps = torch.finfo(samples.dtype).eps
        inside = ((samples - self._low) / self._range).clamp(eps, 1 - eps)
        return (self.dist.log_prob(inside) - self._range.log()).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        return (self.dist.entropy() + self._range.log()).sum(-1, keepdim=True)


class Normal(TorchDistributionWrapper):
    """Continuous actions from ``mean`` and ``log_std``, both (N, A)."""

    def __init__(self, features: TensorDict, model: nn.Module | None = None) -> None:
        super().__init__(features, model)
        self.dist = torch.distributions.Normal(
            features["mean"], features["log_std"].exp(), validate_args=False
        )

    def sample(self) -> Tensor:
        """Return a sample; torch's own asks the host whether deviations are positive."""
        mean, deviation = self.dist.mean, self.dist.stddev
        return (mean + deviation * torch.randn_like(mean)).detach()


class SquashedNormal(Normal):
    """Actions a = tanh(u) in (-1, 1) with u from a normal distribution.

    log p(a) = log N(atanh a) - Σ log(1 - a² + ε), where ε is the dtype's epsilon and log N is
    clipped to [-100, 100]. Its entropy is unknown: leave the entropy's weight at 0.
    """

    def deterministic_sample(self) -> Tensor:
        return super().deterministic_sample().tanh()

    def sample(self) -> Tensor:
        return super().sample().tanh()

    def logp(self, samples: Tensor) -> Tensor:
        eps = torch.finfo(samples.dtype).eps
        raw = samples.clamp(-1 + eps, 1 - eps).atanh()
        logp = self.dist.log_prob(raw).clamp(-100, 100).sum(-1, keepdim=True)
        return logp - (1 - samples**2 + eps).log().sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        raise NotImplementedError("SquashedNormal has no entropy; leave entropy_coeff at 0")
