"""How the tables came to be, step by step; run at every start, so that an old database is a good one."""
