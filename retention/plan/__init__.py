"""The plan as a value: building, saving, explanation, estimates and forecasts."""
