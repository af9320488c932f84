from rlox_marl.vdn import VDN as VDN
