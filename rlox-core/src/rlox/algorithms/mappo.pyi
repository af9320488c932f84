from rlox_marl.mappo import MAPPO as MAPPO
