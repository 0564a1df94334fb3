"""The coordinator: four small loops around a store. Any number may run; none matters when it dies."""
