"""DreamerV3 for rlox: a world model, and an actor and a critic that learn in it."""
