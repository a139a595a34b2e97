"""The service under load and its soak as a section of docs/results.md, from results/serve.json."""

from __future__ import annotations

from typing import Any

NAMES = {
    "nothing": "doing nothing",
    "cfnade": "cfnade",
    "cfnade-one-by-one": "cfnade, one by one",
    "als": "`implicit` ALS",
    "als-together": "`implicit` ALS, together",
}


def serve_section(outcome: dict[str, Any]) -> str:
    """Tables and sentences."""
    lines = ["## The service under load", ""]
    if "load" in outcome:
        lines += _load(outcome["load"])
    if "soak" in outcome:
        lines += _soak(outcome["soak"])
    return "\n".join(lines)


def _load(runs: list[dict[str, Any]]) -> list[str]:
    found = {(run["kind"], run["workers"]): run for run in runs}
    ours, theirs = found["cfnade", 1], found["als", 1]
    at_200 = next(step for step in ours["steps"] if step["rate"] == 200)
    each = [f"{p99:.1f}" for p99 in at_200.get("p99_ms_of_rounds", [])]
    in_rounds = f", the middle of {len(each)} rounds ({', '.join(each)})" if each else ""
    lines = [
        "`make bench-serve`: `POST /v1/recommend` for the top 10, 17,348 items, 256 hidden units, "
        "50 neighbours, random weights, histories of 5 to 200 items. Requests come at random times "
        "from a second process on the same two cores, and latency counts from when a request was "
        "due. *Doing nothing* is the same service with a ready answer; `implicit` ALS is the same "
        "service with `recommend(..., recalculate_user=True)` of 256 factors. *Together* answers "
        "all that wait in one call, *one by one* does not.",
        "",
        f"One worker at 200 requests a second: p99 {at_200['p99_ms']:.1f} ms{in_rounds}. "
        "At its most it "
        f"answers {ours['most']['per_second']:,.0f} a second, "
        f"{ours['most']['per_second'] / theirs['most']['per_second']:.1f} times what the ALS "
        "service does"
        + (
            f" ({ours['most']['per_second'] / found['als-together', 1]['most']['per_second']:.1f} "
            "times if that answers together as well)."
            if ("als-together", 1) in found
            else "."
        )
        + " Processor time for a request at that load: "
        + ", ".join(
            f"{NAMES[run['kind']]} {run['most']['cpu_ms_per_request']:.2f} ms"
            for run in runs
            if run["workers"] == 1
        )
        + ".",
        "",
        "| service | workers | asked a second | answered a second | p50 ms | p95 ms | p99 ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        for step in [*run["steps"], run["most"]]:
            asked = step.get("rate", f"{step.get('connections')} connections, as fast as they can")
            figures = [f"{step[name]:.1f}" for name in ("p50_ms", "p95_ms", "p99_ms")]
            cells = [NAMES[run["kind"]], run["workers"], asked, f"{step['per_second']:,.0f}"]
            lines.append(f"| {' | '.join(map(str, [*cells, *figures]))} |")
    pair = found["cfnade", 2]["memory"]
    own = ", ".join(f"{worker['private_mb']:.0f}" for worker in pair)
    sees = ", ".join(f"{worker['rss_mb']:.0f}" for worker in pair)
    n_failed = sum(s["failed"] for run in runs for s in [*run["steps"], run["most"]])
    return [
        *lines,
        "",
        f"Memory: one worker {ours['memory'][0]['rss_mb']:.0f} MB in all; of two that share the "
        f"weights each has {own} MB to itself, of {sees} MB that it sees. Requests that failed: "
        f"{n_failed}.",
        "",
    ]


def _soak(soak: dict[str, Any]) -> list[str]:
    memory = soak["memory_of_the_worker_that_stayed"]
    return [
        f"**Soak** (`make bench-serve SOAK={soak['seconds']:.0f}`): two workers for "
        f"{soak['seconds'] / 60:.0f} minutes, {soak['models']} new models, one every 20 seconds, "
        f"{soak['damaged_models']} damaged ones between them, and one worker killed midway. Of "
        f"{soak['valid']:,} valid requests {soak['valid_answered']:,} were answered, "
        f"{soak['lost_on_the_killed_worker']} lost on connections of the killed worker and "
        f"{soak['lost_beyond']} beyond these; of {soak['bad']:,} bad ones "
        f"{soak['bad_answered_as_they_should']:,} got the error they should. Memory that the "
        f"worker which stayed has written: {memory['written_mb']['second_fifth']:.0f} MB in the "
        f"second fifth of the time, {memory['written_mb']['last_fifth']:.0f} MB in the last; all "
        f"it sees, {memory['rss_mb']['second_fifth']:.0f} and "
        f"{memory['rss_mb']['last_fifth']:.0f} MB.",
        "",
    ]
