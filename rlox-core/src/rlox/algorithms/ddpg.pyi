from rlox_offpolicy.ddpg import DDPG as DDPG
