from rlox_marl.independent_q import IndependentQ as IndependentQ
