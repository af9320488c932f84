"""Actors: collectors of unrolls that run while a learner learns."""
