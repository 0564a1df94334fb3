"""Notifications between coordinators, and a cache of final jobs. Both may be lost; the store is authoritative."""
