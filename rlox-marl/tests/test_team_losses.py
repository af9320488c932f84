"""User-defined objectives, added losses and policies, for teams and for one agent."""

from __future__ import annotations

import pytest
import rlox
from rlox.errors import ConfigError
from rlox.losses import ClippedSurrogate
from rlox_marl.ippo import IPPO
from rlox_marl.mappo import TeamSurrogate
from rlox_testing.probes import first_difference

SPREAD = "mpe2/simple_spread_v3"
SMALL = {"n_envs": 4, "n_steps": 8, "batch_size": 32, "n_epochs": 2}


def large_values(policy, minibatch):
    """Return the mean square of the values."""
    return policy.get_value(minibatch.obs).square().mean()


def end(algorithm):
    """Return the parameters after two iterations, and the last row."""
    with algorithm:
        algorithm.train(32)
        row = algorithm.train(32)
        return algorithm.state_dict()["policies"], row


def test_an_added_loss_is_minimised_and_logged() -> None:
    """It changes the parameters of every policy."""
    options = {"env": SPREAD, "seed": 3, "share_parameters": "agent", "backend": "torch", **SMALL}
    plain, _ = end(rlox.make("mappo", **options))
    other, row = end(rlox.make("mappo", added_losses={"policy": large_values}, **options))
    assert row["large_values"] > 0.0
    for policy in plain:
        assert first_difference(plain[policy], other[policy]) is not None


@pytest.mark.parametrize("values", ["none", "popart"])
def test_an_objective_of_equal_numbers_learns_alike(values) -> None:
    """Passing the algorithm's own objective as the user's gives the same parameters."""
    options = {"env": SPREAD, "seed": 3, "normalize_values": values, **SMALL}
    objective = ClippedSurrogate(clip_eps=0.2, vf_coef=0.5, ent_coef=0.01)
    if values != "none":
        objective = TeamSurrogate(objective)
    plain, row = end(rlox.make("mappo", **options))
    same, again = end(rlox.make("mappo", objective=objective, **options))
    assert first_difference(plain, same) is None
    assert row["policy_loss"] == again["policy_loss"]
    changed = TeamSurrogate(ClippedSurrogate(clip_eps=0.2, vf_coef=0.5, ent_coef=0.01), 1e-3)
    other, _ = end(rlox.make("mappo", objective=changed, **options))
    assert first_difference(plain, other) is not None


def own_policy(observation_space, action_space):
    """Return a user-defined policy."""
    from rlox.networks import ActorCriticPolicy
    from rlox.nn import make_encoder

    return ActorCriticPolicy(make_encoder(observation_space), action_space, (8,))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"added_losses": {"critic": large_values}},
            ConfigError,
            "names the part 'critic'.*policy",
        ),
        ({"objective": 3}, TypeError, r"must have a method loss\(policy, minibatch\)"),
        ({"objective": "own", "clip_eps": 0.1}, ConfigError, "clip_eps is a number of the"),
        ({"objective": "own", "schedules": {"ent_coef": float}}, ConfigError, "ent_coef is a"),
        ({"policy": own_policy, "hidden": 8}, ConfigError, "hidden is of the default networks"),
    ],
)
@pytest.mark.parametrize("env", [SPREAD, "CartPole-v1"])
def test_wrong_calls_are_reported(env, options, error, text) -> None:
    """Each is one error, before the first step, for a team and for one agent."""
    if options.get("objective") == "own":
        options = options | {"objective": ClippedSurrogate(0.2, 0.5, 0.0)}
    with pytest.raises(error, match=text):
        IPPO(env, **SMALL, **options)
