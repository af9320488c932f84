"""Losses of policy gradients, a user's own losses, and their metrics.

:func:`ppo_loss` is a formula. :class:`ClippedSurrogate` is the same as data, with the coefficients
of one run: an :class:`Objective`, which algorithms minimise and learner backends recognise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, Field, dataclass, fields
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rlox.batches.rollout import RolloutBatch, RolloutMinibatch, StepRows
from rlox.config.model import Config
from rlox.errors import CheckpointError, ConfigError, suggest
from rlox.protocols import OnPolicyActor, RecurrentActor
from rlox.ranks import RANKS

ObjectiveT = TypeVar("ObjectiveT")
MetricsT = TypeVar("MetricsT")


class Objective(Protocol):
    """A policy's loss as a frozen dataclass of all the numbers that it depends on.

    A faster learner backend recognises the exact class and its fields; any other object with this
    method is minimised in torch.
    """

    def loss(self, policy: Any, minibatch: Any) -> tuple[Tensor, Any]:
        """Return the loss of B steps.

        Args:
            policy: the policy being trained.
            minibatch: B steps of a rollout as a
                :class:`~rlox.batches.rollout.RolloutBatch` or a
                :class:`~rlox.batches.rollout.RolloutMinibatch`, or a whole
                :class:`~rlox.batches.rollout.Unroll`, depending on the algorithm.

        Returns:
            A scalar, and a frozen dataclass of its terms, scalars without gradient.
        """


def make_objective(
    kind: type[ObjectiveT], config: Config, values: Mapping[str, Any] = MappingProxyType({})
) -> ObjectiveT:
    """Return an objective with the current values of its options.

    Args:
        kind: a dataclass; fields that are not options of the config keep their defaults.
        config: the algorithm's config.
        values: fields that differ from the config, such as options with a schedule.

    Raises:
        TypeError: a field is neither an option nor has a default; see :func:`fields_of`.
    """
    values, given = {**vars(config), **values}, {}
    for field in fields_of(kind):
        if field.name in values:
            given[field.name] = values[field.name]
        elif field.default is MISSING and field.default_factory is MISSING:
            raise TypeError(
                f"{kind.__name__} has the field {field.name}, and {type(config).__name__} no such "
                "option; add the option, or give the field a default"
            )
    return kind(**given)


def fields_of(kind: type[Any]) -> tuple[Field[Any], ...]:
    """Return the fields of an objective's class.

    Raises:
        TypeError: it is not a frozen dataclass, or annotates fields without being one itself.
    """
    made = getattr(kind, "__dataclass_params__", None)
    adds = "__dataclass_params__" not in vars(kind) and inspect.get_annotations(kind)
    if made is None or not made.frozen or adds:
        raise TypeError(
            f"{kind.__name__} must be a frozen dataclass; write @dataclass(frozen=True) above it, "
            "and keep what training changes in a network or another module"
        )
    return fields(kind)


@dataclass(frozen=True)
class PPOTerms:
    """The parts of the loss and further diagnostics; scalars without gradient."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def ppo_loss(
    log_probs: Tensor,
    entropy: Tensor,
    values: Tensor,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    *,
    clip_eps: float,
    vf_coef: float,
    ent_coef: float,
    vf_clip_eps: float | None = None,
    dual_clip: float | None = None,
) -> tuple[Tensor, PPOTerms]:
    """Compute the negated objective of PPO, averaged over B steps.

        r      = π(a|s) / π_old(a|s)
        L_CLIP = mean min(r A, clip(r, 1-ε, 1+ε) A)
        loss   = -L_CLIP + c_1 mean (V - G)² - c_2 mean H

    Args:
        log_probs: (B,) log π(a|s).
        entropy: (B,) H[π(.|s)] in nats.
        values: (B,) V(s).
        old_log_probs: (B,) log π_old(a|s).
        old_values: (B,) value estimates of the policy that acted.
        advantages: (B,) A, normalised or not.
        returns: (B,) G.
        clip_eps: ε.
        vf_coef: c_1.
        ent_coef: c_2.
        vf_clip_eps: if given, the value loss is the maximum of the plain one and that of values
            clipped to this distance from the old ones.
        dual_clip: if given (> 1), the objective of negative advantages is at least this times A.

    Returns:
        The loss, a scalar, and its terms.

    Source:
        Schulman et al. 2017, eq. 7 and 9; dual clip: Ye et al. 2020, eq. 5; approximate KL:
        Schulman 2020, "Approximating KL divergence", k3; value clip: openai/baselines ppo2.
        The value loss has no factor 1/2, as in eq. 9.
    """
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - clip_eps, 1 + clip_eps)
    surrogate = torch.minimum(advantages * ratio, advantages * clipped_ratio)
    if dual_clip is not None:
        bounded = torch.maximum(surrogate, dual_clip * advantages)
        surrogate = torch.where(advantages < 0, bounded, surrogate)
    policy_loss = -surrogate.mean()

    squares = (values - returns).square()
    if vf_clip_eps is not None:
        change = values - old_values
        clipped = old_values + change.clamp(-vf_clip_eps, vf_clip_eps)
        larger = torch.maximum(squares, (clipped - returns).square())
        # within the range both are equal up to rounding, which must not decide
        squares = torch.where(change.abs() > vf_clip_eps, larger, squares)
    value_loss = squares.mean()

    mean_entropy = entropy.mean()
    loss = policy_loss + vf_coef * value_loss - ent_coef * mean_entropy
    with torch.no_grad():
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = (ratio != clipped_ratio).to(ratio.dtype).mean()
    return loss, PPOTerms(
        policy_loss.detach(), value_loss.detach(), mean_entropy.detach(), approx_kl, clip_fraction
    )


