"""What the host offers: files that are whole, synced and locked, and the platform's cores and memory."""
