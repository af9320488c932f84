"""Policy server: actions over HTTP."""
