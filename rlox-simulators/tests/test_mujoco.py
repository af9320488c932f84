"""MuJoCo's tasks in batches: gymnasium's bit by bit, exact resume, and tasks of one's own."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlox
from rlox import registry
from rlox.envs.make import choose_backend, make_vec_env
from rlox.errors import EnvError, MissingDependencyError
from rlox.testing import check_env_backend
from rlox_simulators.mujoco import TASKS, MujocoOptions, MujocoVecEnv, Simulations, unavailable

if unavailable():
    pytest.skip(unavailable(), allow_module_level=True)

ROUNDED_OTHERWISE = {"InvertedDoublePendulum-v5", "Reacher-v5"}
"""Tasks whose formulas NumPy rounds differently for arrays and for single numbers."""

OTHER_ARGUMENTS: dict[str, dict[str, Any]] = {
    "Ant-v5": {"main_body": 2, "include_cfrc_ext_in_observation": False, "frame_skip": 2,
               "healthy_z_range": (0.4, 0.9), "contact_force_range": (-0.5, 0.5)},
    "HalfCheetah-v5": {"exclude_current_positions_from_observation": False,
                       "forward_reward_weight": 2.0, "reset_noise_scale": 0.3},
    "Hopper-v5": {"terminate_when_unhealthy": False, "healthy_angle_range": (-0.1, 0.1)},
    "Humanoid-v5": {"include_cinert_in_observation": False, "contact_cost_weight": 1e-3,
                    "exclude_current_positions_from_observation": False},
    "HumanoidStandup-v5": {"include_cvel_in_observation": False, "impact_cost_range": (0, 0.1),
                           "include_qfrc_actuator_in_observation": False},
    "InvertedDoublePendulum-v5": {"healthy_reward": 3.0},
    "Pusher-v5": {"reward_near_weight": 2.0, "frame_skip": 3},
    "Reacher-v5": {"reward_dist_weight": 3.0, "reward_control_weight": 0.5},
    "Swimmer-v5": {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.1},
    "Walker2d-v5": {"healthy_z_range": (1.1, 1.4), "xml_file": "walker2d.xml"},
}  # fmt: skip

CASES = [*((env_id, {}) for env_id in TASKS), *OTHER_ARGUMENTS.items()]


def actions_of(env: MujocoVecEnv, n_steps: int, seed: int = 0) -> np.ndarray:
    """Return (n_steps, N, nu) random actions."""
    space = env.action_space
    drawn = np.random.default_rng(seed).uniform(space.low, space.high, (n_steps, env.n_envs,
                                                                        *space.shape))  # fmt: skip
    return drawn.astype(np.float32)


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Ant-v5"])
def test_the_backend_keeps_the_contract(env_id) -> None:
    """Shapes, seeding, resets in the step, and a saved state that goes on exactly."""
    check_env_backend("mujoco", env_id, n_steps=60)


def require_equal(env_id: str, kwargs: dict[str, Any], n_envs: int, n_steps: int) -> None:
    """Step the task's envs and gymnasium's alike, and compare all returned values."""
    pytest.importorskip("imageio")
    ours = make_vec_env(env_id, n_envs=n_envs, backend="mujoco", env_kwargs=kwargs)
    theirs = make_vec_env(env_id, n_envs=n_envs, backend="gymnasium", env_kwargs=kwargs)
    assert (ours.observation_space, ours.action_space) == (
        theirs.observation_space, theirs.action_space,
    )  # fmt: skip
    tolerance = 1e-12 if env_id in ROUNDED_OTHERWISE else 0.0
    np.testing.assert_allclose(ours.reset_all(7), theirs.reset_all(7), rtol=0, atol=tolerance)
    for actions in actions_of(ours, n_steps):
        got, expected = ours.step_all(actions), theirs.step_all(actions)
        for key in ("terminated", "truncated"):
            assert np.array_equal(got[key], expected[key]), key
        for key in ("obs", "final_obs", "rewards"):
            np.testing.assert_allclose(got[key], expected[key], rtol=0, atol=tolerance, err_msg=key)


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_tasks_are_gymnasiums(env_id, kwargs) -> None:
    """Spaces, resets, observations, rewards and ends, with default and other arguments."""
    require_equal(env_id, kwargs, n_envs=2, n_steps=50)


@pytest.mark.slow  # fifteen minutes in all
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_tasks_are_gymnasiums_over_whole_episodes(env_id, kwargs) -> None:
    """A hundred seeds and a thousand steps."""
    require_equal(env_id, kwargs, n_envs=100, n_steps=1_000)


def test_episodes_are_cut_at_gymnasiums_limit() -> None:
    """``final_obs`` belongs to the cut episode, ``obs`` to the new one."""
    env = make_vec_env("Reacher-v5", n_envs=2, backend="mujoco")
    env.reset_all(0)
    for t, actions in enumerate(actions_of(env, 50), start=1):
        step = env.step_all(actions)
        assert np.array_equal(step["truncated"], [t == 50] * 2)
    assert (step["final_obs"] != step["obs"]).any(axis=1).all()


def test_the_number_of_threads_changes_no_bit() -> None:
    """Envs depend on their seeds and actions alone."""
    played = []
    for threads in (1, 3):
        options = MujocoOptions(physics_threads=threads)
        env = registry.get_registry().get("rlox_env_backends", "mujoco").build(
            "Ant-v5", n_envs=5, env_kwargs=None, options=options
        )  # fmt: skip
        played.append([env.reset_all(1)] + [env.step_all(a)["obs"] for a in actions_of(env, 20)])
    assert all(map(np.array_equal, *played))


def test_every_argument_of_the_tasks_is_registered() -> None:
    """``backend="auto"`` accepts any of them, and leaves camera arguments to gymnasium."""
    spec = registry.get_registry().get("rlox_env_backends", "mujoco").spec
    assert set(spec.env_ids) == set(TASKS)
    assert set(spec.env_kwargs) == {f.name for task in TASKS.values() for f in fields(task)}
    chosen, _ = choose_backend("Ant-v5", env_kwargs={"ctrl_cost_weight": 0.1})
    assert chosen.spec.name == "mujoco"
    chosen, reason = choose_backend("Ant-v5", env_kwargs={"width": 64})
    assert chosen.spec.name == "gymnasium"
    assert "'mujoco' takes no env_kwargs ['width']" in reason


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"forward_reward_wieght": 1.0}, "no argument 'forward_reward_wieght'.*_weight"),
        ({"xml_file": "cheetah.xml"}, "xml_file 'cheetah.xml' does not exist"),
    ],
)
def test_wrong_arguments_are_named(kwargs, message) -> None:
    """Errors name the value and the valid ones."""
    with pytest.raises(EnvError, match=message):
        make_vec_env("HalfCheetah-v5", n_envs=2, backend="mujoco", env_kwargs=kwargs)


@pytest.mark.parametrize(
    ("installed", "reason"),
    [({}, "MuJoCo is not installed"), ({"mujoco": "3.3.2"}, "MuJoCo 3.3.2 has no batches")],
)
def test_without_batches_gymnasiums_env_is_taken(monkeypatch, installed, reason) -> None:
    """``auto`` gives the reason; choosing the backend by name raises with the remedy."""
    from rlox_simulators.mujoco import vec_env

    def version(name: str) -> str:
        if name not in installed:
            raise vec_env.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(vec_env, "version", version)
    chosen, why = choose_backend("Hopper-v5")
    assert chosen.spec.name == "gymnasium"
    assert reason in why
    with pytest.raises(MissingDependencyError, match=r'pip install "rlox-core\[mujoco\]"'):
        make_vec_env("Hopper-v5", backend="mujoco")


def test_forces_are_of_contacts_equalities_and_what_is_given(tmp_path) -> None:
    """Simulations: in the air and pulled, in the air, on the ground; then two bodies are tied."""
    import mujoco

    free = '<body name="{}" pos="{} 0 1"><freejoint/><geom size="0.1"/></body>'
    bodies = free.format("a", 0) + free.format("b", 1)
    ground = '<geom type="plane" size="9 9 1"/>'
    tie = '<equality><connect body1="a" body2="b" anchor="0.5 0 0"/></equality>'
    for equality in ("", tie):
        path = tmp_path / "model.xml"
        world = f"<worldbody>{ground}{bodies}</worldbody>"
        path.write_text(f"<mujoco>{world}{equality}</mujoco>", encoding="utf-8")
        for pulled in (False, True):
            simulations = Simulations(str(path), 3, 3, contact_forces=True, threads=1)
            simulations.qpos[2, 2] = 0.09
            simulations.qvel[:, 8] = 1.0  # against a tie
            if pulled:
                simulations.field("xfrc_applied")[0, 1, 2] = 5.0
            states = simulations.state.copy()
            simulations.step(np.zeros((3, 0)))
            expected, everything = [], mujoco.mjtState.mjSTATE_INTEGRATION
            for state in states:
                data = mujoco.MjData(simulations.model)
                mujoco.mj_setState(simulations.model, data, state, everything)
                mujoco.mj_step(simulations.model, data, nstep=3)
                mujoco.mj_rnePostConstraint(simulations.model, data)
                expected.append(data.cfrc_ext.copy())
            assert np.array_equal(simulations.cfrc_ext, expected)
            has_forces = simulations.cfrc_ext.any(axis=(1, 2))
            assert np.array_equal(has_forces, [pulled or equality == tie, equality == tie, True])


class Balance:
    """A task of one's own."""

    xml_file, frame_skip, contact_forces = "inverted_pendulum.xml", 2, False

    def observe(self, sims):
        """See positions, velocities and the pole's place."""
        return np.concatenate((sims.qpos, sims.qvel, sims.body("pole")), axis=1)

    def position(self, sims):
        """Measure the cart's velocity."""
        return sims.qpos[:, :1].copy()

    def reward(self, sims, actions, velocity):
        """Pay the cart's velocity."""
        return velocity[:, 0]

    def terminated(self, sims):
        """Never end."""
        return np.zeros(sims.n, np.bool_)

    def begin(self, rng, qpos, qvel):
        """Begin anywhere."""
        qpos += rng.uniform(-0.1, 0.1, len(qpos))


