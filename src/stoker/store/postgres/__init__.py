"""The shared store: one PostgreSQL database, any number of coordinators."""
