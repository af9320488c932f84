from rlox_offpolicy.discrete_sac import DiscreteSAC as DiscreteSAC
