"""What owner, server and forks write to each other."""

import struct

MESSAGE = struct.Struct("<d")  # to the server: the hardest limit in seconds; descriptors come along
STATUS = struct.Struct("<i?d")  # of a fork: as waitpid gives it, whether it was killed because its time was over, seconds
READY, REFUSED = b"ready", b"refused "  # the server's first message
FRAME = struct.Struct("<cI")  # of a fork's result: a letter and the length of what follows
FAILED, MEMORY, JAIL_FAILED = 3, 4, 97  # exit codes of a fork
