"""Models on disk: every published layout, its reader and its writer."""
