"""The protocol of env workers; ``workers_pb2.py`` is generated, see ``generate.py``."""
