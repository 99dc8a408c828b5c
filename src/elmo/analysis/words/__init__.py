"""Similar words, neighbors in context, correlation with human judgments."""
