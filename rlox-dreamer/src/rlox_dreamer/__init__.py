"""DreamerV3: a world model, and an actor-critic that learns in it."""
