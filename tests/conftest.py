"""Fixtures that tests of every altitude share."""
