"""``python -m pgjobs.sql``: print the script that installs the functions."""

from . import script

if __name__ == "__main__":
    print(script(), end="")
