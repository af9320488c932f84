"""Single runs from the command line."""
