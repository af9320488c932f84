from rlox_dreamer.dreamer import DreamerV3 as DreamerV3
