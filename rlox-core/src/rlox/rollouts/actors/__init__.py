"""Actors: who collects unrolls while a learner learns."""
