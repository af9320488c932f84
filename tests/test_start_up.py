"""Modules too slow to import before a first line or a native training."""

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


FIRST_LINES = """
import io, sys
import rlox.cli

class Screen(io.StringIO):
    def write(self, text):
        sys.exit(f"{text.strip()}: {sorted({'numpy', 'gymnasium', 'torch'} & set(sys.modules))}")

FILE = sys.executable
for words in ("train ppo --env CartPole-v1", "explain ppo", f"eval {FILE}", "doctor"):
    sys.argv[1:], sys.stdout = words.split(), Screen()
    try:
        rlox.cli.main()
    except SystemExit as end:
        print(end.code, file=sys.stderr)
"""


def test_commands_print_a_line_before_slow_imports():
    """The options of every env backend are read without gymnasium, which takes as long again."""
    result = subprocess.run(
        [sys.executable, "-c", FIRST_LINES], stderr=subprocess.PIPE, text=True, check=True
    )
    first = result.stderr.splitlines()
    for line, begin in zip(
        first, ("ppo on CartPole-v1", "ppo", "evaluating", "platform"), strict=True
    ):
        assert line.startswith(begin)
        assert line.endswith(": []")