@dataclass(frozen=True)
class ClippedSurrogate:
    """PPO's loss; see :func:`rlox.losses.ppo_loss`."""

    clip_eps: float
    """Clip range ε of the probability ratio (Schulman et al. 2017, eq. 7)."""
    vf_coef: float
    """Weight c_1 of the value loss (eq. 9)."""
    ent_coef: float
    """Weight c_2 of the entropy bonus, in 1/nats (eq. 9)."""
    vf_clip_eps: float | None = None
    """Range of the value clip, in units of the return (openai/baselines ppo2); ``None``: off."""
    dual_clip: float | None = None
    """Bound of the objective at negative advantages (Ye et al. 2020, eq. 5); ``None``: off."""
    normalize_advantages: bool = True
    """Standardise advantages within each minibatch (Huang et al. 2022, detail 7)."""

    def loss(
        self, policy: Any, minibatch: RolloutBatch | RolloutMinibatch
    ) -> tuple[Tensor, PPOTerms]:
        """Return the loss of B steps and its terms."""
        advantages = minibatch.advantages
        if self.normalize_advantages:
            advantages = standardize(advantages)
        log_probs, entropy, values = evaluate_actions(policy, minibatch)
        return ppo_loss(
            log_probs,
            entropy,
            values,
            minibatch.log_probs,
            minibatch.values,
            advantages,
            minibatch.returns,
            clip_eps=self.clip_eps,
            vf_coef=self.vf_coef,
            ent_coef=self.ent_coef,
            vf_clip_eps=self.vf_clip_eps,
            dual_clip=self.dual_clip,
        )


