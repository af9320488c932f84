"""NewAlgorithm for rlox."""
