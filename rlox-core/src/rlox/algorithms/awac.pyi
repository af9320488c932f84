from rlox_offline.awac import AWAC as AWAC
