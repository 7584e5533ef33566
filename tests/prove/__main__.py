"""Proof by one command: as many schedules, injuries and hostile files as there is time for, as a table."""

from __future__ import annotations

import argparse
import sys
import time

from tests.faults.explorer.explore import run
from tests.faults.explorer.many import Tally, explore
from tests.faults.explorer.schedule import Schedule

SECTIONS = ("schedules",)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bin/prove", description=__doc__)
    parser.add_argument("--hours", type=float, metavar="H", help="stop after so long; without it, after --schedules")
    parser.add_argument("--schedules", type=int, metavar="N", help="run so many schedules (20,000)")
    parser.add_argument(
        "--seed", type=int, default=11, metavar="S", help="of the order, and of all chance (%(default)s)"
    )
    parser.add_argument("--processes", type=int, default=2, metavar="P", help="processes to use (%(default)s)")
    parser.add_argument("--replay", metavar="SCHEDULE", help="run one schedule and tell each call of a store")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="run only this; may be given again")
    options = parser.parse_args()
    if options.replay:
        return replay(options.replay)
    seconds = 1e9 if options.hours is None else options.hours * 3600
    schedules = options.schedules or (20_000 if options.hours is None else 10**9)
    rows = [("kind", "how many", "survived", "lost", "doubled", "otherwise wrong", "seed", "seconds")]
    wrong = 0
    if "schedules" in (options.only or SECTIONS):
        tally = schedules_of(schedules, options.seed, options.processes, seconds)
        wrong += len(tally.failures)
        for kind, name in (("preemptions", "schedules"), ("kills", "crash points"), ("errors", "errors of a store")):
            bad = tally.lost[kind], tally.doubled[kind], tally.other[kind]
            count = tally.kinds[kind]
            rows.append((name, *map(str, (count, count - sum(bad), *bad, options.seed, round(tally.seconds)))))
        for sort, failure in tally.failures.items():
            print(f"\n{tally.times[sort]} times: {failure}")
    print()
    for row in rows:
        print(f"| {' | '.join(row)} |")
        if row is rows[0]:
            print("|---" * len(row) + "|")
    return 1 if wrong else 0


def schedules_of(schedules: int, seed: int, processes: int, seconds: float) -> Tally:
    """Run schedules, and say now and then how far that is."""
    tally, told = Tally(), time.monotonic()
    for tally in explore(schedules, seed, processes=processes, seconds=seconds):
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"{tally.total} schedules, {len(tally.failures)} sorts of failures", file=sys.stderr, flush=True)
    return tally


def replay(text: str) -> int:
    """Run one schedule and tell all of it."""
    outcome = run(Schedule.parse(text))
    for place, (name, trace) in enumerate(zip(outcome.schedule.commands, outcome.traces, strict=True), 1):
        print(f"{place} {name}: {outcome.ended[place - 1]}")
        for number, (call, what) in enumerate(trace, 1):
            print(f"  {place}@{number} {call} {what}")
    for line in outcome.wrong or ("nothing is wrong",):
        print(line)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
