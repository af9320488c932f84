"""Multi-agent reinforcement learning: envs of teams and what trains on them."""
