"""An app with jobs: what the tests enqueue and run."""
