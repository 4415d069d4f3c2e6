"""Customers: kept in step with the CRM, written to every day, counted every week."""
