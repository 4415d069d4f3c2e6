"""Registration: the welcome mail is enqueued in the transaction that creates the user."""
