"""Dashboard: runs under way in the browser."""
