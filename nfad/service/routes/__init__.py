"""What the service does at each address; docs/service.md describes them all."""
