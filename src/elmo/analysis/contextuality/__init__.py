"""How contextual vectors are."""
