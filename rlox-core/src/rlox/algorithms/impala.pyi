from rlox_onpolicy.impala import IMPALA as IMPALA
