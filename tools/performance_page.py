"""The page of the measured figures, made from ``bench/results/h200.json`` and, for the headlines, ``h200-headline.json``."""

from __future__ import annotations

import pathlib

import performance_models

from dmlvk_bench import headline
from dmlvk_bench.results import ProblemRow, Results, read

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "bench/results"
RESULTS = FOLDER / "h200.json"
HEADLINE = FOLDER / "h200-headline.json"
TYPES = ("FLOAT32", "FLOAT16")
INTEGERS = tuple(
    (f"integer product with kept B depth {size} INT8 {size}x{size}", f"GEMM depth {size} FLOAT16 {size}x{size}", 1.2)
    for size in (4096, 8192)
)
"""A problem, another one of as many operations, and how many times as fast as that the first one is meant to be."""

_INTRODUCTION = """# Performance

Made from `bench/results/h200.json` when the site is built; `{command}` wrote the parts of that file.

{device}, driver {driver}, {date}; commit {commit}. Beside {rivals}, which stood beside products,
convolutions and models alone. Suites ran one after another and on several GPUs of this kind; shares and ratios are those
of a row's own run, and the file of results has the commit of each.

Rivals ran in the same process on the same numbers, and all outputs were compared with float32 results before a time
counted; random bits and coordinates, which cannot be, with what they should be. Times are the device's, between timestamps,
of up to 50 executions in one submission, the median after a warm-up until the clocks had settled. GB/s count one read of
each input and one write of each output, whatever was read twice; shares are of the copy bandwidth of the same run,
{copy:.0f} GB/s over 1 GiB, and in brackets, where it differs, of what the same copy kernel reaches over as many bytes as
the problem has: starting and draining a dispatch costs microseconds. What is below its target is bold.
"""

_TARGETS = """
`python -m dmlvk bench --headline --against torch` prints this table; this is that of `bench/results/h200-headline.json`:
driver {driver}, {date}; commit {commit}, later kernels than those of the tables below.
"""

_TARGET_NOTES = """
What missed, by the rungs of the ladder (`python -m dmlvk bench --suite ladder`) and by the driver's machine code
(`tools/machine_code.py`). **float16 products**: matrices from registers reach {registers:.0f} TFLOP/s in this run, from
shared memory {shared:.0f}, with barriers {barriers:.0f}, with tiles written there {written:.0f}, with loads from memory
{loads:.0f}, and our Gemm {gemm:.0f}. In a round a subgroup multiplies 96 times, for which it loads 24 times from shared
memory and stores 9 times, between two barriers; with all 255 registers taken there is one workgroup on a processor, and
nothing multiplies while a tile passes from registers to shared memory. Vulkan has no copy to shared memory that goes on
by itself, and no multiplication of four subgroups that reads its factors there; PyTorch's kernels are made of both. On
an H100 the driver's own tiles (VK_NV_cooperative_matrix2) reached 350, and factors that lie in memory as matrices have
them, which need no shared memory, 384 and 411, from which comes off what laying them out takes. Products of few rows,
of bytes, and convolutions miss with that rung, and so do those of bfloat16. **Sixteen rows** of float32 read their
weights at 0.83 to 0.88 of a copy, by tiles, and their multiply-adds alone take 44 % of the time; eight rows, whose weights
go straight to registers, read them as fast as a copy. With sixteen the sums leave too few registers for loads: 334 us at
best of 30 shapes, tiles 289 to 304. **float16 attention** with heads of 128
reaches 329 to 354 TFLOP/s, and 293 of 2048 causal rows, with the copies of keys and values to their cache in it. Of a
tile of 32 keys a subgroup with 32 rows multiplies 128 times, which is half of what it takes; it reads factors from shared
memory 44 times, makes 32 exponentials an invocation, which wait for one another, and meets the others at two barriers.
All 255 registers are taken, so a processor has two workgroups, and a scheduler two subgroups to choose from. With 96
elements exponentials weigh more (32 for 96 multiplications), and 1152 workgroups share 264 places. Of 512 causal rows
much is what tiles take beside their keys, and the copies. Of heads of 256 registers hold the sums of 16 rows a subgroup, for
which it reads all keys and values of a tile: half as many multiplications for what is read. What waits for counters
instead of barriers, makes a quarter or half of the exponentials of multiply-adds, or reads keys and values from memory
straight into matrices was no faster. PyTorch's eager calls for few rows, of 25 to 55 us here, hold their launches: what is
compared with those flatters us. **float32 attention** of 512 rows of 64 was at 1.006 in the run of 7b5c607d, and is at
0.995 in this; with heads of 128 it stands at 39 TFLOP/s, PyTorch's at 44. The same loop with nothing but its products, from
shared memory, reaches 43 to 45: of 2.03 ms with heads of 64, products alone took 1.59; leaving out the exponentials
saved 0.17, the loads 0.24, the barriers 0.06. The order of products that made our float32 Gemm faster (its products
alone 54, with factors from shared memory 52, whole 50) gains 3 % here. Two workgroups fill a processor's registers, and
longer code does not seem to fit its cache of instructions. **float32 products** whose second factor is transposed have
rounds of 16 terms, which reach 47 TFLOP/s where those of 8 reach 50: pieces of 8 terms of its lines took longer still.
**Dispatches** that wait for each other take {dependent:.2f} us each. A kernel that does nothing takes 1.11 us behind a
barrier on an H200, one that writes 1.66, and one that reads what the last one wrote 1.88; reading where buffers start,
and parameters in more than one line, cost 0.28 more until they were left out. A wait inside the dispatch was tried
instead of a barrier ([language models](language-models.md#how-fast) has what came of it). **Copies from and to the
host** depend on the machine's host, of which there were several.
"""

