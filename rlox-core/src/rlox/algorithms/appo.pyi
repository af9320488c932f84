from rlox_onpolicy.appo import APPO as APPO
