"""Live notifications between coordinators and inside one: hints and events, never the truth."""
