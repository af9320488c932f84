from rlox_offpolicy.sac import SAC as SAC
