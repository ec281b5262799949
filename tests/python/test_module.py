"""What could be wrong in python/sluice: another struct than C's, a value that changes on its way,
an exception that is lost in C, a thread that waits for another for ever. Found by running the same
small models from Python and by the command, and comparing every bit.

The module is imported as it is installed, with the library and the command that lie in it."""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import sluice
from sluice._library import library_path

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = unittest.skipUnless(numpy, "numpy is not installed")

COMMAND = os.path.join(os.path.dirname(os.path.realpath(library_path)), "sluice")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEXT = os.path.join(ROOT, "LICENSE")
ROW_TOKENS = 65  # of a row: one more than "seq"


def tiny(**changes):
    """Options of a model of 36,000 parameters; None takes one away."""
    options = {
        "device": "cpu",
        "layers": 2,
        "width": 32,
        "heads": 2,
        "context": 64,
        "vocab": 257,
        "micro_batch": 2,
        "steps": 3,
        "threads": 1,
        "policy": "host",
        "device_memory": "16M",
        "host_memory": "16M",
    }
    options.update(changes)
    return options


def make_row(index):
    """The tokens of a row, from its number alone."""
    return [(31 * index + position * (position + index)) % 257 for position in range(ROW_TOKENS)]


def give_rows(first_row, row_count, token_count):
    assert token_count == ROW_TOKENS
    return [make_row(first_row + i) for i in range(row_count)]


def train(step_count, rows=give_rows, **changes):
    """Losses of a session with rows of its own."""
    with sluice.Session(tiny(**changes), rows=rows) as session:
        return [session.step().loss for _ in range(step_count)]


