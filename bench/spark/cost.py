"""What a Spark query costs: the JVM, the Python workers that live, and those that came and went meanwhile."""

import psutil


def cpu_seconds() -> float:
    """User and system time so far of this process and all below it, also of children that ended and were waited for.

    Spark's planners and daemons are such children, hence not the processes' own clocks; the kernel counts in ticks,
    mostly of 10 ms.
    """
    this = psutil.Process()
    total = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # it has ended since: its parent has waited for it, and has its time
        total += times.user + times.system + times.children_user + times.children_system
    return total
