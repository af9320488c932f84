"""A fixture: an rlox plugin whose import fails."""
