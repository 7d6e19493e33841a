"""A child that starts and then never answers."""

import sys
import time

sys.stdout.write("ready\n")
sys.stdout.flush()
time.sleep(600)
