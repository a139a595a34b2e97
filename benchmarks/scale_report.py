"""The section of docs/results.md on several machines, from benchmarks/scale.py."""

from __future__ import annotations

from typing import Any


def scale_section(outcome: dict[str, Any], users: dict[str, Any]) -> str:
    """Tables of both benchmarks."""
    service, spark, training = outcome["service"], outcome["spark"], outcome["training"]
    one, two = spark
    alone, together = training
    full = outcome["full_gradient"]
    lines = [
        "## Beyond one machine",
        "",
        f"`make bench-scale`: {service['n_users']:,} users of the simulated service, "
        f"{service['n_items']:,} items, {service['n_pairs']:,} pairs, on two cores; "
        "workers of one core, processes of one thread. Seconds without the start of Spark; "
        "peak memory of whole process trees, shared pages counted once.",
        "",
        "| Spark | one worker | two workers | speed-up |",
        "|---|---|---|---|",
        *(
            f"| {what} | {one[key]:.1f} s | {two[key]:.1f} s | {one[key] / two[key]:.2f} |"
            for what, key in (
                ("preparation", "prepare_seconds"),
                (f"top 10 of {one['n_users']:,} users", "score_seconds"),
            )
        ),
        *(
            f"| peak of {who}, {what} | {one[key][who]:.2f} GB | {two[key][who]:.2f} GB | |"
            for what, key in (("preparation", "prepare_peak_gb"), ("scoring", "score_peak_gb"))
            for who in ("driver", "executors")
        ),
        "",
        f"| training, batches of {outcome['batch_size']:,}, 256 units | one process "
        "| two processes | |",
        "|---|---|---|---|",
        f"| an update (median) | {alone['update_ms']:.0f} ms | {together['update_ms']:.0f} ms "
        f"| speed-up {alone['update_ms'] / together['update_ms']:.2f} |",
        f"| sent by each process per update | | {together['mb_per_update']:.1f} MB "
        f"| all gradients, as plain DDP: {full['mb']:.1f} MB, {full['ms']:.0f} ms |",
        f"| peak memory | {alone['peak_gb']:.2f} GB | {together['peak_gb']:.2f} GB | |",
        "",
        f"`python benchmarks/scale.py --users {users['service']['n_users']}`: "
        f"{users['service']['n_users']:,} simulated users, {users['service']['n_pairs']:,} pairs, "
        f"{users['service']['n_items']:,} items, {users['n_hidden']} units, on a master, two "
        "workers of one core and a driver: prepared in "
        f"{users['prepare_seconds'] / 60:.1f} minutes, top 10 of all users written in "
        f"{users['score_seconds'] / 60:.1f} minutes, "
        f"{users['scored']['n_recommendations']:,} rows. Peak memory of all processes together "
        f"{users['peak_gb']['total']:.2f} GB (driver {users['peak_gb']['driver']:.2f}, executors "
        f"{users['peak_gb']['executors']:.2f}). The machine was not idle.",
        "",
    ]
    return "\n".join(lines)
