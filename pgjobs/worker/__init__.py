"""The worker: one file a role.

============  =====================================================================================================
process       puts the roles of one process together, starts and stops them
claimer       the claim loop, in the main thread: how many jobs to take, and how long to sleep
executor      threads that run handlers; one job is a straight line of steps with exactly one outcome
completer     records outcomes in batches, each under the lease of its claim
announcer     signals, so that a slow receiver delays nothing else
listener      wakes the claim loop; everything is right without it
keeper        the beat (heartbeat, reap), and retention
held          what this process holds: the one piece of state that the roles share
loop          how every loop meets errors: caught, logged once for each change of state, tried again
============  =====================================================================================================
"""
