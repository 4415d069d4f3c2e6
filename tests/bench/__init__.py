"""What pgjobs takes and gives, measured: one command a figure, ``python -m tests.bench drain``.

Each figure is measured beside its reference, in the same run, on the same private server; a figure's module says what is
compared, and how. ``rig`` holds the server and the workers, ``results`` what a figure is, ``raw`` the limits in bare SQL,
``peers`` other queues; ``plot`` and ``report`` make the pictures and the page of the docs from the JSON of earlier runs.
"""
