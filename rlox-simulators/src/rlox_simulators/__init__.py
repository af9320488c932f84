"""Env backends of other simulators for rlox: MuJoCo's tasks in batches, ALE's games, EnvPool."""

__version__ = "2.0.0.dev0"
