"""Runs command lines that come as lines of JSON on stdin; one line of JSON for each on stdout.

A process of its own, so that a case that hangs or crashes it is seen as one, and is not the end of all others.
"""

import json
import os
import sys
import traceback
import warnings


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not be taken for a reply
    from click.testing import CliRunner

    from spatialpdvi.cli import main as command

    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        case = json.loads(line)
        os.chdir(case["folder"])
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            done = CliRunner().invoke(command, case["arguments"])
        crash = None
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            crash = "".join(traceback.format_exception(done.exception))
        replies.write(json.dumps({"code": done.exit_code, "output": done.output, "crash": crash}) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
