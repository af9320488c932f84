from rlox_llm.best_of_n import BestOfN as BestOfN
