from rlox_offline.td3_bc import TD3BC as TD3BC
