"""Which test runs the blocks of the documentation that the tests of ``tests/docs`` do not run by themselves.

A block is named by how it opens, so that it may move from page to page. A name may stand for several blocks.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from support.doc_pages import README, ROOT, Block, blocks

# Languages that are run or parsed wherever they stand.
RUN = ("python", "bash")
PARSED = ("yaml", "json", "toml")

# Opening to the test that runs the block, or asserts that what it shows is what is printed.
CLAIMS: dict[str, str] = {
    # command-line.md
    "$ nemo-lens doctor": "tests/docs/test_page_consoles.py::test_doctor_prints_its_page",
    "$ nemo-lens demo --ranks 4 --slow-rank 1": "tests/docs/test_page_consoles.py::test_the_summary_of_the_guide",
    "#!/usr/bin/env bash": "tests/cli/test_emit_spans.py::test_the_launcher_of_the_guide",
    # distributed.md
    "# stages.py": "tests/torchrun/test_distributed_page.py::test_the_second_stage_links_to_the_first",
    # metrics.md
    "from opentelemetry.exporter.prometheus": (
        "tests/docs/test_page_consoles.py::test_the_prometheus_reader_of_the_guide"
    ),
    # slow-run.md and command-line.md
    "$ pip install 'nemo-lens-sdk[view]'": (
        "tests/timeline/test_slow_run_page.py::test_its_commands_lead_to_the_slow_rank"
    ),
    "$ nemo-lens timeline -o run.json.gz": "tests/docs/test_page_consoles.py::test_the_timeline_of_the_guide",
    "$ nemo-lens timeline --": "tests/timeline/test_slow_run_page.py::test_its_commands_lead_to_the_slow_rank",
    "$ NEMO_LENS_ENABLED=1 NEMO_LENS_EXPORTER=file PROFILE=profiles torchrun": (
        "tests/torchrun/test_example_profile.py::test_each_rank_has_a_profile_and_nothing_is_said"
    ),
    # testing.md
    "AssertionError: the span tree is not as expected": (
        "tests/sdk/test_pytest_plugin_docs.py::test_the_failure_looks_as_shown"
    ),
}

# All blocks of these languages in a page, claimed by the tests of one module.
PAGE_CLAIMS: dict[str, tuple[tuple[str, ...], str]] = {
    README: (("sh",), "tests/slurm/test_slurm_command_page.py::test_the_lines_of_the_readme"),
    "docs/command-line.md": (
        ("sh",),
        "tests/slurm/test_slurm_command_page.py::test_a_job_hands_on_its_attributes_and_submits_another",
    ),
    "docs/integrations/nccl.md": (
        ("py",),
        "tests/torchrun/test_torchrun_page.py::test_the_page_of_torch_distributed_sends_a_context_along",
    ),
    "docs/integrations/ray.md": (
        ("py",),
        "tests/ray_cluster/test_ray_page.py::test_rollouts_of_both_actors_are_children_of_the_step",
    ),
    "docs/observability/index.md": (
        ("sh", "text"),
        "tests/observability/test_collector_page.py::test_what_is_only_shown_names_what_there_is",
    ),
    "docs/reference/command-line.md": (("text",), "tests/sdk/test_reference_pages.py::test_the_pages_are_up_to_date"),
    "docs/scale.md": (("sh",), "tests/docs/test_scale.py::test_a_launcher_says_which_rank_records_what"),
    "docs/slurm.md": (("sh",), "tests/slurm/test_slurm_page.py::test_the_first_script_exports_every_rank"),
    "docs/torchrun.md": (
        ("sh",),
        "tests/torchrun/test_torchrun_page.py::test_the_first_commands_export_every_rank",
    ),
    "docs/troubleshooting.md": (
        ("text", "sh"),
        "tests/docs/test_symptoms.py::test_every_symptom_is_reproduced",
    ),
}

# Opening to why no test runs the block. Keep it small.
NOT_RUN: dict[str, str] = {
    "schedule = torch.profiler.schedule(": "a part of docs/examples/train_ddp.py, all of which tests/torchrun runs",
}

# A line that installs a wheel of ours from an index. Nothing is published that it could install.
INSTALLS = re.compile(r"^(?:\$ )?(?:\S*/)?pip install (?P<what>'?nemo-lens-(?:api|sdk|contrib)\S*?)$")


def claim_of(block: Block) -> str | None:
    """Return the test that claims a block, as its node id; None when no table names it."""
    languages, test = PAGE_CLAIMS.get(block.page, ((), ""))
    if block.language in languages:
        return test
    return next((test for opening, test in CLAIMS.items() if block.opening.startswith(opening)), None)


def reason_of(block: Block) -> str | None:
    """Return why no test runs a block; None when no table names it."""
    return next((reason for opening, reason in NOT_RUN.items() if block.opening.startswith(opening)), None)


def installs_only(block: Block) -> bool:
    """Return whether a block installs our wheels from an index and does nothing else."""
    lines = [line for line in block.text.splitlines() if line.strip()]
    return bool(lines) and all(INSTALLS.match(line) for line in lines)


def is_tabled(block: Block) -> bool:
    """Return whether a table says what becomes of a block."""
    return claim_of(block) is not None or reason_of(block) is not None or installs_only(block)


def shown_after(block: Block) -> Block | None:
    """Return the ``text`` block that shows what a block prints: the next one of the page, when no table names it."""
    if block.language not in RUN or is_tabled(block):
        return None
    following = blocks(block.page)
    at = following.index(block) + 1
    if at < len(following) and following[at].language == "text" and not is_tabled(following[at]):
        return following[at]
    return None


def how_accounted(block: Block) -> str | None:
    """Return what becomes of a block, in a word; None when nobody takes care of it."""
    if is_tabled(block):
        return claim_of(block) or reason_of(block) or "installs"
    if block.page == README and block.language in (*RUN, "text"):
        return "tests/readme"
    if block.language in RUN + PARSED:
        return "run" if block.language in RUN else "parsed"
    before = [each for each in blocks(block.page) if each.line < block.line]
    return "output" if before and shown_after(before[-1]) == block else None


def reads(test: str, block: Block) -> bool:
    """Return whether the module of a test that claims a block reads its page, or the example that the block shows."""
    module = (ROOT / test.partition("::")[0]).read_text(encoding="utf-8")
    examples = re.findall(r"\w+\.py", block.text)
    return any(name in module for name in (Path(block.page).name, "all_blocks(", "symptoms import", *examples))


@cache
def functions_of(module: str) -> frozenset[str]:
    """Return the names of the test functions of a module, methods included; none when there is no such module."""
    path = ROOT / module
    if not path.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
