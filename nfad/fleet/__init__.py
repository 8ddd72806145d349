"""Many products, or one large set, over many workers: the same functions, spread by Ray."""