_CEILINGS = """
The machine's limits, measured in the same run: {figures}.

![Roofline: products and convolutions below the machine's limits](images/roofline.svg)
![PyTorch's time to ours, by family](images/ratios.svg)
![Share of the copy bandwidth, by family](images/copy-shares.svg)

`python -m dmlvk bench --html` makes a page of all this: [this H200's](bench-h200.html), and
[that of lavapipe on two cores](bench-lavapipe.html).
"""

_ARITHMETIC = """
TFLOP/s, or as many operations of integers, a multiply-add counted as two, and the share of what multiply-adds in
registers reach by the same means. PyTorch's float32 is float32 (no TF32), cuDNN takes the algorithm that it measures
to be the fastest, and attention the backend that is. Its times are those of eager calls, between events: of problems
of a few microseconds they hold its launches, as ours hold the barriers between repeats of a recorded list.
"""

_LAUNCHES = """
{count} problems, {missed} below a target.

One tiny dispatch, submitted and seen done from Python on a replayed list: {one:.1f} us; each further dependent one
{dependent:.2f} us, each independent one {independent:.2f} us.
"""

_NOTES = """
## What missed, and why

Of pointwise and moving operators: gelu and sin, accurate over their whole range, are bound by arithmetic in float32,
and so are bilinear enlargement and some rows side by side in float16; joined columns are a dispatch a piece, one
after the other; rows of 114 elements (padded images) have the end of a row in every 14th word of float16; of the 100
MB of the 3x3 poolings, of batch norm and of small copies in float16, starting and draining a dispatch takes 16 % from
a plain copy already; one-group norm reads its input twice, because a row of 16 MiB fits no workgroup. Scattering
single elements at random takes 1.2 to 1.8 times as long as PyTorch, which does not say which of several updates of
one place wins; dmlvk gives the last one, every time.

Of the gradients: enlarging by 2 and shrinking by half run at 0.92 of the copy's speed or more on large images, ADAM
too. Batch norm's training gradient reads its inputs twice where a channel fits no group of workgroups, so 0.6 is its
ceiling there, and 0.67 what waiting for each other's sums makes of it; of the poolings' gradients the maximum over
3x3 windows takes twice a copy's time and more, for its arithmetic, as far as we can tell, and float16 of 25 to 60 MB
starts and drains, as above.

Of the matrix kernels: float16 products reach 331 to 341 TFLOP/s through cooperative matrices, half of cuBLAS, which
has Hopper's asynchronous multiplications to itself; float16 convolution and attention stand at 0.4 to 0.9 x for the
same reason. float32 products were at 0.84 to 0.93 x, and are at 0.91 to 1.00 in the table of targets. 8 and 16 rows in
float32 read their weights at 62 to 77 % of the copy bandwidth. A float16 LSTM of 16 sequences takes 3.5 times as long as
cuDNN's, of 64 1.3 times: cuDNN keeps the recurrence matrix on the processors for all steps, and each of ours is a
dispatch, which takes 2 us of 5.5 to wait for the one before. PyTorch's figures are those of eager calls: where a
problem takes a few microseconds (most layers of one image, a product of 1024^3, BERT's attention) they hold its
launches, and the ratio flatters us.
"""

