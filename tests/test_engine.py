"""Engine and Case of api.md: their lives, events, metrics, ticks and limits; and the tree of errors."""

import copy
import pickle
import re
import threading

import pytest
from steering import LIMIT, eventually, in_thread, run_script, settled

import shoal


def test_close_waits_for_its_sets(make_engine, steered):
    """`close(cancel=False)`: waits for the engine's sets."""
    engine = make_engine(workers=2)
    body = steered()
    instances = shoal.spawn(body, count=3, chunk=1, engine=engine)
    body.wait_begun(0, 1)
    closing = in_thread(engine.close)
    closing.join(0.05)
    assert closing.is_alive()
    body.release_all()
    closing.join_result()
    assert instances.gate.state == "fired"
    assert instances.result() == [0, 10, 20]


def test_close_with_cancel_cancels_its_sets(make_engine, steered):
    """`close(cancel=True)` cancels."""
    engine = make_engine(workers=1)
    body = steered()
    instances = shoal.spawn(body, count=3, chunk=1, engine=engine)
    body.wait_begun(0)
    closing = in_thread(lambda: engine.close(cancel=True))
    assert instances.wait(timeout=LIMIT) == "cancelled"
    body.release_all()
    closing.join_result()
    assert instances.counts == shoal.Counts(0, 0, 1, 0, 2, 0)


@pytest.mark.parametrize("cancel", [True, False])
def test_a_closed_engine_takes_nothing_more(make_engine, cancel):
    """Afterwards spawn raises `EngineClosed`; what was there can still be read."""
    engine = make_engine(workers=2)
    case = engine.case("before")
    before = case.spawn(abs, count=3)
    before.wait(timeout=LIMIT)
    engine.close(cancel=cancel)
    engine.close(cancel=cancel)
    with pytest.raises(shoal.EngineClosed):
        shoal.spawn(abs, count=3, engine=engine)
    with pytest.raises(shoal.EngineClosed):
        shoal.map(abs, [1], engine=engine)
    with pytest.raises(shoal.EngineClosed):
        case.spawn(abs, count=3)
    assert before.result() == [0, 1, 2]


def test_leaving_the_with_block_of_an_engine_closes_it(steered):
    """`Engine`: a context manager."""
    with shoal.Engine(workers=2) as engine:
        instances = shoal.spawn(abs, range(1000), engine=engine)
    assert instances.gate.state == "fired"
    with pytest.raises(shoal.EngineClosed):
        shoal.spawn(abs, count=3, engine=engine)


def test_leaving_the_with_block_of_an_engine_by_an_exception_cancels():
    """Leaving by an exception cancels."""
    begun = threading.Event()

    def body(index):
        begun.set()
        pause = threading.Event()
        while not shoal.current().cancelled:
            pause.wait(0.001)

    with pytest.raises(ZeroDivisionError), shoal.Engine(workers=1) as engine:  # noqa: PT012
        instances = shoal.spawn(body, count=3, chunk=1, engine=engine)
        assert begun.wait(LIMIT)
        raise ZeroDivisionError
    assert instances.gate.state == "cancelled"
    assert instances.counts.cancelled == 2


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, "2", 2**64], ids=repr)
def test_a_number_of_workers_that_is_none_is_refused(workers):
    """Messages name the value that was wrong, the bound it broke, and what to do."""
    with pytest.raises((ValueError, TypeError, OverflowError)):
        shoal.Engine(workers=workers)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_an_engine_has_as_many_workers_as_it_was_asked_for(make_engine, workers):
    """`Engine(*, workers=None)`: as many bodies at once as there are workers."""
    meet = threading.Barrier(workers)
    instances = shoal.spawn(lambda index: meet.wait(LIMIT), count=workers, chunk=1, engine=make_engine(workers=workers))
    assert instances.wait(timeout=LIMIT) == "fired"


def test_the_default_engine_is_one():
    """`default_engine()` serves the module-level calls."""
    engine = shoal.default_engine()
    assert isinstance(engine, shoal.Engine)
    before = engine.metrics()["sets"]
    assert shoal.map(abs, [-1]) == [1]
    assert shoal.default_engine().metrics()["sets"] == before + 1


