from rlox_offline.fqe import FQE as FQE
