"""Integrations, a module each. Importing this package imports none of them and none of what they integrate."""