def test_closing_the_default_engine_makes_room_for_a_fresh_one():
    """`default_engine()` serves the module-level calls."""
    with shoal.default_engine() as closed:
        case = closed.case()
        assert shoal.map(abs, [-1]) == [1]
    assert shoal.map(abs, [-1]) == [1]
    assert shoal.spawn(abs, [-1]).result(timeout=LIMIT) == [1]
    assert shoal.Gate(1).arrive()
    fresh = shoal.default_engine()
    assert fresh == shoal.default_engine()
    assert fresh != closed
    for call in (lambda: shoal.map(abs, [-1], engine=closed), lambda: case.spawn(abs, [-1]), lambda: closed.case()):
        with pytest.raises(shoal.EngineClosed):
            call()


def test_at_exit_no_engine_takes_the_place_of_the_default_one():
    """At exit workers are asked to stop."""
    done = run_script("""
        import atexit
        @atexit.register
        def last():
            for _ in range(2):
                try:
                    shoal.map(abs, [-1])
                except shoal.EngineClosed:
                    print("closed")
                shoal.default_engine().close()
        import shoal
        shoal.map(abs, [-1])
    """)
    assert done.stdout.split() == ["closed", "closed"]


def test_numbers_outside_their_bounds_are_refused_with_both_named(engine):
    """Messages name the value that was wrong, the bound it broke, and what to do."""
    gate = shoal.Gate(5, engine=engine)
    instances = shoal.spawn(abs, count=3, engine=engine)
    wrong = {
        "max_instances=-1 is outside 0 to 4294967295": lambda: shoal.Engine(limits=shoal.Limits(-1)),
        "max_instances=4294967296 is outside 0 to 4294967295": lambda: shoal.Engine(limits=shoal.Limits(2**32)),
        "max_case_instances=-1 is outside 0 to 2**64 - 1": lambda: shoal.Engine(limits=shoal.Limits(1, -1)),
        "retain=-1 is outside 0 to 4294967295": lambda: shoal.Engine(retain=-1),
        "workers=0 is outside 1 to 4096": lambda: shoal.Engine(workers=0),
        "since=-1 is outside 0 to 2**64 - 1": lambda: engine.events(-1),
        "n=-1 is outside 1 to 2**64 - 1": lambda: gate.arrive(-1),
        "n=0 is outside 1 to 2**64 - 1": lambda: gate.arrive(0),
        "target=-1 is outside 1 to 2**64 - 1": lambda: shoal.Gate(-1, engine=engine),
        "target=0 is outside 1 to 2**64 - 1": lambda: shoal.Gate(0, engine=engine),
        "3 instances are fewer than minimum=4294967296": lambda: shoal.spawn(
            abs, count=3, minimum=2**32, engine=engine
        ),
        f"no instance {2**63} in a set of 3": lambda: instances.status(2**63),
        "no instance -1 in a set of 3": lambda: instances.status(-1),
    }
    for words, call in wrong.items():
        with pytest.raises((ValueError, IndexError), match=re.escape(words)):
            call()
    assert len(shoal.spawn(abs, count=3, maximum=2**32, engine=engine)) == 3


def test_what_is_no_number_is_refused_where_one_is_meant(engine):
    """Messages name the value that was wrong, the bound it broke, and what to do."""
    gate = shoal.Gate(5, engine=engine)
    instances = shoal.spawn(abs, count=3, engine=engine)
    wrong = {
        "max_instances is an int, not True": lambda: shoal.Engine(limits=shoal.Limits(True)),
        "limits is shoal.Limits(max_instances=..., max_case_instances=...), not int": lambda: shoal.Engine(limits=5),
        "retain is an int, not None": lambda: shoal.Engine(retain=None),
        "since is an int, not True": lambda: engine.events(True),
        "n is an int, not True": lambda: gate.arrive(True),
        "n is an int, not None": lambda: gate.arrive(None),
        "target is an int, not True": lambda: shoal.Gate(True, engine=engine),
        "target is an int, not None": lambda: shoal.Gate(None, engine=engine),
        "index is an int, not True": lambda: instances.status(True),
    }
    for words, call in wrong.items():
        with pytest.raises(TypeError, match=re.escape(words)):
            call()
    for make in (shoal.at_least, shoal.tolerate):
        with pytest.raises(shoal.JoinError, match="fraction is a number between 0 and 1, not True"):
            make(fraction=True)
    assert gate.arrived == 0