_CEILING_WORDS = {
    "copy_gb_per_s": ("copy", "GB/s"),
    "float32_tflop_per_s": ("float32", "TFLOP/s"),
    "float16_tflop_per_s": ("float16", "TFLOP/s"),
    "int8_top_per_s": ("8-bit dot products", "TOP/s"),
    "matrix_float16_tflop_per_s": ("float16 matrices", "TFLOP/s"),
    "matrix_int8_top_per_s": ("8-bit matrices", "TOP/s"),
    "upload_gb_per_s": ("host to device", "GB/s"),
    "download_gb_per_s": ("device to host", "GB/s"),
}


def _marked(text: str, missed: bool) -> str:
    """A figure, bold where it missed its target."""
    return f"**{text}**" if missed else text


def _goal(row: ProblemRow) -> str:
    parts = [f"{row.copy_target:.2f} of copy"] * bool(row.copy_target)
    parts += [f"{row.target:.2f} x"] * bool(row.target)
    return ", ".join(parts)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _other(row: ProblemRow) -> float | None:
    """The ratio to ONNX Runtime."""
    rival = row.rivals.get("onnxruntime")
    return rival.ratio if rival is not None and rival.agrees else None


def arithmetic(row: ProblemRow) -> bool:
    """Whether operations are what counts in a row, not bytes."""
    return bool(row.operations) and not row.copy_target


def _bytes_cells(results: Results, row: ProblemRow | None) -> str:
    """A row's cells: GB/s, share of the copy bandwidth, ratio to PyTorch."""
    if row is None:
        return "| | |"
    missed = results.missed(row)
    share = results.copy_share(row)
    words = _marked(f"{share:.2f}", missed)
    if abs(row.same_size_copy_share - share) >= 0.02:
        words += f" ({row.same_size_copy_share:.2f})"
    return f"{row.gb_per_s:.0f} | {words} | {_marked(_times(row.ratio), missed and row.ratio is not None)}"


