from rlox_onpolicy.ppo import PPO as PPO
