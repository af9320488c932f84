"""The base of DPO and OnlineDPO: gradient steps on preference pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rlox.errors import ConfigError
from rlox.registry.table import get_registry
from rlox.training.hooks import Hooks

from rlox_llm.configs import PreferenceConfig
from rlox_llm.language import LanguageAlgorithm
from rlox_llm.pairs import Pair, pairs_loss

__all__ = ["PreferenceAlgorithm", "require_preference_options"]


def require_preference_options(config: PreferenceConfig) -> None:
    """Refuse options that do not go together.

    Raises:
        ConfigError: they do not.
    """
    if config.loss_type == "exo_pair" and not config.label_smoothing:
        raise ConfigError("loss_type='exo_pair' needs label_smoothing above 0; 1e-3 is common")
    adds_up = get_registry().get("rlox_preference_losses", config.loss_type).spec.adds_up
    if not adds_up and config.micro_batch_size is not None:
        raise ConfigError(
            f"loss_type='{config.loss_type}' compares the pairs of a batch and cannot be learnt in "
            "parts; leave out micro_batch_size"
        )


class PreferenceAlgorithm(LanguageAlgorithm):
    """An algorithm whose gradient steps are on the loss of preference pairs."""

    def learn_pairs(self, hooks: Hooks, pairs: Sequence[Pair]) -> dict[str, float]:
        """Take one gradient step on pairs; return the loss and its terms."""
        assert self.reference is not None
        optimizer = self.optimizers["model"]
        sums = {"learning_rate": self.learning_rate}
        with self.learning():
            for part in self.chunks(len(pairs)):
                share = len(pairs[part]) / len(pairs)
                loss, terms = pairs_loss(self.policy, self.reference, pairs[part], self.config)
                optimizer.backward(loss * share)
                for name, value in {"loss": loss.detach(), **asdict(terms)}.items():
                    sums[name] = sums.get(name, 0.0) + share * float(value)
        optimizer.apply(sums["learning_rate"])
        n_tokens = sum(len(pair.chosen) + len(pair.rejected) for pair in pairs)
        self.count(hooks, len(pairs), 2 * len(pairs), n_tokens)
        return sums
