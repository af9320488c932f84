"""Multi-agent reinforcement learning: vector envs of several agents, normalised values."""