def bytes_table(results: Results) -> list[str]:
    """A table of the rows in which bytes count, those that differ in FLOAT32 and FLOAT16 alone side by side."""
    found: dict[str, dict[str, ProblemRow]] = {}
    for row in results.problems:
        if arithmetic(row):
            continue
        words = row.problem.split(" ")
        kinds = [word for word in words if word in TYPES]
        # What changes the type names two, or another one: its figures stand in the first columns.
        single = len(kinds) == 1 and "cast" not in words and "quantize" not in row.problem
        kind = kinds[0] if single else TYPES[0]
        name = row.problem if len(kinds) != 1 or "cast" in words else " ".join(w for w in words if w not in TYPES)
        if kinds and kind == kinds[-1]:
            name = name.replace({TYPES[0]: "268435456", TYPES[1]: "536870912"}[kind], "1 GiB")
        found.setdefault(name, {})[kind] = row
    lines = [
        "| | float32 GB/s | of copy | x PyTorch | float16 GB/s | of copy | x PyTorch | target |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, kinds_of in found.items():
        cells = " | ".join(_bytes_cells(results, kinds_of.get(kind)) for kind in TYPES)
        lines.append(f"| {name} | {cells} | {_goal(next(iter(kinds_of.values())))} |")
    return lines


def arithmetic_table(results: Results) -> list[str]:
    """A table of the rows in which operations count, a line for each group, and one for each compared with ourselves."""
    rows = [row for row in results.problems if arithmetic(row)]
    lines = [
        "| | us | TFLOP/s | of limit | x PyTorch | x ONNX Runtime | target |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        missed = results.missed(row)
        speed = f"{_marked(f'{row.tflop_per_s:.3g}', missed)} | {row.share:.2f}"
        rivals = f"{_marked(_times(row.ratio), missed and row.ratio is not None)} | {_times(_other(row))}"
        lines.append(f"| {row.problem} | {row.us:.1f} | {speed} | {rivals} | {_goal(row)} |")
    for name, (count, mean, target) in results.group_means().items():
        shown = _marked(f"{mean:.2f}", mean < target)
        lines += ["", f"Geometric mean of the {count} {name}: {shown} x PyTorch; target {target:.2f} x."]
    speeds = {row.problem: row.tflop_per_s for row in rows}
    for name, other, target in INTEGERS:
        if name in speeds and other in speeds:
            ratio = speeds[name] / speeds[other]
            lines += ["", f"*{name}*: {_marked(f'{ratio:.2f}', ratio < target)} x our *{other}*; target {target:.2f} x."]
    return lines


def headlines() -> str:
    """The table of the project's targets, between what it is and what missed."""
    results = read(HEADLINE)
    own = results.machine
    words = _TARGETS.format(driver=own.driver, date=own.date[:10], commit=own.commit)
    rungs = ("registers", "shared memory", "and barriers", "and tiles written", "and from memory", "and the output: Gemm")
    names = ("registers", "shared", "barriers", "written", "loads", "gemm")
    figures = {name: results.ladder[rung] for name, rung in zip(names, rungs, strict=True)}
    notes = _TARGET_NOTES.format(**figures, dependent=results.launches["1000 dependent"] / 1000)
    return "\n".join([words, headline.markdown(headline.rows(results)), notes])


def page(results: Results) -> str:
    """The page."""
    machine, launches = results.machine, results.launches
    introduction = _INTRODUCTION.format(
        command="python -m dmlvk bench --against torch,onnxruntime --json bench/results/h200.json",
        device=machine.device,
        driver=machine.driver,
        date=machine.date[:10],
        commit=machine.commit,
        rivals=", ".join(f"{name} {version}" for name, version in results.rivals.items()),
        copy=results.ceilings.copy_gb_per_s,
    )
    limits = {name: getattr(results.ceilings, name) for name in _CEILING_WORDS}
    figures = ", ".join(
        f"{_CEILING_WORDS[name][0]} {value:.4g} {_CEILING_WORDS[name][1]}" for name, value in limits.items() if value
    )
    closing = _LAUNCHES.format(
        count=len(results.problems),
        missed=sum(map(results.missed, results.problems)),
        one=launches["1 dependent"],
        dependent=launches["1000 dependent"] / 1000,
        independent=launches["1000 independent"] / 1000,
    )
    lines = [introduction, "## The project's targets", headlines(), _CEILINGS.format(figures=figures)]
    lines += [
        "## Where bytes are what counts",
        "",
        *bytes_table(results),
        "",
        "## Where operations are what counts",
        _ARITHMETIC,
    ]
    lines += [*arithmetic_table(results), closing, _NOTES, *performance_models.section(results)]
    return "\n".join([*lines, ""])