@pytest.mark.parametrize(
    ("name", "words"), [("", "is empty"), ("\ud800", "has a lone surrogate")], ids=["empty", "surrogate"]
)
def test_names_and_ids_that_nobody_could_read_are_refused(engine, name, words):
    """Empty ids, lone surrogates and ids above 1 KiB are refused."""
    for call in (
        lambda: engine.case(name),
        lambda: shoal.Engine(name=name),
        lambda: shoal.Gate(1, name=name, engine=engine),
        lambda: shoal.spawn(abs, count=1, name=name, engine=engine),
        lambda: shoal.map(abs, count=1, name=name, engine=engine),
    ):
        with pytest.raises(ValueError, match=f"^(id|name).* {words}"):
            call()
    with pytest.raises(ValueError, match="id has 1026 bytes; a case's id has 1 to 1024"):
        engine.case("é" * 513)
    assert engine.case("é" * 512).id == "é" * 512


def test_what_can_be_no_id_is_not_among_the_cases(engine):
    """`cases[id]`."""
    engine.case("5")
    assert "5" in engine.cases
    for other in (5, None, (1, 2), "\ud800", b"5", []):
        assert other not in engine.cases
        with pytest.raises(KeyError) as caught:
            engine.cases[other]
        assert caught.value.args == (other,)


def test_engines_are_apart(make_engine):
    """`engine`: executor, cases, records and views in one process."""
    first, second = make_engine(workers=1), make_engine(workers=1)
    first.case("same")
    second.case("same")
    shoal.map(abs, range(5), engine=first)
    assert first.metrics()["instances"] == 5
    assert second.metrics()["instances"] == 0


def test_a_case_has_an_id_a_workflow_variables_and_its_sets(engine):
    """`Case`: `id, workflow, variables, state, scope, sets, spawn(...), cancel(), wait()`."""
    case = engine.case("order-42", workflow="orders", variables={"n": 3})
    assert (case.id, case.workflow, case.variables["n"]) == ("order-42", "orders", 3)
    assert list(case.sets) == []
    instances = case.spawn(abs, count=3)
    also = shoal.spawn(abs, [-1], case=case)
    assert [s.id for s in case.sets] == [instances.id, also.id]
    assert instances.case.id == also.case.id == "order-42"
    case.wait()
    assert (instances.gate.state, also.gate.state) == ("fired", "fired")
    assert engine.cases["order-42"].id == "order-42"


def test_a_case_without_an_id_gets_one(engine):
    """`case(id=None)`."""
    first, second = engine.case(), engine.case()
    assert isinstance(first.id, str)
    assert first.id
    assert first.id != second.id
    assert first.id in engine.cases


def test_an_id_in_use_raises(engine):
    """`case(id=None, *, workflow=None, variables=None)` (an id in use raises)."""
    engine.case("taken")
    with pytest.raises((shoal.ShoalError, ValueError, KeyError), match="taken"):
        engine.case("taken")


def test_an_unknown_case_is_a_keyerror(engine):
    """`cases[id]`."""
    with pytest.raises(KeyError):
        engine.cases["nobody"]
    assert "nobody" not in engine.cases


def test_case_wait_waits_for_all_its_sets(engine, steered):
    """`Case`: `wait()`."""
    body = steered()
    case = engine.case("waited")
    sets = [case.spawn(body, count=1, chunk=1), case.spawn(body, count=2, chunk=1)]
    waiting = in_thread(case.wait)
    waiting.join(0.05)
    assert waiting.is_alive()
    body.release_all()
    waiting.join_result()
    assert [s.gate.state for s in sets] == ["fired", "fired"]


def test_finished_sets_are_kept_the_newest_retain_of_them(make_engine):
    """Finished sets are kept for queries, the newest `retain` of them."""
    engine = make_engine(workers=2, retain=3)
    ids = []
    for _ in range(10):
        instances = shoal.spawn(abs, count=5, engine=engine)
        assert instances.wait(timeout=LIMIT) == "fired"
        instances.drain(timeout=LIMIT)
        ids.append(instances.id)
        del instances
    eventually(lambda: len(engine.sets) == 3, "going of the older sets")
    assert sorted(s.id for s in engine.sets) == sorted(ids[-3:])
    assert engine.sets[0].counts.completed == 5
    assert engine.metrics()["sets"] == 10


def test_live_sets_are_among_the_sets(make_engine, steered):
    """`sets`: live and retained finished."""
    engine = make_engine(workers=1, retain=1)
    body = steered()
    live = [shoal.spawn(body, count=1, engine=engine) for _ in range(4)]
    assert [s.id for s in engine.sets] == [s.id for s in live]
    assert all(isinstance(s, shoal.InstanceSet) for s in engine.sets)
    assert len({s.id for s in live}) == 4


