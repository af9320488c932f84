"""Names of registered losses, and the options of single ones."""

from __future__ import annotations

from rlox.config.model import Config, option, positive
from rlox.errors import ConfigError, UnknownNameError
from rlox.registry.table import get_registry

__all__ = ["BCOOptions", "DiscoPOPOptions", "SAPOOptions", "VESPOOptions", "require_loss"]

TRL = "TRL 1.16"


class SAPOOptions(Config):
    """Options of the policy loss "sapo"."""

    sapo_temperature_pos: float = positive(
        1.0, help="τ at positive advantages", source=f"Gao et al. 2025; {TRL}"
    )
    sapo_temperature_neg: float = positive(
        1.05, help="τ at other advantages", source=f"Gao et al. 2025; {TRL}"
    )


class VESPOOptions(Config):
    """Options of the policy loss "vespo"."""

    vespo_k_pos: float = positive(
        2.0, help="exponent k at advantages that are positive or 0", source=TRL
    )
    vespo_lambda_pos: float = positive(
        3.0, help="rate λ at advantages that are positive or 0", source=TRL
    )
    vespo_k_neg: float = positive(3.0, help="exponent k at negative advantages", source=TRL)
    vespo_lambda_neg: float = positive(2.0, help="rate λ at negative advantages", source=TRL)


class DiscoPOPOptions(Config):
    """Options of the preference loss "discopop"."""

    discopop_tau: float = positive(
        0.05, help="temperature τ of the mixture", source=f"Lu et al. 2024; {TRL}"
    )


class BCOOptions(Config):
    """Options of the preference loss "bco_pair"."""

    bco_delta: float = option(
        0.0, help="reward δ between those of chosen and rejected completions", unit="1",
        source=f"Jung et al. 2024, there a running mean of the rewards; {TRL}",
    )  # fmt: skip


def require_loss(hook: str, name: str) -> str:
    """Return the name of a registered loss.

    Raises:
        ConfigError: there is none of that name; the text has the nearest names.
    """
    try:
        get_registry().get(hook, name)
    except UnknownNameError as error:
        raise ConfigError(str(error)) from None
    return name
