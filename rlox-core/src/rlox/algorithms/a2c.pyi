from rlox_onpolicy.a2c import A2C as A2C
