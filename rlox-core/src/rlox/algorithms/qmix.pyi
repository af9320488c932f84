from rlox_marl.qmix import QMIX as QMIX