def test_a_task_of_ones_own() -> None:
    """Velocities are the positions' changes, the step limit is kept, and the state is complete."""
    env = MujocoVecEnv(Balance(), 2, max_episode_steps=9)
    before = env.reset_all(3)
    assert env.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (7,), np.float64)
    for t, actions in enumerate(actions_of(env, 12), start=1):
        step = env.step_all(actions)
        moved = (step["final_obs"][:, 0] - before[:, 0]) / 0.04
        np.testing.assert_array_equal(step["rewards"], moved)
        assert np.array_equal(step["truncated"], [t == 9] * 2)
        before = step["obs"]
    with pytest.raises(EnvError, match="state of MuJoCo's envs must have shapes"):
        MujocoVecEnv(Balance(), 3).set_state(env.state())


def test_ppo_resumes_exactly(tmp_path) -> None:
    """A run saved in the middle of episodes goes on as if it had not stopped."""
    pytest.importorskip("rlox_onpolicy")
    options = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0}
    with rlox.make("ppo", env="Walker2d-v5", env_backend="mujoco", **options) as straight:
        straight.train(64)
        straight.save(tmp_path / "ppo")
        straight.train(64)
        expected = straight.predict(np.zeros((1, 17)), deterministic=True)
    with type(straight).from_checkpoint(tmp_path / "ppo") as resumed:
        resumed.train(64)
        got = resumed.predict(np.zeros((1, 17)), deterministic=True)
    assert np.array_equal(got, expected)
