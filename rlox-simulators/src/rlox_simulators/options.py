"""Options of the env backends, apart from these, which import gymnasium."""

from __future__ import annotations

from rlox.config.model import Config, count, flag


class AtariOptions(Config):
    """Options for stepping and learning Atari games; ``env_kwargs`` sets the games themselves."""

    episodic_life: bool = flag(
        False, source="Mnih et al. 2015",
        help="treat each lost life as an episode's end in learning; scores are of whole games",
    )  # fmt: skip
    emulator_threads: int | None = count(
        None, unit="threads", source="rlox",
        help="threads that step the games; None: one per core, at most n_envs",
    )  # fmt: skip

    def for_evaluation(self) -> AtariOptions:
        """Return the options of evaluations, which play whole games."""
        return self.replace(episodic_life=False)


class MujocoOptions(Config):
    """Options for stepping MuJoCo's envs."""

    physics_threads: int | None = count(
        None, unit="threads", source="rlox",
        help="threads that step the simulations; None: half the logical cores, at most n_envs",
    )  # fmt: skip


class PoolOptions(Config):
    """Options for stepping EnvPool's envs; ``env_kwargs`` sets the envs themselves."""

    pool_threads: int | None = count(
        None, unit="threads", source="rlox",
        help="threads that step the envs; None: one per core, at most n_envs",
    )  # fmt: skip
