"""Fails as a plugin does whose own dependency is not installed."""

raise ModuleNotFoundError("No module named 'a_library_that_was_uninstalled'")
