"""The domain API: handlers, their registry, and the ways to enqueue."""
