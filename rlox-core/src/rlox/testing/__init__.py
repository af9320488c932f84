"""The conformance suite for algorithms, env backends, buffers and loggers.

Our own families pass it and a third party's plugin should, in one test:

    import rlox.testing

    def test_pets_conforms():
        rlox.testing.check_algorithm("pets", env="Pendulum-v1", n_envs=2, n_steps=32)

Every part is a function of its own with the same arguments, so that a report says which failed:

    @pytest.mark.parametrize("check", rlox.testing.ALGORITHM_CHECKS)
    def test_pets_conforms(check):
        check("pets", env="Pendulum-v1", n_envs=2, n_steps=32)

A check raises AssertionError, with its own name and what was expected. One that does not apply
returns the reason as a text. Nothing here needs pytest or imports torch.
"""

from rlox.testing.algorithms import ALGORITHM_CHECKS, check_algorithm, check_predict
from rlox.testing.buffers import (
    BUFFER_CHECKS,
    check_buffer,
    check_buffer_batches,
    check_buffer_n_step,
    check_buffer_priorities,
    check_buffer_seeding,
    check_buffer_segments,
    check_buffer_state,
)
from rlox.testing.declarations import (
    check_config_documented,
    check_config_round_trip,
    check_spec,
    check_unknown_option,
)
from rlox.testing.env_backends import (
    ENV_BACKEND_CHECKS,
    check_env_autoreset,
    check_env_backend,
    check_env_seeding,
    check_env_shapes,
    check_env_state,
)
from rlox.testing.loggers import check_logger
from rlox.testing.offline import (
    OFFLINE_CHECKS,
    check_offline_algorithm,
    check_offline_options,
    check_offline_predict,
    check_offline_resume,
    check_offline_seeding,
    check_offline_training,
)
from rlox.testing.restoring import check_checkpoint, check_resume
from rlox.testing.training import check_callbacks, check_seeding, check_training

__all__ = [
    "ALGORITHM_CHECKS",
    "BUFFER_CHECKS",
    "ENV_BACKEND_CHECKS",
    "OFFLINE_CHECKS",
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
    "check_logger",
    "check_offline_algorithm",
    "check_offline_options",
    "check_offline_predict",
    "check_offline_resume",
    "check_offline_seeding",
    "check_offline_training",
    "check_predict",
    "check_resume",
    "check_seeding",
    "check_spec",
    "check_training",
    "check_unknown_option",
]
