"""Looking inside: similar words, senses in context, and how contextual the vectors are."""