def run_command(command, options, *more):
    """What the command wrote to its standard output."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    words = [COMMAND, command, *words, *more]
    return subprocess.run(words, check=True, capture_output=True).stdout


def read_safetensors(path):
    """Shape and bytes of each tensor of a file."""
    with open(path, "rb") as file:
        (head_bytes,) = struct.unpack("<Q", file.read(8))
        head = json.loads(file.read(head_bytes))
        body = file.read()
    head.pop("__metadata__", None)
    return {
        name: (tuple(entry["shape"]), body[slice(*entry["data_offsets"])])
        for name, entry in head.items()
    }


def run_python(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)


class Beside(InFolder):
    """Python beside the command."""

    def train_by_command(self):
        log = self.path("log.jsonl")
        options = tiny(data=TEXT, save=self.path("command"), log_json=log)
        run_command("train", options)
        with open(log, encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        return [event for event in events if event["event"] == "step"]

    def test_step_when_trained_by_the_command_too_then_all_numbers_are_the_same_bits(self):
        events = self.train_by_command()
        with sluice.Session(tiny(data=TEXT)) as session:
            steps = [session.step() for _ in range(3)]
        self.assertEqual([step.loss for step in steps], [event["loss"] for event in events])
        for step, event in zip(steps, events):
            self.assertEqual(step.step, event["step"])
            self.assertEqual(step.tokens, event["tokens"])
            self.assertEqual(step.tokens_total, event["tokens_total"])
            self.assertAlmostEqual(step.grad_norm, event["grad_norm"], places=6)
            self.assertAlmostEqual(step.learning_rate, event["lr"], places=9)
            self.assertEqual(step.loss_scale, event["loss_scale"])
            self.assertEqual(step.peak_bytes.device, event["device_bytes"])
            self.assertEqual(step.peak_bytes.host, event["host_bytes"])
            self.assertEqual(step.moved_bytes.host_to_device, event["h2d_bytes"])
            self.assertEqual(step.moved_bytes.device_to_host, event["d2h_bytes"])
            self.assertEqual(step.moved_bytes.disk_read, 0)
            self.assertGreater(step.seconds, 0)
            self.assertIs(step.is_skipped, False)

    def test_save_when_trained_by_the_command_too_then_checkpoints_hold_the_same_tensors(self):
        self.train_by_command()
        with sluice.Session(tiny(data=TEXT, save=self.path("python"))) as session:
            for _ in range(3):
                session.step()
            session.save()
        for name in ("model", "moment1", "moment2"):
            saved = [
                read_safetensors(f"{self.folder}/{run}/step-00000003/{name}.safetensors")
                for run in ("command", "python")
            ]
            self.assertGreater(len(saved[0]), 20)
            self.assertEqual(saved[0], saved[1])

    @needs_numpy
    def test_read_when_the_command_saved_the_same_run_then_elements_are_those_of_its_files(self):
        self.train_by_command()
        files = {"parameter": "model", "moment1": "moment1", "moment2": "moment2"}
        with sluice.Session(tiny(data=TEXT)) as session:
            for _ in range(3):
                session.step()
            for state, file in files.items():
                saved = read_safetensors(f"{self.folder}/command/step-00000003/{file}.safetensors")
                self.assertEqual(len(saved), len(session.names()))
                for name in session.names():
                    elements = session.read(name, state)
                    self.assertEqual(elements.dtype, numpy.float32)
                    found = elements.shape, elements.tobytes()
                    self.assertEqual(found, saved["transformer." + name], (name, state))

    def test_account_when_planned_by_the_command_too_then_tiers_are_equal(self):
        options = tiny()
        del options["steps"]
        planned = run_command("plan", options, "--json")
        with sluice.Session(tiny(), rows=give_rows) as session:
            self.assertEqual(session.account["tiers"], json.loads(planned)["tiers"])
            planned = session.planned_bytes
            tiers = session.account["tiers"]
            self.assertEqual(planned.peaks, tuple(tier["peak_bytes"] for tier in tiers.values()))
            self.assertEqual(
                planned.kinds["activations"], tuple(tier["activation"] for tier in tiers.values())
            )
            self.assertEqual(sluice.plan_bytes(tiny()), planned)
            peak = session.step().peak_bytes
            self.assertEqual(peak.device, session.account["tiers"]["device"]["peak_bytes"])

    def test_generate_when_called_then_text_is_that_of_the_command(self):
        self.train_by_command()
        checkpoint = self.path("command")
        options = {"prompt": "The", "tokens": 20, "device": "cpu"}
        said = run_command("generate", options, "--quiet", checkpoint).decode("utf-8", "replace")
        pieces = []
        text = sluice.generate(checkpoint, "The", tokens=20, device="cpu")
        self.assertEqual(text + "\n", said)
        two = sluice.generate(
            checkpoint,
            "The",
            tokens=20,
            samples=2,
            seed=4,
            device="cpu",
            on_text=lambda sample, piece: pieces.append((sample, piece)),
        )
        for i in range(2):
            self.assertEqual("".join(piece for sample, piece in pieces if sample == i), two[i])
        self.assertNotEqual(two[0], two[1])

    def test_evaluate_when_called_then_figures_are_those_of_the_command(self):
        options = {"data": TEXT, "threads": 1, "device": "cpu"}
        self.train_by_command()
        checkpoint = self.path("command")
        figures = sluice.evaluate(checkpoint, [TEXT], threads=1, device="cpu")
        said = run_command("eval", options, "--json", checkpoint)
        self.assertEqual(figures, json.loads(said))
        with self.assertRaises(sluice.UsageError):
            sluice.evaluate(checkpoint, [])

    def test_profile_when_called_then_measured_peaks_are_the_planned_ones(self):
        figures = sluice.profile(tiny(), steps=2)
        self.assertEqual(figures["steps"], 2)
        for tier in figures["tiers"].values():
            self.assertEqual(tier["measured_peak_bytes"], tier["planned_peak_bytes"])

    def test_calls_when_on_ranks_then_each_has_the_results_of_one_process(self):
        self.train_by_command()
        script = (
            "import json, os, sys, sluice\n"
            "checkpoint, data, out = sys.argv[1:]\n"
            "rank = os.environ.get('SLUICE_RANK')\n"
            "more = {'device': 'cpu', 'threads': 1, **({'pp': 2} if rank else {})}\n"
            "figures = sluice.evaluate(checkpoint, data, **more)\n"
            "text = sluice.generate(checkpoint, 'The', tokens=20, seed=2, **more)\n"
            "with open(out + (rank or ''), 'w') as file:\n"
            "    json.dump([figures, text], file)\n"
        )
        words = [sys.executable, "-c", script, self.path("command"), TEXT, self.path("out")]
        subprocess.run(words, check=True)
        subprocess.run([COMMAND, "launch", "-n", "2", "--", *words], check=True)
        results = []
        for rank in ("", "0", "1"):
            with open(self.path("out") + rank) as file:
                results.append(json.load(file))
        self.assertEqual(results[1], results[0])
        self.assertEqual(results[2], results[0])

    def test_generate_when_a_session_is_open_then_text_is_that_of_its_checkpoint(self):
        with sluice.Session(tiny(save=self.path("own")), data=TEXT) as session:
            session.step()
            session.save()
            text = session.generate("The", tokens=20, seed=2, temperature=1.3)
            again = sluice.generate(
                self.path("own"), "The", tokens=20, seed=2, temperature=1.3, device="cpu", threads=1
            )
            self.assertEqual(text, again)
            with self.assertRaises(ZeroDivisionError):
                session.generate("The", tokens=5, on_text=lambda sample, piece: 1 / 0)
            with self.assertRaises(sluice.UsageError):
                session.generate("The", tokns=5)
            self.assertGreater(session.step().loss, 0)

    def test_generate_when_there_is_no_checkpoint_then_missing_is_raised(self):
        with self.assertRaises(sluice.MissingError) as caught:
            sluice.generate(self.path("nothing"), "The", device="cpu")
        self.assertIn("no such", str(caught.exception))


def build_mlp(model):
    """Two blocks without attention."""
    x = model.embed("bytes", ids=257, width=32)
    for i in range(2):
        with model.block("block", i):
            y = model.linear("up", model.norm("norm", x), 64)
            y = model.linear("down", model.gelu("gelu", y), 32, split="rows")
            x = model.drop_add("drop", y, x)
    model.head("bytes", model.norm("last", x))


def build_gemma(model):
    """A block of the layers that Gemma has beside those of Llama."""
    x = model.scale("scale", model.embed("embed", ids=257, width=32), 32**0.5)
    with model.block("layers", 0):
        y = model.rms_norm("norm", x, 1e-6, weight_offset=1)
        gate = model.linear("gate", y, 40, bias=False)
        y = model.geglu("inner", gate, model.linear("up", y, 40, bias=False))
        x = model.drop_add("drop", model.linear("down", y, 32, split="rows"), x)
    model.head("embed", model.rms_norm("last", x, 1e-6, weight_offset=1))


def build_llama(model):
    """Two blocks of the layers of Llama and Qwen."""
    x = model.embed("embed", ids=257, width=32, context=64)
    for i in range(2):
        with model.block("layers", i):
            y = model.rms_norm("norm", x, 1e-5)
            q, k, v = (
                model.linear(name, y, heads * 12, bias=False, column_heads=heads)
                for name, heads in (("q", 4), ("k", 2), ("v", 2))
            )
            q = model.rotary("q_rotary", model.rms_norm("q_norm", q, 1e-6, head=12), 4, 64, 1e4)
            k = model.rotary("k_rotary", k, 2, 64, 1e4)
            y = model.attend("attention", q, k, v, heads=4, kv_heads=2)
            y = model.linear("o", y, 32, split="rows", bias=False)
            x = model.drop_add("drop", y, x)
            y = model.rms_norm("inner_norm", x, 1e-5)
            gate = model.linear("gate", y, 40, bias=False)
            y = model.swiglu("inner", gate, model.linear("up", y, 40, bias=False))
            x = model.drop_add("inner_drop", model.linear("down", y, 32, split="rows"), x)
    model.head_untied("head", model.rms_norm("last", x, 1e-5), ids=257)


class OwnModels(InFolder):
    def options(self, **changes):
        sizes = dict.fromkeys(("layers", "width", "heads", "context", "vocab"))
        return {**tiny(**changes), **sizes, "seq": 64, "lr": 0.01}

    def test_build_when_of_layers_then_it_trains_alike_on_each_policy(self):
        losses = []
        for policy in ("device", "host"):
            options = self.options(policy=policy)
            with sluice.Session(options, rows=give_rows, build=build_mlp) as session:
                self.assertIn("block.1.up.weight", session.names())
                losses.append([session.step().loss for _ in range(3)])
        self.assertEqual(losses[0], losses[1])
        self.assertLess(losses[0][2], losses[0][0])

    def test_build_when_of_the_layers_of_llama_then_it_trains_alike_on_each_policy(self):
        losses = []
        for policy in ("device", "host"):
            options = self.options(policy=policy)
            with sluice.Session(options, rows=give_rows, build=build_llama) as session:
                shapes = {tensor.name: tensor.shape for tensor in session.tensors()}
                self.assertEqual(shapes["layers.1.k.weight"], (32, 24))
                self.assertEqual(shapes["layers.0.q_norm.weight"], (12,))
                self.assertNotIn("layers.0.q.bias", shapes)
                losses.append([session.step().loss for _ in range(12)])
        self.assertEqual(losses[0], losses[1])
        self.assertLess(losses[0][11], losses[0][0])

    @needs_numpy
    def test_build_when_of_the_layers_of_gemma_then_norms_begin_at_zero_and_it_trains(self):
        with sluice.Session(self.options(), rows=give_rows, build=build_gemma) as session:
            self.assertEqual(set(session.read("layers.0.norm.weight").flat), {0.0})
            losses = [session.step().loss for _ in range(16)]
        self.assertLess(losses[15], losses[0])

    def test_build_when_it_has_adapters_then_they_are_trained_alike_on_each_policy(self):
        for precision in ("fp32", "bf16"):
            losses = []
            for changes in ({"policy": "device"}, {"policy": "host"}, {"lr": 0.1}):
                options = self.options(
                    precision=precision, lora_rank=3, lora_targets="all-linear"
                )
                options.update(changes)
                with sluice.Session(options, rows=give_rows, build=build_mlp) as session:
                    shapes = {tensor.name: tensor.shape for tensor in session.tensors()}
                    self.assertEqual(shapes["block.1.up.lora_A.weight"], (32, 3))
                    self.assertEqual(shapes["block.0.down.lora_B.weight"], (3, 32))
                    losses.append([session.step().loss for _ in range(4)])
            self.assertEqual(losses[0], losses[1])
            self.assertNotEqual(losses[0][3], losses[2][3])
        with self.assertRaises(sluice.UsageError):
            sluice.Session(self.options(lora_rank=3), rows=give_rows, build=build_mlp)

    def test_rotary_when_of_an_unknown_scaling_then_value_error(self):
        def build(model):
            model.rotary("r", model.embed("e", ids=257, width=32), 4, 64, 1e4, scaling="other")

        with self.assertRaises(ValueError):
            sluice.Session(self.options(), rows=give_rows, build=build)

    def test_build_when_it_raises_then_the_exception_comes_back(self):
        def build(model):
            raise KeyError("not finished")

        with self.assertRaises(KeyError):
            sluice.Session(self.options(), rows=give_rows, build=build)

    def test_build_when_layers_do_not_fit_then_usage_is_raised(self):
        def build(model):
            x = model.embed("bytes", ids=257, width=32)
            model.head("bites", x)

        with self.assertRaises(sluice.UsageError):
            sluice.Session(self.options(), rows=give_rows, build=build)

    def test_plan_when_not_opened_then_it_is_the_account_of_the_session(self):
        planned = sluice.plan(self.options(), data=TEXT, build=build_mlp)
        with sluice.Session(self.options(), data=TEXT, build=build_mlp) as session:
            self.assertEqual(session.account["tiers"], planned["tiers"])
        with self.assertRaises(sluice.FitError):
            sluice.plan(tiny(device_memory="64K"), data=TEXT)


    def test_head_when_untied_then_it_has_a_table_of_its_own(self):
        def build(model):
            x = model.embed("bytes", ids=257, width=32)
            model.head_untied("classes", model.norm("last", x), ids=300)

        with sluice.Session(self.options(), rows=give_rows, build=build) as session:
            shapes = {tensor.name: tensor.shape for tensor in session.tensors()}
            self.assertEqual(shapes["classes.weight"], (300, 32))
            self.assertAlmostEqual(session.step().loss, math.log(300), delta=0.1)


class Events(InFolder):
    def test_events_when_heard_then_they_tell_of_the_call(self):
        events = []
        options = tiny(save=self.path("run"), eval_data=TEXT)
        with sluice.Session(options, data=TEXT, on_event=events.append) as session:
            step = session.step()
            self.assertEqual((events[-1].kind, events[-1].value), ("step", step.loss))
            loss = session.evaluate()
            self.assertEqual((events[-1].kind, events[-1].value), ("evaluation", loss))
            session.save()
        self.assertEqual([event.kind for event in events[-2:]], ["saving", "saved"])
        self.assertIn("in step", [event.kind for event in events])

    def test_train_when_called_then_all_that_is_due_happens(self):
        events = []
        options = tiny(save=self.path("run"), eval_data=TEXT, eval_iters=1, steps=4, eval_every=2)
        options.update(save_minutes=1e-9, keep_best=True, sample_every=4, sample_tokens=8)
        with sluice.Session(options, data=TEXT, on_event=events.append) as session:
            self.assertEqual(session.train(), "done")
        kinds = [event.kind for event in events]
        self.assertEqual((kinds.count("step"), kinds.count("evaluation")), (4, 2))
        texts = [event.text for event in events if event.kind == "sample"]
        self.assertEqual(len(texts), 1)
        self.assertGreater(len(texts[0]), 0)
        best = os.listdir(os.path.join(self.path("run"), "best"))
        self.assertEqual(len([name for name in best if name.startswith("step-")]), 1)
        steps = [name for name in os.listdir(self.path("run")) if name.startswith("step-")]
        self.assertEqual(len(steps), 4)

    def test_events_when_the_function_raises_then_the_call_does(self):
        with sluice.Session(tiny(), data=TEXT, on_event=lambda event: 1 / 0) as session:
            with self.assertRaises(ZeroDivisionError):
                session.step()


class Options(InFolder):
    def test_options_when_listed_then_each_is_explained(self):
        options = {option.name: option for option in sluice.list_options()}
        self.assertGreater(len(options), 60)
        self.assertTrue(options["data"].is_list)
        self.assertIn("nvme", options["policy"].values)

    def test_set_when_values_have_types_then_they_are_those_of_the_text(self):
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump({"seed": 7, "lr": 0.5}, file)
        options = tiny(**{"weight-decay": 0.25, "lr": 1e-5, "beta1": None, "freeze": ["h.0.*"]})
        given = [TEXT, __file__]
        with self.assertLogs("sluice"):  # what freezing random weights is good for
            session = sluice.Session(options, data=given, config=self.path("config.json"))
        with session:
            resolved = session.options
            frozen = [tensor.name for tensor in session.tensors() if not tensor.is_trained]
        self.assertEqual(resolved["data"], given)
        self.assertEqual(resolved["seed"], 7)
        self.assertEqual(resolved["lr"], 1e-5)
        self.assertEqual(resolved["weight_decay"], 0.25)
        self.assertTrue(frozen)
        self.assertTrue(all(name.startswith("h.0.") for name in frozen))

    def test_set_when_none_then_the_default_holds_over_the_file(self):
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump({"report": "page.html", "freeze": ["h.0.*"], "lr": 0.5, "beta1": 0.5}, file)
        options = tiny(config=self.path("config.json"))
        with self.assertRaisesRegex(sluice.UsageError, "report=None"):
            sluice.Session(options, rows=give_rows)
        with sluice.Session(options, rows=give_rows, report=None, freeze=None, lr=None) as session:
            resolved = session.options
        self.assertEqual((resolved["report"], resolved["freeze"]), (None, []))
        self.assertNotEqual(resolved["lr"], 0.5)
        self.assertEqual(resolved["beta1"], 0.5)

    def test_set_when_a_list_is_empty_then_no_item_is_left(self):
        with sluice.Session(tiny(freeze=[]), rows=give_rows) as session:
            self.assertEqual(session.options["freeze"], [])

    def test_set_when_the_name_is_unknown_then_usage_is_raised_with_the_nearest(self):
        with self.assertRaisesRegex(sluice.UsageError, "policy") as caught:
            sluice.Session(tiny(polcy="host"), rows=give_rows)
        self.assertEqual((caught.exception.status, caught.exception.exit_code), (-1, 64))

    def test_set_when_a_value_is_no_text_then_it_is_refused(self):
        for value, kind in (({}, TypeError), ("policy\0", ValueError), (b"host\0", ValueError)):
            with self.assertRaises(kind):
                sluice.Session(tiny(policy=value), rows=give_rows)

    def test_open_when_the_budget_is_too_small_then_fit_is_raised_with_one_that_fits(self):
        fitting = "this fits: --device-memory [0-9]+K"
        with self.assertRaisesRegex(sluice.FitError, fitting) as caught:
            sluice.Session(tiny(device_memory="100K"), rows=give_rows)
        self.assertEqual((caught.exception.status, caught.exception.exit_code), (-4, 69))

    def test_open_when_data_are_missing_then_missing_is_raised(self):
        with self.assertRaisesRegex(sluice.MissingError, "nothing"):
            sluice.Session(tiny(data=self.path("nothing")))


class Rows(InFolder):
    def test_step_when_a_run_is_resumed_then_losses_are_those_of_one_run(self):
        whole = train(4, steps=4)
        save = self.path("save")
        with sluice.Session(tiny(steps=4, save=save), rows=give_rows) as session:
            first = [session.step().loss for _ in range(2)]
            session.save()
        second = train(2, steps=4, save=save, resume=True)
        self.assertEqual(first + second, whole)

    @needs_numpy
    def test_step_when_rows_are_arrays_then_losses_are_those_of_lists(self):
        lists = train(3)
        for kind in (numpy.int32, numpy.int64, numpy.uint16):

            def give_arrays(*what, kind=kind):
                return numpy.asarray(give_rows(*what), kind)

            self.assertEqual(train(3, give_arrays), lists)

    def test_step_when_rows_fail_then_their_exception_comes_out_once(self):
        class Broken(Exception):
            pass

        broken = Broken("no more rows")

        def give_four(first_row, row_count, token_count):
            if first_row >= 4:
                raise broken
            return give_rows(first_row, row_count, token_count)

        with sluice.Session(tiny(), rows=give_four) as session:
            session.step()
            session.step()
            with self.assertRaises(Broken) as caught:
                session.step()
            self.assertIs(caught.exception, broken)
            with self.assertRaisesRegex(sluice.DataError, "failed before.*Broken: no more rows"):
                session.step()

    def test_step_when_rows_are_no_ids_then_it_fails(self):
        def give(value):
            return lambda first_row, row_count, token_count: value

        good = give_rows(0, 2, ROW_TOKENS)
        cases = [
            (good[:1], ValueError),
            ([row[:-1] for row in good], ValueError),
            ([[1.5] * ROW_TOKENS] * 2, TypeError),
            ([[2**40] * ROW_TOKENS] * 2, (ValueError, OverflowError)),
            ([[257] * ROW_TOKENS] * 2, sluice.DataError),
            ([[-1] * ROW_TOKENS] * 2, (ValueError, sluice.DataError)),
            (None, (TypeError, ValueError)),
        ]
        for value, kind in cases:
            with self.assertRaises(kind):
                train(1, give(value))

    def test_step_when_rows_call_their_session_then_they_are_refused(self):
        for call in (lambda: session.step(), lambda: session.close(), lambda: session.account):

            def call_back(first_row, row_count, token_count, call=call):
                call()

            with sluice.Session(tiny(), rows=call_back) as session:
                with self.assertRaisesRegex(sluice.UsageError, "must not"):
                    session.step()

    def test_evaluate_when_rows_are_those_of_a_step_then_the_loss_is_its_loss(self):
        with sluice.Session(
            tiny(micro_batch=4), rows=give_rows, eval_rows=give_rows, eval_row_count=4
        ) as session:
            loss = session.evaluate()
            # Sums of fp32 in another order: 256 losses near 5.5; an addition is off by 6e-8 of the sum
            # at most.
            self.assertAlmostEqual(loss, session.step().loss, delta=256 * 6e-8 * 5.6)

    def test_evaluate_when_its_rows_fail_then_their_exception_comes_out(self):
        def give_none(first_row, row_count, token_count):
            raise LookupError("no rows to evaluate")

        with sluice.Session(
            tiny(), rows=give_rows, eval_rows=give_none, eval_row_count=4
        ) as session:
            session.step()
            with self.assertRaisesRegex(LookupError, "no rows to evaluate"):
                session.evaluate()

    def test_evaluate_when_there_are_no_rows_then_usage_is_raised(self):
        with sluice.Session(tiny(), rows=give_rows) as session:
            with self.assertRaises(sluice.UsageError):
                session.evaluate()
            session.step()


@needs_numpy
class Tensors(unittest.TestCase):
    def test_write_when_read_again_then_all_bits_are_the_same(self):
        for policy in ("host", "device"):
            with sluice.Session(tiny(policy=policy), rows=give_rows) as session:
                session.step()
                for tensor in session.tensors():
                    for state in ("parameter", "moment1", "moment2"):
                        count = tensor.element_count
                        written = numpy.arange(count, dtype=numpy.float32).reshape(tensor.shape) / 7
                        session.write(tensor.name, written, state)
                        self.assertTrue((session.read(tensor.name, state) == written).all())

    def test_write_when_another_session_is_given_the_states_then_it_goes_on_alike(self):
        with sluice.Session(tiny(), rows=give_rows) as first:
            with sluice.Session(tiny(seed=5, policy="device"), rows=give_rows) as second:
                for name in first.names():
                    second.write(name, first.read(name))
                losses = [[session.step().loss for _ in range(3)] for session in (first, second)]
        self.assertEqual(*losses)

    def test_write_when_an_array_is_not_contiguous_then_its_elements_arrive(self):
        with sluice.Session(tiny(), rows=give_rows) as session:
            turned = numpy.arange(64 * 32, dtype=numpy.float64).reshape(32, 64).T
            session.write("wpe.weight", turned)
            self.assertTrue((session.read("wpe.weight") == turned).all())

    def test_view_when_stepped_then_shows_the_new_elements_and_cannot_be_written(self):
        for policy in ("host", "device"):
            with sluice.Session(tiny(policy=policy), rows=give_rows) as session:
                view = session.view("h.0.mlp.c_fc.weight")
                self.assertEqual(view.dtype, numpy.float32)
                for _ in range(3):  # a step waits for its updates, as read() does
                    before = view.copy()
                    session.step()
                    after = view.copy()
                    self.assertFalse((after == before).all())
                    self.assertTrue((after == session.read("h.0.mlp.c_fc.weight")).all())
                with self.assertRaises(ValueError):
                    view[0, 0] = 1
                with self.assertRaises(ValueError):
                    view.flags.writeable = True
                del view

    def test_view_when_frozen_in_half_precision_then_its_bits_are_widened(self):
        options = tiny(precision="bf16", freeze="h.0.*")
        with sluice.Session(options, rows=give_rows) as session:
            bits = session.view("h.0.mlp.c_fc.weight")
            self.assertEqual(bits.dtype, numpy.uint16)
            wide = sluice.widen_bf16(bits)
            self.assertEqual(wide.dtype, numpy.float32)
            self.assertTrue((wide == session.read("h.0.mlp.c_fc.weight")).all())
            del bits

    def test_close_when_a_view_is_in_use_then_it_is_refused_until_the_view_is_gone(self):
        session = sluice.Session(tiny(), rows=give_rows)
        part = session.view("ln_f.weight", "moment1")[3:]
        with self.assertRaisesRegex(sluice.UsageError, r"views of tensors are in use \(1\)"):
            session.close()
        session.step()
        self.assertTrue((part == session.read("ln_f.weight", "moment1")[3:]).all())
        del part
        session.close()

    def test_view_when_the_session_is_left_open_then_the_process_ends_well(self):
        done = run_python(
            "import sluice\n"
            f"session = sluice.Session({tiny()!r}, rows=lambda *what: [])\n"
            "view = session.view('ln_f.weight')\n"
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_view_when_the_tensor_is_not_in_one_piece_then_usage_is_raised(self):
        # Each panel of the table has a chunk, and one of these is not on the host.
        options = tiny(chunk_size=5000, policy="static", offload_params=0.9)
        with sluice.Session(options, rows=give_rows) as session:
            with self.assertRaisesRegex(sluice.UsageError, "several parts of memory"):
                session.view("wte.weight")

    def test_read_when_the_name_shape_or_state_is_wrong_then_usage_is_raised(self):
        with sluice.Session(tiny(), rows=give_rows) as session:
            for call in (
                lambda: session.read("wte"),
                lambda: session.read("wte.weight", "moment3"),
                lambda: session.write("wte.weight", numpy.zeros((32, 257))),
                lambda: session.write("ln_f.bias", numpy.zeros(31)),
            ):
                with self.assertRaises(sluice.UsageError):
                    call()


class Threads(unittest.TestCase):
    def test_step_when_two_sessions_run_at_once_then_losses_are_those_of_each_alone(self):
        policies = ("device", "host")
        alone = [train(20, policy=policy, steps=20) for policy in policies]
        self.assertEqual(*alone)
        together = {}

        def run(policy):
            together[policy] = train(20, policy=policy, steps=20)

        threads = [threading.Thread(target=run, args=(policy,)) for policy in policies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual([together[policy] for policy in policies], alone)

    def test_stop_when_called_from_another_thread_then_no_further_step_begins(self):
        has_stepped = threading.Event()
        ends = []
        session = sluice.Session(tiny(steps=10**9), rows=give_rows)

        def run():
            try:
                while True:
                    session.step()
                    has_stepped.set()
            except sluice.StoppedError as stopped:
                ends.append(stopped)

        thread = threading.Thread(target=run)
        thread.start()
        self.assertTrue(has_stepped.wait(60))
        session.stop()
        thread.join(60)
        self.assertFalse(thread.is_alive())
        self.assertEqual([(end.status, end.exit_code) for end in ends], [(-10, 0)])
        session.close()
        session.stop()

    def test_attributes_when_no_part_of_a_session_then_they_cannot_be_set(self):
        with sluice.Session(tiny(), rows=give_rows) as session:
            with self.assertRaisesRegex(AttributeError, "lr"):
                session.lr = 5

    def test_close_when_another_thread_steps_then_it_waits_for_the_step(self):
        is_asked = threading.Event()
        may_go_on = threading.Event()

        def give_late(*what):
            is_asked.set()
            may_go_on.wait(60)
            return give_rows(*what)

        session = sluice.Session(tiny(), rows=give_late)
        steps = []
        stepping = threading.Thread(target=lambda: steps.append(session.step()))
        closing = threading.Thread(target=session.close)
        stepping.start()
        self.assertTrue(is_asked.wait(60))
        closing.start()
        may_go_on.set()
        stepping.join(60)
        closing.join(60)
        self.assertEqual(len(steps), 1)
        with self.assertRaisesRegex(sluice.UsageError, "closed"):
            session.step()


class Process(InFolder):
    def test_log_when_the_library_warns_then_the_logger_has_the_line(self):
        with self.assertLogs("sluice", "WARNING") as logs:
            with sluice.Session(tiny(freeze=["h.0.*"]), rows=give_rows):
                pass
        self.assertEqual(len(logs.records), 1)
        self.assertIn("the frozen tensors keep random numbers", logs.records[0].getMessage())

    def test_import_when_there_is_no_library_then_it_says_where_to_put_it(self):
        done = run_python("import sluice", SLUICE_LIBRARY=self.path("libsluice.so"))
        self.assertIn("ImportError", done.stderr)
        self.assertIn("set SLUICE_LIBRARY", done.stderr)

    def test_exit_when_a_session_is_open_then_the_process_ends(self):
        done = run_python(
            "import sluice\n"
            "rows = lambda first_row, row_count, token_count: [[1] * token_count] * row_count\n"
            f"session = sluice.Session({tiny()!r}, rows=rows)\n"
            "session.step()\n"
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_notebook_when_run_then_it_learns(self):
        notebook = os.path.join(ROOT, "examples", "notebook.py")
        done = subprocess.run(
            [sys.executable, notebook, TEXT, "100"], capture_output=True, check=False, timeout=250
        )
        said = done.stdout.decode("utf-8", "replace")
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = [float(line.split()[3]) for line in said.splitlines() if line.startswith("step")]
        # ln 257 = 5.55 where nothing is known, 3.2 where the frequencies of English letters are.
        self.assertTrue(5 < losses[0] < 6, said)
        self.assertLess(losses[-1], 3.2)
        self.assertIn("MiB planned: param", said)
        self.assertIn("The ", said)

    def test_showcase_when_a_run_is_collected_then_page_and_notebook_show_it(self):
        """The scripts of the showcase and the code cells of the notebook, on a run of milliseconds.
        Figures go to a stand-in for matplotlib that prints what it is given."""
        options = {"layers": 2, "width": 32, "heads": 2, "context": 64, "threads": 1, "device": "cpu"}
        options.update({"steps": 4, "device-memory": "16M", "host-memory": "16M", "data": [TEXT]})
        options.update({"tokenizer": "byte", "document-per": "line", "split": "80,20,0"})
        options.update({"eval-every": 2, "eval-iters": 1})
        options.update({"sample-every": 2, "sample-prompt": "the", "sample-tokens": 4})
        options.update({"save": "model", "log-json": "tiny.jsonl", "report": "report.html"})
        with open(self.path("tiny.json"), "w", encoding="utf-8") as file:
            json.dump(options, file)
        with open(self.path("step0.txt"), "w", encoding="utf-8") as file:
            file.write("the beginning")
        showcase = os.path.join(ROOT, "examples", "showcase")
        subprocess.run([sys.executable, f"{showcase}/run.py", COMMAND], cwd=self.folder, check=True)
        os.mkdir(self.path("out"))
        subprocess.run(
            [sys.executable, f"{showcase}/collect.py", self.folder, self.path("out")], check=True
        )
        with open(self.path("out/README.md"), encoding="utf-8") as file:
            page = file.read()
        self.assertIn("| 4 steps, 1,024 tokens |", page)
        self.assertIn("Step 0:\n\n```text\nthe beginning\n```\n\nStep 2:\n\n```text\nthe", page)
        self.assertRegex(page, r"\n\| 2 \| \d\.\d{4} \| \d+\.\d\d \|\n\| 4 \| ")
        self.assertRegex(page, r"0:00:0\d \| 0:00:0\d \| exit code 0 \|")
        self.assertNotIn("The run goes on", page)
        os.mkdir(self.path("matplotlib"))
        with open(self.path("matplotlib/pyplot.py"), "w", encoding="utf-8") as file:
            file.write(
                "class Anything:\n"
                "    def plot(self, x, y, *more, **named):\n"
                "        print('plot', len(x), len(y))\n"
                "    def barh(self, names, sizes, **named):\n"
                "        print('barh', len(names), len(sizes), sum(sizes) > 0)\n"
                "    def __getattr__(self, name):\n"
                "        return lambda *more, **named: None\n"
                "def subplots(**named):\n"
                "    return Anything(), Anything()\n"
                "def show():\n"
                "    pass\n"
            )
        with open(os.path.join(ROOT, "examples", "showcase.ipynb"), encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        program = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        module = os.path.dirname(os.path.dirname(sluice.__file__))
        path = os.pathsep.join([self.folder, module])
        done = run_python(program, SLUICE_RUN=self.path("out"), PYTHONPATH=path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("4 steps in the log, the last one is 4; 2 evaluations, 2 texts", done.stdout)
        self.assertIn("plot 4 4\nplot 2 2\n", done.stdout)
        self.assertIn("barh 3 3 True", done.stdout)
        self.assertIn("--- step 2\nthe", done.stdout)
        for line in done.stdout.splitlines():
            if "planned again" in line:
                numbers = [int(word) for word in line.replace(",", "").split() if word.isdigit()]
                self.assertEqual(len(set(numbers)), 1, line)

    def test_version_when_asked_then_it_is_the_commands(self):
        said = subprocess.run([COMMAND, "--version"], capture_output=True, check=True)
        self.assertIn(f"sluice {sluice.__version__} (git {sluice.commit})", said.stdout.decode())


if __name__ == "__main__":
    unittest.main()
