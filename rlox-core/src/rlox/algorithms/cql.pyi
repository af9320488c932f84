from rlox_offline.cql import CQL as CQL
