#!/usr/bin/env python3
"""Opens reports in headless Chromium, as a person would: desks, phone and paper, light and dark.

A report must make no script error and no request, its readouts must follow pointer and keys, no
page may be wider than its window, the numbers on it must be those of `plan --json`, and axe must
find no serious fault. --pictures DIR keeps what was seen, for people.

Needs the Python packages playwright and axe-selenium-python (for its axe.min.js) and a Chromium
(--browser, or `chromium` in PATH); leaves with 77 where one is missing.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
CASES = {
    "device": "plan --layers 4 --width 128 --heads 4 --context 128 --policy device",
    "host": "plan --layers 6 --width 192 --heads 4 --context 128 --accumulate 64 --policy host --device-memory 24M",
    "disk": "plan --layers 6 --width 192 --heads 4 --context 128 --policy nvme --nvme-params 1 --nvme-grads 1 "
    "--disk-dir /tmp --disk-space 1G --device-memory 24M --host-memory 24M",
    "over": "plan --layers 6 --width 192 --heads 4 --context 128 --policy device --device-memory 24M --host-memory 1G",
}
RUN = ("train --layers 2 --width 64 --heads 4 --context 64 --vocab 512 --document-per line --split 0.8,0.1,0.1 --steps 40 "
       "--eval-every 10 --eval-iters 1 --quiet")
VIEWS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "wide": {"viewport": {"width": 1920, "height": 1000}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True},
}


def skip(reason):
    print("skipped:", reason)
    sys.exit(SKIPPED)


def find_axe():
    try:
        import axe_selenium_python
    except ImportError:
        skip("no Python package axe-selenium-python")
    folder = os.path.dirname(axe_selenium_python.__file__)
    return os.path.join(folder, "node_modules", "axe-core", "axe.min.js")


def check(condition, words):
    if not condition:
        raise SystemExit("look_at_report: " + words)


def check_numbers(page, planned, name):
    data = json.loads(page.evaluate("document.getElementById('sluice-data').textContent"))
    check(planned is None or data["plan"] == planned, f"{name}: the plan is not that of --json")
    if "account" not in data:
        return
    for tier in data["account"]["memory"].values():
        check(sum(tier["kind_bytes"].values()) + tier["hole_bytes"] == tier["arena_bytes"],
              f"{name}: kinds and holes are not the arena")


def check_pictures(page, name):
    pictures = page.query_selector_all("svg[role=slider]")
    check(len(pictures) >= 4, f"{name}: {len(pictures)} pictures")
    for index, picture in enumerate(pictures):
        picture.focus()
        before = picture.get_attribute("aria-valuetext")
        for key in ("Home", "PageDown", "ArrowRight", "ArrowDown", "End", "ArrowUp"):
            page.keyboard.press(key)
        after = picture.get_attribute("aria-valuetext")
        check(before and after, f"{name}: picture {index} says nothing")
        box = picture.bounding_box()
        picture.hover(position={"x": box["width"] * 0.6, "y": box["height"] * 0.4})
        check(picture.get_attribute("aria-valuetext"), f"{name}: picture {index} is silent below a pointer")
    check(not page.query_selector("svg [d*=NaN], svg [x*=NaN], svg [width*=NaN]"), f"{name}: a number is none")


def check_axe(page, axe, name):
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    faults = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    for fault in faults:
        print(name, fault["impact"], fault["id"], fault["help"], fault["nodes"][0]["html"][:160])
    check(not faults, f"{name}: axe finds {len(faults)} serious faults")


def look(browser, path, planned, name, view, arguments):
    context = browser.new_context(bypass_csp=True, **VIEWS[view])
    page = context.new_page()
    errors, requests = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    page.goto("file://" + os.path.abspath(path))
    name = f"{name}, {view}"
    check(not errors, f"{name}: {errors}")
    check(len(requests) == 1, f"{name}: asks for {requests[1:]}")
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    check(wide <= 0, f"{name}: {wide} pixels too wide")
    check_numbers(page, planned, name)
    if arguments.pictures:
        target = os.path.join(arguments.pictures, name.replace(", ", "-"))
        page.screenshot(path=target + ".png", full_page=True)
        if view == "desktop":
            page.pdf(path=target + ".pdf", format="A4")
    check_pictures(page, name)
    check_axe(page, arguments.axe, name)
    check(not errors, f"{name}: {errors}")
    context.close()


def write_report(arguments, directory, name, command):
    path = os.path.join(directory, name + ".html")
    words = [arguments.sluice, *command.split(), "--json", "--report", path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode in (0, 69) and os.path.exists(path), f"{name}: {done.stderr}")
    return path, json.loads(done.stdout) if done.returncode == 0 else None


def write_runs(arguments, directory):
    """The page of a run that trained, and one that overlays two logs."""
    text = os.path.join(directory, "text")
    with open(text, "w", encoding="utf-8") as file:
        file.writelines(f"line {i} tells of {i * i % 97} boats and a lock\n" for i in range(4000))
    trained, overlaid = (os.path.join(directory, name) for name in ("trained.html", "overlaid.html"))
    logs = [os.path.join(directory, f"run{i}.jsonl") for i in range(2)]
    for log, rate in zip(logs, ("3e-4", "3e-3")):
        words = [arguments.sluice, *RUN.split(), "--data", text, "--lr", rate, "--log-json", log, "--report", trained]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        check(done.returncode == 0, f"training: {done.stderr}")
    done = subprocess.run([arguments.sluice, "report", *logs, "--output", overlaid], capture_output=True, text=True,
                          timeout=120, check=False)
    check(done.returncode == 0, f"report: {done.stderr}")
    return [("trained", trained, None), ("overlaid", overlaid, None)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sluice", help="the command, which writes the reports")
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("chromium-browser"))
    parser.add_argument("--pictures", help="a directory for screenshots")
    parser.add_argument("pages", nargs="*", help="reports that are there already, in place of --sluice")
    arguments = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("no Python package playwright")
    if not arguments.browser:
        skip("no Chromium")
    with open(find_axe(), encoding="utf-8") as file:
        arguments.axe = file.read()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        pages = [(os.path.splitext(os.path.basename(p))[0], p, None) for p in arguments.pages]
        for name, command in CASES.items() if arguments.sluice else ():
            pages.append((name, *write_report(arguments, directory, name, command)))
        pages += write_runs(arguments, directory) if arguments.sluice else []
        browser = playwright.chromium.launch(executable_path=arguments.browser, args=["--no-sandbox"])
        for name, path, planned in pages:
            for view in VIEWS:
                look(browser, path, planned, name, view, arguments)
                print(f"{name}, {view}: in order", flush=True)
        browser.close()
    print(f"{len(pages)} reports, {len(VIEWS)} views each: no script error, no request, no serious fault")


if __name__ == "__main__":
    main()
