"""Watchers look for what has happened since they last looked; each is a function (since, now), called by one worker at a time (``chores``)."""
