from rlox_offline.iql import IQL as IQL
