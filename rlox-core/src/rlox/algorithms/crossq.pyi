from rlox_offpolicy.crossq import CrossQ as CrossQ
