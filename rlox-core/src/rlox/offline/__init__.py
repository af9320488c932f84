"""The path under which the documents know the base of offline algorithms."""
