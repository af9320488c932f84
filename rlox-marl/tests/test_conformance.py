"""The conformance suite on the algorithms and the env backends of this distribution."""

from __future__ import annotations

import pytest
import rlox.testing
from scripted_teams import parallel

SMALL = {"n_envs": 2, "n_steps": 8, "batch_size": 8, "n_epochs": 1, "hidden": 8}
SPREAD = "mpe2/simple_spread_v3"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (
            "mappo",
            {
                "share_parameters": "agent",
                "critic_learning_rate": 1e-3,
                "normalize_observations": True,
            },
        ),
        ("mappo", {"recurrent": "lstm", "memory_size": 4, "normalize_values": "popart"}),
        ("ippo", {"normalize_observations": True, "normalize_rewards": True, "frame_stack": 2}),
    ],
)
def test_teams_conform(name, options) -> None:
    """They pass the suite for algorithms of several agents."""
    assert rlox.testing.check_multi_agent_algorithm(name, SPREAD, **SMALL, **options) == {}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("independent_q", {"share_parameters": "agent"}),
        ("qmix", {"recurrent": "gru", "memory_size": 4, "sequence_length": 4}),
    ],
)
def test_values_of_teams_conform(name, options) -> None:
    """Action-value algorithms do too; with the buffer in the checkpoint, resuming is exact."""
    small = {
        "n_envs": 2, "batch_size": 4, "hidden": 8, "train_freq": 6, "gradient_steps": 1,
        "learning_starts": 12, "steps_per_iteration": 32, "buffer_size": 500,
        "save_replay_buffer": True,
    }  # fmt: skip
    reasons = rlox.testing.check_multi_agent_algorithm(name, SPREAD, **small, **options)
    assert reasons == {}


def test_teams_of_agents_that_end_conform() -> None:
    """Envs without a state pass all checks except exact resuming."""
    reasons = rlox.testing.check_multi_agent_algorithm(
        "mappo", parallel, **SMALL, recurrent="gru", frame_stack=2
    )
    assert reasons == {"check_team_resume": "the env does not expose its state"}


@pytest.mark.parametrize(
    ("backend", "env_id", "reasons"),
    [
        ("vectorized", SPREAD, {}),
        ("pettingzoo", "mpe2/simple_tag_v3", {"check_team_state": "the env exposes no state"}),
    ],
)
def test_env_backends_conform(backend, env_id, reasons) -> None:
    """Their envs return the right shapes, and equal seeds give equal results."""
    assert rlox.testing.check_multi_agent_env(backend, env_id) == reasons


def test_a_wrong_counter_is_found(monkeypatch) -> None:
    """The suite fails for an algorithm that counts agents as env steps."""
    from rlox_marl.collector import MultiAgentCollector

    collect = MultiAgentCollector.collect

    def wrong(self, policies, n_steps, on_step=None):
        return collect(self, policies, n_steps, lambda count: on_step(3 * count))

    monkeypatch.setattr(MultiAgentCollector, "collect", wrong)
    with pytest.raises(AssertionError, match="whatever the number of agents"):
        rlox.testing.check_multi_agent_algorithm("mappo", SPREAD, **SMALL)
