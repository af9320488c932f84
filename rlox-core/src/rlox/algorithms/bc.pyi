from rlox_offline.bc import BC as BC
