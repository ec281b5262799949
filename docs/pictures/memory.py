#!/usr/bin/env python3
"""Draws docs/pictures/memory.svg: the bytes of GPT-2 124M over one training step, in three tiers.

The picture is the one that `sluice plan --report` draws: this script opens the report in headless
Chromium, takes the pictures of memory out of the page, and stacks them with one legend. The run is
the one under the picture in README.md.

usage: memory.py SLUICE [--browser CHROMIUM]
Needs the Python package playwright and a Chromium; leaves with 77 where one is missing.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

WIDTH = 900
TIERS = ("device", "host", "disk")
PLAN = ("plan --model gpt2 --precision bf16 --micro-batch 4 --seq 256 --accumulate 2 --policy nvme --nvme-params 1 "
        "--nvme-grads 1 --device-memory 500M --host-memory 300M --disk-space 4G --disk-dir").split()
STYLE = """text{fill:#16191d;font:12px "DejaVu Sans",Helvetica,Arial,sans-serif}.small{font-size:11px}
.title{font-size:14px;font-weight:bold}.axis{stroke:#c9ced6;fill:none}.grid{stroke:#e3e6eb}
.budget{stroke:#b3261e;stroke-width:1.5;stroke-dasharray:6 4;fill:none}
.peak{stroke:#16191d;stroke-width:1.25;stroke-dasharray:2 3}.area{stroke:#fff;stroke-width:.6}
.over-area{paint-order:stroke;stroke:#fff;stroke-width:3px}"""


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


def read_page(report, browser):
    """The pictures of memory (their SVG), and the colours that the page gives its kinds."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("no Python package playwright")
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": WIDTH + 32, "height": 900}, color_scheme="light")
        page.goto("file://" + report)
        pictures = page.eval_on_selector_all(
            "figure svg", "all => all.filter(s => s.getAttribute('aria-label').startsWith('Bytes by kind'))"
            ".map(s => [s.getAttribute('viewBox'), s.innerHTML])")
        colors = page.evaluate("Object.fromEntries([...document.styleSheets[0].cssRules[0].style]"
                               ".filter(n => n.startsWith('--')).map(n => [n, document.styleSheets[0].cssRules[0]"
                               ".style.getPropertyValue(n).trim()]))")
        chromium.close()
    return pictures, colors


def color_in(text, colors):
    return re.sub(r"var\((--[a-z0-9-]+)\)", lambda found: colors[found.group(1)], text)


def draw_legend(kinds, colors, y):
    parts, x = [], 66
    for kind in kinds:
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{colors["--" + kind]}"/>'
                     f'<text x="{x + 16}" y="{y}">{kind}</text>')
        x += 34 + 7 * len(kind)
    return "".join(parts)


def stack(pictures, colors):
    body, y, kinds = [], 50, []
    for tier, (box, inner) in zip(TIERS, pictures):
        height = float(box.split()[3])
        inner = re.sub(r'<line class="cursor"[^>]*>(</line>)?', "", inner)
        inner = re.sub(r'<line [^>]*class="cursor"[^>]*>(</line>)?', "", inner)
        kinds += [kind for kind in re.findall(r"var\(--([a-z0-9]+)\)", inner)
                  if kind not in kinds and kind not in ("forward", "recompute", "backward", "update")]
        body.append(f'<text class="title" x="4" y="{y}">{tier}</text>'
                    f'<g transform="translate(0 {y + 2})">{color_in(inner, colors)}</g>')
        y += int(height) + 26
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 10}" role="img" '
            f'aria-label="Bytes by kind in device, host and disk memory over one step of GPT-2 124M">'
            f'<style>{STYLE}</style><rect width="{WIDTH}" height="{y - 10}" fill="#fff"/>'
            f'{draw_legend(kinds, colors, 20)}{"".join(body)}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("--browser", default=shutil.which("chromium"))
    asked = parser.parse_args()
    if not asked.browser:
        skip("no chromium")
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "plan.html")
        subprocess.run([asked.sluice, *PLAN, folder, "--report", report], check=True, stdout=subprocess.DEVNULL)
        pictures, colors = read_page(report, asked.browser)
    if len(pictures) != len(TIERS):
        sys.exit(f"memory.py: the report has {len(pictures)} pictures of memory, not {len(TIERS)}")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "memory.svg"), "w") as file:
        file.write(stack(pictures, colors))


if __name__ == "__main__":
    main()
