"""The worker: one file a role.

============  =====================================================================================================
supervisor    the parent: forks worker processes, watches them, replaces them; no connection, no thread
undertaker    a short-lived process that ends what a dead worker held
child         what a supervisor knows of a process, and why one ended
board         the page of shared memory between a process and its supervisor
process       puts the roles of one worker process together, starts and stops them
claim_loop    the loop of the main thread: claim, hand on, sleep
claimer       how many jobs to take, and how long to sleep
executor      threads that run handlers; one job is a straight line of steps with exactly one outcome
aio           the event loop that runs ``async def`` handlers
running       the steps that both share
limiter       time limits, and cancelling what runs
completer     records outcomes in batches, each under the lease of its claim
announcer     signals, so that a slow receiver delays nothing else
listener      wakes the claim loop; everything is right without it
keeper        the beat (heartbeat, reap, expiry), and retention
held          what this process holds: the one piece of state that the roles share
hygiene       whatever a handler leaves behind must not meet the next job
loop          how every loop meets errors: caught, logged once for each change of state, tried again
============
"""
