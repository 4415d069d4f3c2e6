"""Background jobs for Django in the PostgreSQL it already runs."""
