"""A synchronous context-free grammar of English and French.

Each rule makes both sides of a constituent at once, so that a sentence is born with its translation and with its gold
word alignment. Files, from the bottom up: tokens (words, links, elision), french and english (inflection), nouns,
modifiers and verbs (the lexicon), source (choices), then one class in a chain of files, each adding its rules:
noun_phrases, predicates, adjuncts, frames, nested, clauses; corpus writes the data sets.
"""

from __future__ import annotations

from nmt.data.grammar.corpus import generate_pair, write_grammar_corpus
from nmt.data.grammar.tokens import Pair, words

GRAMMAR_VERSION = 2
"""To be raised when the same configuration gives other sentences than before: cached corpora are then made anew."""

__all__ = ["GRAMMAR_VERSION", "Pair", "generate_pair", "words", "write_grammar_corpus"]