def test_metrics_count_what_happened(engine, steered):
    """`metrics()`: sets, instances, completed, failed, cancelled, timed_out, running, workers, events, events_lost."""
    metrics = engine.metrics()
    assert set(metrics) >= {
        "sets",
        "instances",
        "completed",
        "failed",
        "cancelled",
        "timed_out",
        "running",
        "workers",
        "events",
        "events_lost",
    }
    assert metrics["workers"] == 4
    assert (metrics["sets"], metrics["instances"], metrics["running"]) == (0, 0, 0)
    body = steered()
    instances = shoal.spawn(body, count=6, chunk=1, on_failure="continue", engine=engine)
    body.wait_begun(0, 1, 2, 3)
    assert engine.metrics()["running"] == 4
    body.fail(0)
    body.wait_begun(4)
    settled(instances, 0)
    instances.cancel()
    body.release_all()
    instances.drain(timeout=LIMIT)
    metrics = engine.metrics()
    assert (metrics["sets"], metrics["instances"], metrics["running"]) == (1, 6, 0)
    assert (metrics["completed"], metrics["failed"], metrics["cancelled"], metrics["timed_out"]) == (4, 1, 1, 0)
    assert metrics["events"] >= len(engine.events()) > 0
    assert metrics["events_lost"] == 0


def test_metrics_outlive_the_sets(make_engine):
    """`metrics()` counts what was, not what is kept."""
    engine = make_engine(workers=2, retain=1)
    for _ in range(5):
        shoal.map(abs, range(10), engine=engine)
    assert engine.metrics()["completed"] == 50
    assert engine.metrics()["instances"] == 50


