"""The front page, and what all pages share."""
