"""Models by name: registry, downloads, archives, cache."""