def test_events_are_ranges_that_cover_every_instance_once(engine):
    """Recorded as ranges: one event says "instances 4096..8192 of set 7 completed"."""

    def body(index):
        if index % 10 == 0:
            raise ValueError(index)

    instances = shoal.spawn(body, count=1000, on_failure="continue", engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    instances.drain(timeout=LIMIT)
    events = [e for e in engine.events() if e.set == instances.id]
    seen = {}
    for event in events:
        if event.kind in ("completed", "failed"):
            for index in range(event.start, event.stop):
                assert index not in seen
                seen[index] = str(event.kind)
    assert seen == {i: "failed" if i % 10 == 0 else "completed" for i in range(1000)}
    kinds = [str(e.kind) for e in events]
    assert kinds[0] == "created"
    assert kinds.count("created") == 1
    assert [kind for kind in kinds if kind.startswith("gate_")] == ["gate_fired"]
    created = events[0]
    assert (created.start, created.stop) == (0, 1000)


def test_events_are_in_order(engine):
    """The event record: `Event(seq, at, took, set, kind, start, stop, worker)`."""
    for _ in range(5):
        shoal.map(abs, range(100), engine=engine)
    events = engine.events()
    assert [e.seq for e in events] == sorted({e.seq for e in events})
    assert all(e.took >= 0 for e in events)
    assert {e.set for e in events} == {s.id for s in engine.sets}
    assert all(hasattr(e, "at") and hasattr(e, "worker") for e in events)


def test_open_sets_record_additions_and_the_seal(engine):
    """The event record: kind is created, added, sealed, completed, ..."""
    instances = shoal.spawn(abs, [1, 2], seal="manual", engine=engine)
    instances.add(3)
    instances.seal()
    assert instances.wait(timeout=LIMIT) == "fired"
    events = [e for e in engine.events() if e.set == instances.id]
    added = [(e.start, e.stop) for e in events if e.kind == "added"]
    assert (2, 3) in added
    assert sum(e.kind == "sealed" for e in events) == 1


def test_ticks_are_a_histogram_by_set_size_and_the_number_over_budget(engine):
    """`engine.ticks()` gives a histogram of ticks an instance for creation, spawn and whole life by set size, and
    the number of sets over budget.
    """
    for count in (1, 5, 10, 99, 100, 5000):
        shoal.spawn(shoal.kernels.noop, count=count, engine=engine).wait(timeout=LIMIT)
    eventually(lambda: sum(n for rows in engine.ticks().life.values() for _, n in rows) == 6, "counting of the lives")
    ticks = engine.ticks()
    assert ticks.unit in ("ticks", "ns")
    assert ticks.sets == 6
    assert ticks.budget > 0
    assert 0 <= ticks.over_budget <= 6
    for histogram in (ticks.creation, ticks.spawn, ticks.life):
        assert {size: sum(n for _, n in rows) for size, rows in histogram.items()} == {1: 2, 10: 2, 100: 1, 1000: 1}
        for rows in histogram.values():
            bounds = [bound for bound, _ in rows]
            assert bounds == sorted(set(bounds))
            assert all(n >= 0 for _, n in rows)


def test_many_threads_can_use_one_engine(engine):
    """Everything is right without the GIL by construction."""
    start = threading.Barrier(8)

    def use(n):
        start.wait(LIMIT)
        for _ in range(20):
            assert shoal.map(lambda x: x + n, range(100), engine=engine) == [x + n for x in range(100)]
            instances = shoal.spawn(abs, range(50), join=shoal.at_least(10), engine=engine)
            assert len(instances.result(timeout=LIMIT)) >= 10

    callers = [in_thread(lambda n=n: use(n)) for n in range(8)]
    for caller in callers:
        caller.join_result()
    eventually(lambda: engine.metrics()["running"] == 0)
    assert engine.metrics()["sets"] == 320


def test_a_callback_that_raises_harms_nothing(engine):
    """Observers are apart from the worker: a continuation that raises changes nothing that was decided."""
    told = threading.Event()

    def broken(which):
        told.set()
        raise ValueError("from a callback")

    instances = shoal.spawn(abs, count=3, engine=engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda unraisable: None)
        instances.on_decided(broken)
        assert told.wait(LIMIT)
        assert shoal.map(abs, range(100), engine=engine) == list(range(100))
        engine.close()
    assert instances.gate.state == "fired"


@pytest.mark.parametrize("name", ["InstanceSet", "Gate", "Engine", "Case"])
def test_the_classes_are_frozen(engine, name):
    """Classes of the binding are frozen."""
    case = engine.case("frozen")
    instances = case.spawn(abs, count=1)
    thing = {"InstanceSet": instances, "Gate": instances.gate, "Engine": engine, "Case": case}[name]
    assert isinstance(thing, getattr(shoal, name))
    for attribute in ("id", "state", "no_such_attribute"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(thing, attribute, 1)


ERRORS = ["CountError", "JoinError", "LimitError", "SealedError", "SetFailed", "SetCancelled", "SetTimedOut"]
ERRORS += ["EngineClosed", "ForkedEngine"]


@pytest.mark.parametrize("name", ERRORS)
def test_the_errors_are_one_tree(name):
    """`ShoalError` > `CountError(ValueError)`, `JoinError(ValueError)`, ..., `SetTimedOut(TimeoutError)`."""
    kind = getattr(shoal, name)
    assert issubclass(kind, shoal.ShoalError)
    assert issubclass(kind, ValueError) == (name in ("CountError", "JoinError"))
    assert issubclass(kind, TimeoutError) == (name == "SetTimedOut")
    assert kind.__module__ == "shoal"


def test_the_errors_pickle(make_engine):
    """They pickle."""
    engine = make_engine(workers=1, limits=shoal.Limits(max_instances=2))
    closed = shoal.Engine(workers=1)
    closed.close()
    sealed = shoal.spawn(abs, count=1, engine=engine)
    calls = {
        shoal.CountError: lambda: shoal.spawn(abs, count=0, engine=engine),
        shoal.JoinError: lambda: shoal.spawn(abs, count=1, join=shoal.at_least(2), engine=engine),
        shoal.LimitError: lambda: shoal.spawn(abs, count=3, engine=engine),
        shoal.SealedError: lambda: sealed.add(1),
        shoal.EngineClosed: lambda: shoal.spawn(abs, count=1, engine=closed),
    }
    for kind, call in calls.items():
        with pytest.raises(kind) as caught:
            call()
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is kind
        assert str(again) == str(caught.value)
        assert str(again)


PICKLED = [
    shoal.ForkedEngine("of the parent"),
    shoal.Cancelled("enough"),
    shoal.PanicError("panicked"),
    shoal.KernelError(3, 7),
    shoal.InstanceError("ValueError", "too late", "file.py:3"),
    shoal.SetTimedOut("set 1 is timed_out", shoal.Counts(0, 1, 2, 1, 0, 0), {1: ValueError("x")}, {0: 5}),
]


@pytest.mark.parametrize("error", PICKLED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_the_errors_that_no_call_raises_pickle_too(error, again):
    """They pickle."""
    other = again(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert str(other)
    assert repr(vars(other)) == repr(vars(error))
