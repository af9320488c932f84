"""Native trainings import no compiler of torch, algebra system, or games whose envs are in Rust."""

import subprocess
import sys

TRAININGS = """
import sys
import rlox

def assert_light(when):
    heavy = {"torch._dynamo", "torch._inductor", "sympy", "mpe2", "pygame"} & set(sys.modules)
    assert not heavy, f"{name} on {env}, {when}: {sorted(heavy)} imported"

ROLLOUTS = {"n_envs": 2, "n_steps": 128}
REPLAY = {"n_envs": 2, "learning_starts": 50, "batch_size": 16, "train_freq": 4,
          "gradient_steps": 1, "steps_per_iteration": 100}
for name, env, options in (
    ("ppo", "CartPole-v1", ROLLOUTS),
    ("dqn", "CartPole-v1", REPLAY),
    ("sac", "Pendulum-v1", REPLAY),
    ("mappo", "mpe2/simple_spread_v3", {"n_envs": 2, "n_steps": 50, "batch_size": 100}),
):
    algorithm = rlox.make(name, env=env, backend="native", **options)
    assert_light("made")
    algorithm.train(200)
    algorithm.evaluate(n_episodes=1)
    assert_light("trained and evaluated")
    algorithm.save(sys.argv[1])
    resumed = type(algorithm).from_checkpoint(sys.argv[1])
    resumed.train(400)
    assert_light("saved and resumed")
    assert resumed.clock.env_steps >= 400
print("light")
"""


def test_native_trainings_import_no_compiler(tmp_path):
    """Torch's compiler takes longer to import than a small training takes to run."""
    command = [sys.executable, "-c", TRAININGS, str(tmp_path / "checkpoint")]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert result.stdout == "light\n"
