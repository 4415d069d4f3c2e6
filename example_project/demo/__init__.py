"""``manage.py demo``: the five flows, made to happen through the site's own views, and watched until they have ended.

`run` tells the story, `processes` starts and stops the worker and the site, `flows` makes things happen, `watching`
reads what became of them, `showing` prints it.
"""
