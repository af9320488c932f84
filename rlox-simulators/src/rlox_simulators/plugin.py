"""Registers the env backends of ALE, EnvPool and MuJoCo with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import EnvBackendSpec, hookimpl


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Register ALE's games, EnvPool's envs and MuJoCo's tasks."""
    yield EnvBackendSpec(
        name="ale",
        summary="Atari games, preprocessed, on ALE's own threads (ale-py).",
        factory="rlox_simulators.atari:make_vec_env",
        env_prefixes=("ALE/",),
        options="rlox_simulators.options:AtariOptions",
        env_kwargs=(
            "continuous", "continuous_action_threshold", "frameskip", "full_action_space",
            "grayscale", "img_height", "img_width", "max_num_frames_per_episode", "maxpool",
            "noop_max", "repeat_action_probability", "stack_num", "use_fire_reset",
        ),
    )  # fmt: skip
    yield EnvBackendSpec(
        name="envpool",
        summary="Envs of EnvPool on its own threads; used only if named.",
        factory="rlox_simulators.pools:make_vec_env",
        options="rlox_simulators.options:PoolOptions",
        priority=-1,
    )
    yield EnvBackendSpec(
        name="mujoco",
        summary="gymnasium's MuJoCo tasks, stepped many at once on MuJoCo's own threads.",
        factory="rlox_simulators.mujoco:make_vec_env",
        unavailable="rlox_simulators.mujoco:unavailable",
        options="rlox_simulators.options:MujocoOptions",
        env_ids=(
            "Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5",
            "InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Pusher-v5", "Reacher-v5",
            "Swimmer-v5", "Walker2d-v5",
        ),
        env_kwargs=(
            "contact_cost_range", "contact_cost_weight", "contact_force_range",
            "ctrl_cost_weight", "exclude_current_positions_from_observation",
            "forward_reward_weight", "frame_skip", "healthy_angle_range", "healthy_reward",
            "healthy_state_range", "healthy_z_range", "impact_cost_range", "impact_cost_weight",
            "include_cfrc_ext_in_observation", "include_cinert_in_observation",
            "include_cvel_in_observation", "include_qfrc_actuator_in_observation", "main_body",
            "reset_noise_scale", "reward_control_weight", "reward_dist_weight",
            "reward_near_weight", "terminate_when_unhealthy", "uph_cost_weight", "xml_file",
        ),
    )  # fmt: skip
