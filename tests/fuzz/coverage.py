#!/usr/bin/env python3
"""Lines of each reader that its kept inputs reach, by gcov.

usage: coverage.py BUILD_DIRECTORY [TARGET...]    exit 1: a reader is below LEAST percent

Every target is given its inputs, then the same with each request for memory refused once. Lines
that only the second reaches are counted apart: no input can reach them.
"""
import json
import pathlib
import subprocess
import sys

LEAST = 95.0


class AllBut(list):
    """Of a file every function but these, which write or describe and see no input."""


# Target: the files of its reader, each with the functions that belong to it (none: all of them).
READERS = {
    "safetensors": {"src/files/safetensors.c": []},
    "index": {"src/foreign/model_files.c": []},
    "model_config": {
        "src/foreign/weights.c": [
            "check_switches", "check_config", "read_config", "sl_weights_read_config",
            "sl_weights_format_config"
        ]
    },
    "manifest": {"src/checkpoint/manifest.c": []},
    "tokens": {"src/files/tokens.c": []},
    "megatron": {"src/files/megatron_index.c": []},
    "profile": {
        "src/machine/profile.c": [
            "name_machine", "read_profile", "sl_profile_load", "check_device", "sl_profile_check",
            "sl_profile_keep_disk"
        ]
    },
    "cluster": {"src/machine/cluster_file.c": []},
    "against": {"src/bench/against.c": []},
    "history_log": {"src/report/history_log.c": [], "src/report/series.c": []},
    "config": {
        "src/config/config.c": AllBut(["sl_config_cuda"]),
        "src/config/config_json.c": [],
        "src/foreign/deepspeed/config_file.c": [],
        "src/config/units.c": [
            "parse_front", "parse_unit", "sl_units_parse_count", "sl_units_parse_real",
            "sl_units_parse_size"
        ]
    },
    "restore": {"src/config/restore.c": []},
    "command_line": {"src/cli/options.c": AllBut(["sl_options_at", "find_row"])},
    "llmc_model": {"src/foreign/llmc_model.c": []},
    "torch": {
        "src/foreign/torch/pickle.c": [],
        "src/foreign/torch/zip.c": [],
        "src/foreign/torch/torch_file.c": []
    },
    "vocabulary": {
        "src/text/vocabulary_files.c": AllBut(["sl_vocabulary_save", "save_texts"]),
        "src/text/vocabulary_reader.c": [],
        "src/text/byte_map.c": AllBut(["sl_vocabulary_write_token"]),
        "src/text/tokenizer_json.c": [],
        "src/text/pattern_syntax.c": []
    },
    "documents": {"src/text/documents.c": []},
    "adapter": {
        "src/foreign/adapter.c": AllBut([
            "sl_adapter_find_layer", "sl_adapter_path", "has_all_blocks", "add_module",
            "list_modules", "sl_adapter_format_config"
        ])
    },
}


def run(build, target, *options):
    """Runs a target from a clean slate; returns {(file, line): reached} and the functions."""
    for counts in build.rglob("*.gcda"):
        counts.unlink()
    corpus = pathlib.Path("tests/fuzz/corpus") / target
    subprocess.run([build / "tests/fuzz" / f"replay_{target}", *options, corpus], check=True,
                   stderr=subprocess.DEVNULL)
    lines = {}
    for counts in build.rglob("*.gcda"):
        report = subprocess.run(["gcov", "--json-format", "--stdout", counts], check=True,
                                capture_output=True, text=True).stdout
        for record in json.loads(report.splitlines()[0])["files"]:
            for line in record["lines"]:
                key = record["file"], line["line_number"], line.get("function_name", "")
                lines[key] = lines.get(key, False) or line["count"] > 0
    return lines


def belongs(function, functions):
    if isinstance(functions, AllBut):
        return function not in functions
    return not functions or function in functions


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    failed = False
    known = sorted(path.stem for path in pathlib.Path("tests/fuzz/dictionaries").glob("*.dict"))
    for target in sys.argv[2:] or known:
        plain = run(build, target)
        # argp's help asserts that it gets memory
        refused = plain if target == "command_line" else run(build, target, "--refuse-memory")
        for source, functions in READERS[target].items():
            keys = [key for key in plain if key[0].endswith(source) and
                    belongs(key[2], functions)]
            apart = [key for key in keys if refused[key] and not plain[key]]
            missed = [key for key in keys if not refused[key]]
            counted = len(keys) - len(apart)
            percent = 100 * (counted - len(missed)) / counted
            failed |= percent < LEAST
            print(f"{target:<14} {percent:5.1f} % of {counted:3} lines of {source}, "
                  f"{len(apart)} more need refused memory")
            for _, line, function in sorted(missed, key=lambda key: key[1]):
                print(f"    {source}:{line} ({function})")
    return failed


sys.exit(main())
