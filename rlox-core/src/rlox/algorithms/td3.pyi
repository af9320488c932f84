from rlox_offpolicy.td3 import TD3 as TD3
