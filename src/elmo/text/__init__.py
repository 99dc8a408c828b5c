"""Text: files, tokenizers, sentences, characters, vocabularies, static word vectors."""