@dataclass(frozen=True)
class PolicyGradientTerms:
    """The parts of the loss; scalars without gradient."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor


@dataclass(frozen=True)
class PolicyGradient:
    """The loss of advantage actor-critic: ``-mean A log π(a|s) + c_v mean (V - G)² - c_e mean H``.

    Source:
        Mnih et al. 2016, algorithm S3 and sec. 4, averaged over B steps.
    """

    vf_coef: float
    """Weight c_v of the value loss."""
    ent_coef: float = 0.0
    """Weight c_e of the entropy bonus, in 1/nats."""
    normalize_advantages: bool = False
    """Standardise the advantages of the B steps."""

    def loss(
        self, policy: Any, minibatch: RolloutBatch | RolloutMinibatch
    ) -> tuple[Tensor, PolicyGradientTerms]:
        """Return the loss of B steps and its terms."""
        advantages = minibatch.advantages
        if self.normalize_advantages:
            advantages = standardize(advantages)
        log_probs, entropy, values = evaluate_actions(policy, minibatch)
        policy_loss = -(advantages * log_probs).mean()
        value_loss = (values - minibatch.returns).square().mean()
        mean_entropy = entropy.mean()
        loss = policy_loss + self.vf_coef * value_loss - self.ent_coef * mean_entropy
        terms = policy_loss.detach(), value_loss.detach(), mean_entropy.detach()
        return loss, PolicyGradientTerms(*terms)


def evaluate_actions(
    policy: OnPolicyActor | RecurrentActor, batch: RolloutBatch | RolloutMinibatch | StepRows
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities and entropies of a batch's actions, and values, each (B,).

    Uses one pass through the policy if it has a method ``evaluate_actions``; a memory is replayed
    from the beginning of the rollout.
    """
    masks = () if batch.action_masks is None else (batch.action_masks,)
    if isinstance(policy, RecurrentActor):
        assert batch.initial_state is not None
        assert batch.episode_starts is not None
        evaluated = policy.evaluate_actions(
            batch.obs,
            batch.actions,
            *masks,
            state=batch.initial_state,
            episode_starts=batch.episode_starts,
        )
        active = getattr(batch, "active", None)
        return evaluated if active is None else tuple(part[active] for part in evaluated)  # type: ignore[return-value]
    together = getattr(policy, "evaluate_actions", None)
    if together is not None:
        return together(batch.obs, batch.actions, *masks)  # type: ignore[no-any-return]
    log_probs, entropy = policy.get_logprob_and_entropy(batch.obs, batch.actions, *masks)
    return log_probs, entropy, policy.get_value(batch.obs)


def standardize(advantages: Tensor) -> Tensor:
    """Return (B,) advantages minus their mean, in units of their standard deviation.

    Both are taken over the rows of all ranks; a single row becomes 0.
    """
    if RANKS:
        return RANKS[0].standardize(advantages)
    if len(advantages) < 2:
        return torch.zeros_like(advantages)
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


@dataclass(eq=False)
class PPOLoss:
    """:func:`ppo_loss` of a policy, with its coefficients fixed."""

    clip_eps: float = 0.2
    """ε."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    ent_coef: float = 0.01
    """Weight of the entropy bonus."""
    _: KW_ONLY
    vf_clip_eps: float | None = None
    """Range of the value clip; ``None``: not clipped."""
    dual_clip: float | None = None
    """Bound of the dual clip; ``None``: not clipped."""

    def __call__(
        self,
        policy: OnPolicyActor,
        obs: Tensor,
        actions: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        returns: Tensor,
        old_values: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of B steps.

        Args:
            policy: the policy being trained.
            obs: (B, *shape).
            actions: (B,) or (B, act_dim).
            old_log_probs: (B,) of the policy that acted.
            advantages: (B,)
            returns: (B,)
            old_values: (B,) of the policy that acted.

        Returns:
            The loss and its terms (``policy_loss``, ``value_loss``, ``entropy``, ``approx_kl``,
            ``clip_fraction``), scalars without gradient.
        """
        log_probs, entropy = policy.get_logprob_and_entropy(obs, actions)
        loss, terms = ppo_loss(
            log_probs,
            entropy,
            policy.get_value(obs),
            old_log_probs,
            old_values,
            advantages,
            returns,
            **vars(self),
        )
        return loss, dict(vars(terms))


AddedLoss = Callable[[Any, Any], Tensor]
"""Maps a module and its batch to a scalar, which is added to the module's loss."""

Losses = Mapping[str, AddedLoss | Iterable[AddedLoss]] | AddedLoss | Iterable[AddedLoss]
"""Added losses by the name of the part that minimises them, such as ``"policy"``; or the only
part's."""


