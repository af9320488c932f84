from rlox_offpolicy.dqn import DQN as DQN
