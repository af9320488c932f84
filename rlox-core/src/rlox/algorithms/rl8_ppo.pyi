from rlox_rl8.rl8_ppo import RL8PPO as RL8PPO
