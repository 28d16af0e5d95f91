#!/usr/bin/env python3
"""A training loop in Python: the session's device computes. Arguments: app.toml, then settings such as train.steps=100.
Start it alone, or as each rank of a job by `rtrun app.toml -- python3 loop.py app.toml`."""
import sys

import troupe

try:
    with troupe.Session(sys.argv[1], sys.argv[2:]) as session:
        for step, batch in enumerate(session.batches(), 1):
            sums = session.step()
            if step % 100 == 0 and session.rank == 0 and sums and sums.samples > 0:
                print(f"step {step}: loss {sums.loss / sums.samples:.4f}, images {batch['image'].shape}", flush=True)
    if session.rank == 0:
        print("test accuracy", session.summary()["epochs"][-1]["test_accuracy"])
except troupe.Error as error:
    sys.exit(print(error, file=sys.stderr) or error.code)
