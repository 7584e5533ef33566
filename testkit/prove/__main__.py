"""One command that runs as many schedules, injuries and hostile files as time allows, and prints a table."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from testkit.explorer.exhaust import PAIR_COLUMNS, exhaust_pairs
from testkit.explorer.explore import at_each_point, run
from testkit.explorer.families import family, mirrored, systematic
from testkit.explorer.former import NoFormer, beside_former, load_former
from testkit.explorer.judge import FORMER
from testkit.explorer.many import Order, Tally, explore
from testkit.explorer.phases import drawn, drawn_mirrors, drawn_stitches
from testkit.explorer.schedule import Schedule
from testkit.prove import replicas
from testkit.prove.flips import flip
from testkit.prove.hostile import attack
from testkit.prove.hostile_runs import attack_commands
from testkit.prove.injuries import injure
from testkit.prove.mutants import try_mutants
from testkit.prove.rules import RULES
from testkit.prove.servers import Tried, try_servers

SECTIONS = ("injuries", "flips", "hostile", "servers", "replicas", "versions", "mirrors", "stitches", "schedules")
ORDERS: dict[str, tuple[str, Order, Order]] = {
    "mirrors": ("copies, replicas, moves: ", drawn_mirrors, mirrored),
    "stitches": ("appends, joins, copies by events: ", drawn_stitches, drawn_stitches),
    "schedules": ("", drawn, systematic),
}
"""What is told of each, and the order of few schedules and of many: there are days of some one after the other."""
TOLD = 40
FEW = 100_000
"""Up to so many schedules are drawn from all phases; more are taken one phase after the other."""
PAGE = Path("docs/reliability.md")
BEGIN = "<!-- bin/prove writes the table between these two lines -->"
END = "<!-- end -->"
SORT = re.compile(r"(.+(?:: | in mid-)|(?=\w+ stopped, ))([^,]+?)( stopped, .+|)")
"""A kind of a sort whose kinds differ in the middle alone: `disk full: export`, `export stopped, wakes late`."""
Row = tuple[str, ...]


def main() -> int:
    options = read_options()
    if options.replay:
        return replay(options.replay)
    if options.family:
        return try_families(options.family)
    if options.mutants:
        return prove_rules(options.mutant, options.processes)
    if options.exhaust:
        return prove_pairs(options.pair, options.processes, 1e9 if options.hours is None else options.hours * 3600)
    return prove_all(options)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/prove", description=__doc__)
    parser.add_argument("--hours", type=float, metavar="H", help="stop after so long; without it, after --schedules")
    parser.add_argument("--schedules", type=int, metavar="N", help="run so many schedules (20,000)")
    parser.add_argument(
        "--seed", type=int, default=11, metavar="S", help="of the order, and of all chance (%(default)s)"
    )
    parser.add_argument("--injuries", type=int, default=1_000, metavar="N", help="injure so often (%(default)s)")
    parser.add_argument("--flips", type=int, default=2_000, metavar="N", help="of table files (%(default)s)")
    parser.add_argument(
        "--hostile",
        type=int,
        default=10_000,
        metavar="N",
        help="attack so often, a tenth of it by commands for each kind of input (%(default)s)",
    )
    parser.add_argument("--versions", type=int, default=2_000, metavar="N", help="of two releases (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each kind on servers (%(default)s)")
    parser.add_argument("--kind", default="", metavar="TEXT", help="of replicas: only kinds with this in their name")
    parser.add_argument("--writing", type=float, default=20, metavar="S", help="seconds of writing (%(default)s)")
    parser.add_argument("--kills", type=int, default=2, metavar="N", help="kills of a replication (%(default)s)")
    parser.add_argument("--rate", type=float, default=2000, metavar="N", help="events per second (%(default)s)")
    parser.add_argument("--processes", type=int, default=2, metavar="P", help="processes to use (%(default)s)")
    parser.add_argument("--replay", metavar="SCHEDULE", help="run one schedule and tell each call of a store")
    parser.add_argument("--family", metavar="TEXT", action="append", help="run a family of schedules, as tests name it")
    parser.add_argument("--mutants", action="store_true", help="take each rule of the design out; a test must notice")
    parser.add_argument("--mutant", metavar="TEXT", default="", help="of mutants: only those with this in their name")
    parser.add_argument(
        "--exhaust", action="store_true", help="two preemptions at all calls of pairs of verbs that write"
    )
    parser.add_argument("--pair", metavar="TEXT", default="", help="of --exhaust: only pairs with this in their name")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="run only this; may be given again")
    return parser.parse_args()


def prove_all(options: argparse.Namespace) -> int:
    """Run all sections, or those that were asked for, and print their table."""
    until = time.monotonic() + (1e9 if options.hours is None else options.hours * 3600)
    schedules = options.schedules or (20_000 if options.hours is None else 10**9)
    rows: list[Row] = [("kind", "how many", "survived", "lost", "doubled", "otherwise wrong", "seed", "seconds")]
    wrong: list[str] = []
    damages = {
        "injuries": (prove_injuries, options.injuries),
        "flips": (prove_flips, options.flips),
        "hostile": (prove_hostile, options.hostile),
    }
    for section in options.only or SECTIONS:
        if section in damages:
            prove, count = damages[section]
            found, failures = prove(count, options.seed)
        elif section == "versions":
            found, failures = prove_versions(options.versions, options.seed, options.processes)
        elif section in ORDERS:
            left = (until - time.monotonic()) / (1 if section == "schedules" else 2)
            found, failures = prove_schedules(schedules, options.seed, options.processes, left, section)
        elif section == "servers":
            found, failures = rows_of(try_servers(options.runs, options.seed, until - time.monotonic()), options.seed)
        else:
            course = replicas.Course(seconds=options.writing, kills=options.kills, rate=options.rate)
            kinds = {name: kind for name, kind in replicas.KINDS.items() if options.kind in name}
            tried = replicas.try_replicas(options.runs, options.seed, course, until - time.monotonic(), kinds)
            found, failures = rows_of(tried, options.seed)
        rows += found
        wrong += failures
    for line in wrong[:TOLD]:
        print(f"\n{line}")
    if len(wrong) > TOLD:
        print(f"\n… and {len(wrong) - TOLD} more")
    print("\n" + "\n".join(table_of(rows)))
    if options.write:
        begin, _, rest = PAGE.read_text().partition(f"{BEGIN}\n")
        PAGE.write_text(begin + "\n".join([BEGIN, *table_of(rows_of_page(rows)), END]) + rest.partition(END)[2])
    return 1 if wrong else 0


def table_of(rows: list[Row]) -> list[str]:
    """The lines of a Markdown table, the first row of which is the header."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---" * len(rows[0]) + "|")
    return lines


