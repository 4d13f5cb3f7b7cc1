"""The pages that ``docs/generate_reference.py`` writes, a module each: ``lines()`` are those of the page."""
