"""Shapes at rest: the Arrow schemas and JSON Schemas of everything the engine stores."""