def rows_of_page(rows: list[Row]) -> list[Row]:
    """The table as the page has it: kinds of a sort in one row, all that went wrong in one column, and no seconds."""
    sorts: dict[Row, list[Row]] = {}
    for kind, *counts, seed, _ in rows[1:]:
        match = SORT.fullmatch(kind)
        before, one, after = match.groups("") if match else (kind, "", "")
        sorts.setdefault((before, after, seed), []).append((one, *counts))
    shown: list[Row] = [("kind", "how many", "lost, doubled or wrong", "seed")]
    for (before, after, seed), found in sorts.items():
        many = sum(int(row[1]) for row in found)
        wrong = sum(int(count) for row in found for count in row[3:])
        shown.append((before + ", ".join(row[0] for row in found) + after, f"{many:,}", f"{wrong:,}", seed))
    return shown


def prove_schedules(
    schedules: int, seed: int, processes: int, seconds: float, section: str
) -> tuple[list[Row], list[str]]:
    """The table's rows for the schedules of a section of `ORDERS`; and what went wrong."""
    of, few, many = ORDERS[section]
    tally = schedules_of(schedules, seed, processes, seconds, few if schedules <= FEW else many)
    rows = []
    for kind, name in (("preemptions", "schedules"), ("kills", "crash points"), ("errors", "errors of a store")):
        bad = tally.lost[kind], tally.doubled[kind], tally.other[kind]
        count = tally.kinds[kind]
        rows.append((of + name, *map(str, (count, count - sum(bad), *bad, seed, round(tally.seconds)))))
    return rows, [f"{tally.times[sort]} times: {failure}" for sort, failure in tally.failures.items()]


def prove_versions(count: int, seed: int, processes: int) -> tuple[list[Row], list[str]]:
    """The table's row for random schedules in which the former release runs beside this one."""
    try:
        load_former()
    except NoFormer as error:
        print(f"not tried: two releases: {error}", file=sys.stderr)
        return [], []
    tally = schedules_of(count, seed, processes, 1e9, beside_former)
    kinds = "preemptions", "kills", "errors"
    bad = [sum(found[kind] for kind in kinds) for found in (tally.lost, tally.doubled, tally.other)]
    row = (
        "two releases on one archive",
        *map(str, (tally.total, tally.total - sum(bad), *bad, seed, round(tally.seconds))),
    )
    return [row], [f"{tally.times[sort]} times: {failure}" for sort, failure in tally.failures.items()]


def prove_injuries(count: int, seed: int) -> tuple[list[Row], list[str]]:
    """The table's rows for injuries, by kind; lost are the undetected ones."""
    began = time.monotonic()
    found = injure(count, seed)
    seconds = round(time.monotonic() - began)
    rows = []
    for kind, many in found.kinds.items():
        missed = sum(f" {kind} " in line for line in found.missed)
        broken = sum(f" {kind} " in line for line in found.broken)
        rows.append((f"injuries: {kind}", *map(str, (many, many - missed - broken, missed, 0, broken, seed, seconds))))
    return rows, [*(f"not noticed: {line}" for line in found.missed), *found.broken]