class AddedLosses:
    """A user's added losses, by the part of the algorithm that minimises them.

    Each is logged under the function's name, as its mean over an iteration's gradient steps.

    Args:
        losses: functions ``(module, batch) -> scalar`` by part; ``None`` adds none.
        parts: the names of the parts, those of ``algorithm.optimizers``.

    Raises:
        ConfigError: a part is unknown, two losses have one name, or one has no name.
        TypeError: a loss cannot be called.
    """

    def __init__(self, losses: Losses | None, parts: Collection[str]) -> None:
        self._losses: dict[str, dict[str, AddedLoss]] = {}
        self._collected: dict[str, list[Tensor]] = {}
        if losses is not None and not isinstance(losses, Mapping):
            if len(parts) != 1:
                raise ConfigError(
                    f"added_losses must be functions by part, {' or '.join(parts)}, got "
                    f"{losses!r}; write {{'{next(iter(parts))}': function}}"
                )
            losses = dict.fromkeys(parts, losses)
        for part, given in (losses or {}).items():
            if part not in parts:
                raise ConfigError(
                    f"added_losses names the part '{part}'{suggest(part, parts)}; there are "
                    f"{', '.join(parts)}"
                )
            for loss in given if isinstance(given, Iterable) else (given,):
                self._add(part, loss)

    def _add(self, part: str, loss: AddedLoss) -> None:
        if not callable(loss):
            raise TypeError(
                f"added_losses['{part}'] must be functions (module, batch) -> scalar, got {loss!r}"
            )
        name = getattr(loss, "__name__", type(loss).__name__)
        if not name.isidentifier():
            raise ConfigError(
                f"an added loss is logged and saved under its name, and '{name}' is not one; "
                "define it with def"
            )
        if name in self._collected:
            raise ConfigError(f"two added losses are called '{name}'; rename one")
        self._losses.setdefault(part, {})[name] = loss
        self._collected[name] = []

    def __bool__(self) -> bool:
        return bool(self._losses)

    @property
    def names(self) -> list[str]:
        """``part.function`` of every loss, sorted; checkpoints hold them."""
        return sorted(f"{part}.{name}" for part, found in self._losses.items() for name in found)

    def add(self, part: str, loss: Tensor, module: nn.Module, batch: Any) -> Tensor:
        """Return ``loss`` plus the part's added losses, and keep their values for the metrics.

        Args:
            part: part that the loss belongs to.
            loss: scalar.
            module: module that learns.
            batch: batch that it learns from.

        Raises:
            ValueError: a function returns anything but a scalar tensor.
        """
        for name, added in self._losses.get(part, {}).items():
            value = added(module, batch)
            if not isinstance(value, Tensor) or value.dim():
                got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(
                    f"the added loss '{name}' must return a scalar tensor, got {got}; "
                    "take its mean over the batch"
                )
            self._collected[name].append(value.detach())
            loss = loss + value
        return loss

    def means(self) -> dict[str, float]:
        """Return each loss's mean over the gradient steps since the last call; NaN without any."""
        means = {
            name: float(torch.stack(values).mean()) if values else float("nan")
            for name, values in self._collected.items()
        }
        for values in self._collected.values():
            values.clear()
        return means

    def require_same(self, saved: Collection[str]) -> None:
        """Check the losses against those of a checkpoint.

        Raises:
            CheckpointError: one is missing or new.
        """
        if sorted(saved) != self.names:
            raise CheckpointError(
                f"it was trained with the added losses {sorted(saved) or 'none'}, got "
                f"{self.names or 'none'}; pass the same functions as added_losses="
            )


Scalar = Tensor | float
"""A tensor () without gradient, or a number from a learner that computes without torch."""


def mean_terms(kind: type[Any], terms: Sequence[Any]) -> dict[str, float]:
    """Return the means over gradient steps, in one transfer from the device.

    Args:
        kind: a dataclass of scalars, all tensors or all numbers.
        terms: instances of it, one per gradient step; without any, the means are NaN.
    """
    means = mean_by_name([vars(each) for each in terms])
    return {field.name: means.get(field.name, float("nan")) for field in fields(kind)}


