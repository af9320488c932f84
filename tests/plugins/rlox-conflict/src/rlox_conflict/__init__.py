"""A fixture: an rlox plugin that claims a name which rlox-reinforce has."""
