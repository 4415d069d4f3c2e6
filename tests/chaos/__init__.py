"""The chaos test: ``python -m tests.chaos --minutes 5 --seed 7``.

Workers, enqueuers and an operator go about their business while a plan of troubles, made from the seed, kills, stops and
restarts them and their server. Afterwards a checker reads the history of what happened, and names each job whose history
breaks a promise.

* `plan`: which trouble comes when.  `troubles`: makes them happen, and notes from when to when they lasted.
* `fleet`: the supervisors and their processes.  `jobs`: the handlers.  `actors`: who enqueues, cancels, requeues, pauses.
* `journal`: what ran when, written by the handlers.  `moves`: what became of each row, written by a trigger.
* `history`: all of it as plain values.  `checker`, `overlaps`: the promises, read against a history; they know no more.
"""
