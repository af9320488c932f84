"""The conformance suite for algorithms, env and actor backends, buffers and loggers.

rlox's own families pass it. A plugin runs it in one test:

    import rlox.testing

    def test_pets_conforms():
        rlox.testing.check_algorithm("pets", env="Pendulum-v1", n_envs=2, n_steps=32)

Every check is also a function with the same arguments, so that a report names the failed one:

    @pytest.mark.parametrize("check", rlox.testing.ALGORITHM_CHECKS)
    def test_pets_conforms(check):
        check("pets", env="Pendulum-v1", n_envs=2, n_steps=32)

A failed check raises AssertionError with its name and the expectation. One that does not apply
returns the reason as a text. Nothing here needs pytest or imports torch.
"""

# ruff: noqa: F403, F405  # every module lists its checks
from rlox_testing.actor_backends import *
from rlox_testing.algorithms import *
from rlox_testing.arrays import *
from rlox_testing.buffers import *
from rlox_testing.declarations import *
from rlox_testing.env_backends import *
from rlox_testing.in_ranks import *
from rlox_testing.known_envs import *
from rlox_testing.language import *
from rlox_testing.loggers import *
from rlox_testing.offline import *
from rlox_testing.restoring import *
from rlox_testing.sequence_buffers import *
from rlox_testing.team_envs import *
from rlox_testing.teams import *

__all__ = [
    "ACTOR_BACKEND_CHECKS",
    "ALGORITHM_CHECKS",
    "BUFFER_CHECKS",
    "ENV_BACKEND_CHECKS",
    "LANGUAGE_CHECKS",
    "MULTI_AGENT_CHECKS",
    "MULTI_AGENT_ENV_CHECKS",
    "OFFLINE_CHECKS",
    "SEQUENCE_BUFFER_CHECKS",
    "HintedEnv",
    "MaskedEnv",
    "MaskedTeam",
    "ReorderedEnv",
    "RewritingVecEnv",
    "ScriptedVecEnv",
    "check_actor_backend",
    "check_actor_state",
    "check_actor_unrolls",
    "check_algorithm",
    "check_buffer",
    "check_buffer_batches",
    "check_buffer_n_step",
    "check_buffer_priorities",
    "check_buffer_seeding",
    "check_buffer_segments",
    "check_buffer_state",
    "check_callbacks",
    "check_checkpoint",
    "check_config_documented",
    "check_config_round_trip",
    "check_env_autoreset",
    "check_env_backend",
    "check_env_seeding",
    "check_env_shapes",
    "check_env_state",
    "check_few_rows",
    "check_language_algorithm",
    "check_language_evaluation",
    "check_language_options",
    "check_language_resume",
    "check_language_seeding",
    "check_language_training",
    "check_logger",
    "check_masks",
    "check_memory",
    "check_multi_agent_algorithm",
    "check_multi_agent_env",
    "check_odd_numbers",
    "check_offline_algorithm",
    "check_offline_masks",
    "check_offline_options",
    "check_offline_predict",
    "check_offline_resume",
    "check_offline_seeding",
    "check_offline_training",
    "check_order",
    "check_predict",
    "check_resume",
    "check_rewritten_arrays",
    "check_seeding",
    "check_sequence_buffer",
    "check_sequence_buffer_batches",
    "check_sequence_buffer_seeding",
    "check_sequence_buffer_state",
    "check_sequence_buffer_updates",
    "check_spec",
    "check_team_env_seeding",
    "check_team_evaluation",
    "check_team_masks",
    "check_team_options",
    "check_team_resume",
    "check_team_rewritten_arrays",
    "check_team_rows",
    "check_team_seeding",
    "check_team_state",
    "check_team_training",
    "check_training",
    "check_unknown_option",
    "run_in_ranks",
]

__version__ = "2.0.0.dev0"