def mean_by_name(terms: Sequence[Mapping[str, Scalar]]) -> dict[str, float]:
    """Return the means of scalars by name, each over the mappings that have it.

    Args:
        terms: one mapping per gradient step, of numbers and of tensors, which cost one transfer
            from the device.
    """
    found: dict[str, list[Any]] = {}
    for each in terms:
        for name, value in each.items():
            found.setdefault(name, []).append(value)
    kept = {name: v for name, v in found.items() if all(isinstance(x, Tensor) for x in v)}
    tensors = {name: torch.stack(v).mean() for name, v in kept.items()}
    means = torch.stack(list(tensors.values())).tolist() if tensors else []
    numbers = {k: float(np.mean([*map(float, v)])) for k, v in found.items() if k not in tensors}
    return numbers | dict(zip(tensors, means, strict=True))


KL_TOLERANCE = 1.5
"""Epochs end when the approximate KL exceeds its target by this factor (openai/spinningup ppo)."""


def passes_target_kl(terms: Any, target_kl: float | None) -> bool:
    """Return whether the approximate KL exceeds 1.5 times ``target_kl``, if that is given.

    Raises:
        ConfigError: the terms have no ``approx_kl``.
    """
    if target_kl is None:
        return False
    return float(mean_kl(terms, "target_kl")) > KL_TOLERANCE * target_kl


def mean_kl(terms: Any, option: str) -> Tensor:
    """Return the approximate KL among a loss's terms, the mean over ranks in float64.

    Args:
        terms: of the loss.
        option: needs it.

    Raises:
        ConfigError: the terms have no ``approx_kl``.
    """
    if not hasattr(terms, "approx_kl"):
        raise ConfigError(
            f"{option} needs an objective that reports approx_kl, got {type(terms).__name__}; "
            f"add it to the terms, or leave {option} out"
        )
    kl = torch.as_tensor(terms.approx_kl).to(torch.float64, copy=True)
    for ranks in RANKS:  # all ranks decide alike
        ranks.average(kl, f"the KL of {option}")
    return kl


class AdaptiveRate:
    """A factor of the learning rate that keeps a minibatch's approximate KL near a target.

    Above twice the target the factor is divided by 1.5, below half of it multiplied by 1.5, within
    0.01 and 10. A KL of 0, as in the first minibatch, changes nothing.

    Args:
        target: KL in nats.
        device: of the losses.

    Source:
        Rudin et al. 2022, "Learning to walk in minutes using massively parallel deep reinforcement
        learning", app. A. Deviation: the approximate KL instead of that between the Gaussians.
    """

    def __init__(self, target: float, device: torch.device) -> None:
        self.target = target
        self.factor = torch.ones((), device=device)

    def follow(self, terms: Any, taken: Tensor | float = 1.0) -> None:
        """Change :attr:`factor` after the loss of a minibatch, before its gradient step.

        Args:
            terms: of the loss.
            taken: 0 if the step is not taken, so that nothing changes.

        Raises:
            ConfigError: the terms have no ``approx_kl``.
        """
        kl = mean_kl(terms, "adaptive_kl")
        rises = (kl > 0) & (kl < self.target / 2)
        change = torch.where(kl > 2 * self.target, 1 / 1.5, torch.where(rises, 1.5, 1.0))
        self.factor.mul_(change**taken).clamp_(0.01, 10)


def make_metrics(
    kind: type[MetricsT], terms: Mapping[str, float], added: AddedLosses, **more: float
) -> MetricsT:
    """Return the metrics of an iteration.

    Args:
        kind: dataclass of the metrics. Fields without a value or a default are NaN.
        terms: means of the loss's terms. Those that ``kind`` has no field for go into its field
            ``added``, like the means of the added losses.
        added: the user's own losses.
        more: further metrics.
    """
    declared = fields(kind)  # type: ignore[arg-type]
    names = [field.name for field in declared]
    known = {name: value for name, value in terms.items() if name in names}
    others = {name: value for name, value in terms.items() if name not in names}
    absent = {f.name: float("nan") for f in declared if f.default is f.default_factory is MISSING}
    return kind(**absent | known | more | {"added": others | added.means()})