def prove_flips(count: int, seed: int) -> tuple[list[Row], list[str]]:
    """The table's row for flips and cuts of table files; and errors other than the one of damage."""
    began = time.monotonic()
    found = flip(count, seed)
    bad = len(found.broken)
    seconds = round(time.monotonic() - began)
    print(f"{found.rejected} rejected, {found.crashes} ends of the decoding process", file=sys.stderr)
    return [("flips and cuts of table files", *map(str, (count, count - bad, 0, 0, bad, seed, seconds)))], found.broken


def prove_hostile(count: int, seed: int) -> tuple[list[Row], list[str]]:
    """The table's rows for hostile archives, and for commands on hostile input, by kind."""
    began = time.monotonic()
    found = attack(count, seed)
    seconds = round(time.monotonic() - began)
    wrong = [*found.broken, *(f"outside: {line}" for line in found.outside)]
    rows = []
    for kind, many in found.kinds.items():
        bad = sum(f" {kind}: " in line for line in wrong)
        rows.append((f"hostile: {kind}", *map(str, (many, many - bad, 0, 0, bad, seed, seconds))))
    began = time.monotonic()
    runs = attack_commands(count // 10, seed)
    seconds = round(time.monotonic() - began)
    for kind, many in runs.kinds.items():
        bad = len({line.partition(": ")[2].rpartition(": ")[0] for line in runs.broken if line.startswith(f"{kind}: ")})
        rows.append((f"hostile: commands, {kind}", *map(str, (many, many - bad, 0, 0, bad, seed, seconds))))
    print(
        f"of the commands, {dict(runs.refused)} refused; at most {runs.grown} MiB, {runs.seconds:.0f} s",
        file=sys.stderr,
    )
    return rows, wrong + runs.broken


def rows_of(found: Tried, seed: int) -> tuple[list[Row], list[str]]:
    """The table's rows for real servers; what could not be tested is reported on standard error."""
    rows = []
    for kind, many in found.kinds.items():
        bad = found.lost[kind], found.doubled[kind], found.other[kind]
        rows.append((kind, *map(str, (many, many - sum(bad), *bad, seed, found.seconds[kind]))))
    for kind, why in found.absent.items():
        print(f"not tried: {kind}: {why}", file=sys.stderr)
    if found.ended:
        print(f"commands that were disturbed ended with: {dict(found.ended)}", file=sys.stderr)
    return rows, found.failures


def schedules_of(schedules: int, seed: int, processes: int, seconds: float, order: Order) -> Tally:
    """Run schedules, and report the progress at intervals."""
    tally, told = Tally(), time.monotonic()
    for tally in explore(schedules, seed, processes=processes, seconds=seconds, order=order):
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"{tally.total} schedules, {len(tally.failures)} sorts of failures", file=sys.stderr, flush=True)
    return tally


def try_families(texts: list[str]) -> int:
    """Run all schedules of families, and print the first that goes wrong."""
    for text in texts:
        for schedule in at_each_point(*family(text)):
            outcome = run(schedule)
            if outcome.wrong:
                print(f"{schedule}\n  {outcome.wrong[0]}")
                return 1
    return 0


def prove_rules(name: str, processes: int) -> int:
    """Try the mutants with a text in their name, and print what became of each as a table."""
    print("| rule that is taken out | mutant | is | by | seconds |\n|---|---|---|---|---|", flush=True)
    bad = 0
    for verdict in try_mutants([one for one in RULES if name in one.name], processes):
        bad += verdict.how in {"survived", "undecided", "no place"}
        one = verdict.mutant
        print(f"| {one.rule} | {one.name} | {verdict.how} | {verdict.by} | {verdict.seconds:.0f} |", flush=True)
    return 1 if bad else 0


def prove_pairs(name: str, processes: int, seconds: float) -> int:
    """Exhaust the pairs of verbs with a text in their name, and print how many schedules there are as a table."""
    print(f"| {' | '.join(PAIR_COLUMNS)} |\n{'|---' * len(PAIR_COLUMNS)}|", flush=True)
    bad = 0
    for pair in exhaust_pairs(name, processes, seconds):
        bad += bool(pair.wrong or pair.left_out)
        print(f"| {' | '.join(map(str, pair.row))} |", flush=True)
        for line in pair.wrong[:3]:
            print(f"  {line}", file=sys.stderr)
    return 1 if bad else 0


def replay(text: str) -> int:
    """Run one schedule and print all of its calls."""
    if FORMER in text:
        load_former()
    outcome = run(Schedule.parse(text))
    for place, (name, trace) in enumerate(zip(outcome.schedule.commands, outcome.traces, strict=True), 1):
        print(f"{place} {name}: {outcome.ended[place - 1]}")
        for number, (call, what) in enumerate(trace, 1):
            print(f"  {place}@{number} {call} {', '.join(what.splitlines())}")
    for line in outcome.wrong or ("nothing is wrong",):
        print(line)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
