from rlox_marl.ippo import IPPO as IPPO
