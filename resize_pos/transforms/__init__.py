"""One module per kind of table; each is pure: arrays and a geometry in, an array out."""
