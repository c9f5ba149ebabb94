"""Erasure: what must be gone for good is removed everywhere, and the proof that nothing of it is left."""
