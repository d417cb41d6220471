"""A journal's place, for source and sink alike: the store that it stands in, its identity, its JSON."""
