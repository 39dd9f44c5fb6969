"""The sentences of semantics.md under "Instances"."""

import contextvars
import ctypes
import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from steering import LIMIT, eventually, in_thread, settled

import shoal


def test_an_instance_has_an_index_from_0_in_creation_order(engine):
    """An instance has an index from 0, in creation order."""

    def body(item):
        return shoal.current().index, item

    instances = shoal.spawn(body, ["a", "b"], seal="manual", engine=engine)
    instances.add("c", "d")
    instances.add("e")
    instances.seal()
    assert instances.result(timeout=LIMIT) == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]


def test_its_state_is_pending_running_or_one_of_the_terminal(held):
    """Its state is `pending`, `running`, or one of the terminal `completed`, `failed`, `cancelled`, `timed_out`."""
    assert {str(s) for s in shoal.InstanceState} == {
        "pending",
        "running",
        "completed",
        "failed",
        "cancelled",
        "timed_out",
    }
    body, instances = held(4, workers=2, on_failure="continue")
    body.wait_begun(0, 1)
    assert [instances.status(i) for i in range(4)] == ["running", "running", "pending", "pending"]
    assert isinstance(instances.status(0), shoal.InstanceState)
    body.release(0)
    body.fail(1)
    body.wait_begun(2, 3)
    settled(instances, 0, 1)
    assert [instances.status(i) for i in range(4)] == ["completed", "failed", "running", "running"]


def test_a_terminal_state_never_changes(held):
    """A terminal state never changes."""
    body, instances = held(6, workers=2, on_failure="continue")
    body.wait_begun(0, 1)
    body.release(0)
    body.fail(1)
    body.wait_begun(2, 3)
    instances.cancel()
    settled(instances, 0, 1, 4, 5)
    before = [instances.status(i) for i in (0, 1, 4, 5)]
    assert before == ["completed", "failed", "cancelled", "cancelled"]
    body.release(2)
    body.fail(3)
    instances.drain(timeout=LIMIT)
    instances.cancel()
    instances.complete()
    instances.seal()
    assert [instances.status(i) for i in range(6)] == [
        "completed",
        "failed",
        "completed",
        "failed",
        "cancelled",
        "cancelled",
    ]


@pytest.mark.parametrize("rest", ["cancel", "continue"])
@pytest.mark.parametrize("ending", ["nothing", "cancel", "complete"])
def test_every_instance_ends_in_exactly_one(engine, rest, ending):
    """Every instance ends in exactly one, also when it never started (then `cancelled`)."""
    total = 5000
    reached = threading.Event()

    def body(index):
        if index == 500:
            reached.set()
        if index % 7 == 0:
            raise ValueError(index)
        return index

    instances = shoal.spawn(body, count=total, join=shoal.at_least(3000), rest=rest, engine=engine)
    assert reached.wait(LIMIT)
    if ending != "nothing":
        getattr(instances, ending)()
    instances.drain(timeout=LIMIT)
    seen = Counter(str(instances.status(i)) for i in range(total))
    counts = instances.counts
    assert (counts.pending, counts.running) == (0, 0)
    assert seen == Counter({k: v for k, v in counts._asdict().items() if v})
    assert sum(seen.values()) == total
    assert set(instances.values) == {i for i in range(total) if instances.status(i) == "completed"}


def test_one_that_never_started_ends_as_cancelled(held):
    """Every instance ends in exactly one, also when it never started (then `cancelled`)."""
    body, instances = held(5, workers=1)
    body.wait_begun(0)
    instances.cancel()
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert [instances.status(i) for i in range(1, 5)] == ["cancelled"] * 4
    assert body.began == [0]


def test_a_body_runs_at_most_once_an_attempt(engine):
    """A body runs at most once an attempt."""
    runs = Counter()
    lock = threading.Lock()

    def body(index):
        with lock:
            runs[index] += 1

    waiter = in_thread(lambda: shoal.map(body, range(5000), engine=engine))
    shoal.map(body, range(5000, 10000), engine=engine)
    waiter.join_result()
    assert runs == Counter(range(10000))


def test_counts_is_a_snapshot_whose_sum_is_the_number_created(engine):
    """`counts` is a snapshot that never blocks a worker; its sum is the number created."""
    created = 0
    stop = threading.Event()
    wrong = []

    instances = shoal.spawn(lambda item: item, [], seal="manual", engine=engine)

    def sample():
        samples = 0
        while not stop.is_set():
            low = created
            counts = instances.counts
            samples += 1
            if counts.total != sum(counts) or min(counts) < 0 or not low <= counts.total <= 20000:
                wrong.append((low, counts))
        return samples

    sampler = in_thread(sample)
    for step in range(200):
        instances.add(*range(100))
        created = (step + 1) * 100
    instances.seal()
    assert instances.wait(timeout=LIMIT) == "fired"
    stop.set()
    assert sampler.join_result() > 0
    assert wrong == []
    assert instances.counts == shoal.Counts(0, 0, 20000, 0, 0, 0)


def test_running_counts_bodies_that_have_begun(held):
    """`running` counts bodies that have begun."""
    body, instances = held(5, workers=2)
    body.wait_begun(0, 1)
    assert instances.counts == shoal.Counts(pending=3, running=2, completed=0, failed=0, cancelled=0, timed_out=0)
    body.release_all()
    assert instances.wait(timeout=LIMIT) == "fired"
    eventually(lambda: instances.counts == shoal.Counts(0, 0, 5, 0, 0, 0))


def test_what_is_claimed_and_not_begun_is_pending(held):
    """What is claimed and not begun is pending."""
    body, instances = held(4, workers=1, chunk=4)
    body.wait_begun(0)
    assert (instances.counts.running, instances.counts.pending) == (1, 3)
    assert [instances.status(i) for i in (1, 2, 3)] == ["pending"] * 3


def test_a_body_that_raises_is_failed(engine):
    """A body that raises is `failed`; the exception is kept with its index and traceback."""

    def odd_ones_raise(index):
        if index % 2:
            raise ValueError(f"number {index}")
        return index

    instances = shoal.spawn(odd_ones_raise, count=6, on_failure="continue", engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert [instances.status(i) for i in range(6)] == ["completed", "failed"] * 3
    assert sorted(instances.errors) == [1, 3, 5]
    for index, error in instances.errors.items():
        assert type(error) is ValueError
        assert error.args == (f"number {index}",)
        names = []
        frame = error.__traceback__
        while frame is not None:
            names.append(frame.tb_frame.f_code.co_name)
            frame = frame.tb_next
        assert "odd_ones_raise" in names


def test_the_first_100_are_kept_with_their_frames_the_rest_as_type_message_and_location(engine):
    """The first 100 of a set with their frames, the rest as type, message and location."""

    def raise_it(index):
        raise LookupError(f"number {index}")

    instances = shoal.spawn(raise_it, count=150, on_failure="continue", engine=engine)
    instances.wait(timeout=LIMIT)
    errors = instances.errors
    assert sorted(errors) == list(range(150))
    kept = [e for e in errors.values() if isinstance(e, LookupError)]
    rest = {i: e for i, e in errors.items() if isinstance(e, shoal.InstanceError)}
    assert (len(kept), len(rest)) == (100, 50)
    assert all(e.__traceback__ is not None for e in kept)
    for index, error in rest.items():
        assert error.type_name.endswith("LookupError")
        assert error.message == f"number {index}"
        assert "test_instances.py" in error.location
        assert error.__traceback__ is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_keyboardinterrupt_and_systemexit_fail_the_instance_and_are_raised_in_the_thread_that_waits(engine, kind):
    """`KeyboardInterrupt` and `SystemExit` raised by a body fail that instance and are raised themselves in the
    thread that waits.
    """

    def body(index):
        if index == 2:
            raise kind("from a body")
        return index

    instances = shoal.spawn(body, count=4, on_failure="fail_late", engine=engine)
    with pytest.raises(kind, match="from a body"):
        instances.result(timeout=LIMIT)
    assert instances.status(2) == "failed"
    assert instances.counts.failed == 1
    with pytest.raises(kind, match="from a body"):
        in_thread(lambda: shoal.map(body, range(4), engine=engine)).join_result()
    assert shoal.map(abs, [-1], engine=engine) == [1]


def test_a_rust_panic_fails_the_instance_with_a_typed_error_process_and_worker_live_on(make_engine):
    """A Rust panic fails the instance with a typed error; process and worker live on."""
    engine = make_engine(workers=1)
    instances = shoal.spawn(shoal._native._panic_kernel(), count=10, on_failure="continue", engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert {i: str(instances.status(i)) for i in range(10)} == {
        i: "failed" if i % 2 else "completed" for i in range(10)
    }
    assert sorted(instances.errors) == [1, 3, 5, 7, 9]
    assert all(isinstance(e, shoal.PanicError) for e in instances.errors.values())
    assert issubclass(shoal.PanicError, Exception)
    assert in_thread(lambda: shoal.map(abs, range(100), engine=engine)).join_result() == list(range(100))


def test_with_count_a_body_gets_the_index_with_items_the_item(engine):
    """With `count=` a body gets the index, with `items=` the item."""
    seen = []
    shoal.spawn(seen.append, count=3, engine=engine).wait(timeout=LIMIT)
    assert sorted(seen) == [0, 1, 2]
    assert all(type(index) is int for index in seen)
    assert shoal.spawn(str.upper, ["a", "b"], engine=engine).result(timeout=LIMIT) == ["A", "B"]
    assert shoal.spawn(str.upper, items=["c"], engine=engine).result(timeout=LIMIT) == ["C"]


def test_an_instance_has_a_scope_of_its_own(make_engine):
    """What it sets in `current().scope` no sibling sees, and it starts as a copy of the set's."""
    case = make_engine(workers=1).case("scoped")
    case.scope["shared"] = "from the case"

    def body(index):
        scope = shoal.current().scope
        seen = dict(scope)
        scope["mine"] = index
        scope["shared"] = index
        return seen, dict(shoal.current().scope)

    for before, after in case.spawn(body, count=20).result(timeout=LIMIT):
        assert "mine" not in before
        assert before["shared"] == "from the case"
        assert after["shared"] == after["mine"]
    assert "mine" not in case.scope
    assert case.scope["shared"] == "from the case"


def test_contextvars_are_copied_in(engine):
    """`contextvars` are copied in."""
    variable = contextvars.ContextVar("variable", default="default")

    def body(_):
        seen = variable.get()
        token = variable.set("the body's")
        inside = variable.get()
        variable.reset(token)
        return seen, inside

    token = variable.set("the caller's")
    try:
        instances = shoal.spawn(body, count=10, seal="manual", engine=engine)
        instances.seal()
        assert instances.result(timeout=LIMIT) == [("the caller's", "the body's")] * 10

        def set_and_leave(_):
            variable.set("left behind")

        shoal.map(set_and_leave, range(10), engine=engine)
        assert variable.get() == "the caller's"
    finally:
        variable.reset(token)


def test_current_knows_its_instance(engine):
    """`current()`: inside a body: `.index, .set, .case, .scope, .cancelled, .attempt, .add(*items)`."""
    case = engine.case("known", variables={"a": 1})

    def body(item):
        me = shoal.current()
        return me.index, me.set.id, me.case.id, me.cancelled, me.attempt, item

    instances = case.spawn(body, ["x", "y"])
    assert instances.result(timeout=LIMIT) == [
        (0, instances.id, "known", False, 1, "x"),
        (1, instances.id, "known", False, 1, "y"),
    ]


def test_current_outside_a_body_raises():
    """`current()`: inside a body."""
    with pytest.raises(RuntimeError):
        shoal.current()


@pytest.mark.parametrize("span", [False, True], ids=["index", "span"])
def test_running_counts_a_kernel_chunk_as_one(make_engine, span):
    """`running` counts bodies that have begun (a kernel chunk counts as one); what is claimed and not begun is
    pending.
    """
    begun, let_go = threading.Event(), threading.Event()

    def compiled(*_):
        begun.set()
        return 0 if let_go.wait(LIMIT) else 1

    indices = [ctypes.c_uint64] * (2 if span else 1)
    pointer = ctypes.CFUNCTYPE(ctypes.c_int32, *indices, ctypes.c_void_p)(compiled)
    engine = make_engine(workers=1)
    instances = shoal.spawn(shoal.kernel(pointer, span=span), count=8, chunk=4, engine=engine)
    assert begun.wait(LIMIT)
    assert instances.counts == shoal.Counts(7, 1, 0, 0, 0, 0)
    assert instances.status(7) == "pending"
    let_go.set()
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.counts == shoal.Counts(0, 0, 8, 0, 0, 0)


@pytest.mark.parametrize("ending", ["nothing", "cancel", "complete"])
def test_the_sum_of_the_counts_is_the_number_created_whatever_happens_meanwhile(engine, ending):
    """`counts` is a snapshot that never blocks a worker; its sum is the number created. A terminal state never
    changes.
    """
    total = 30_000
    under_way, stop = threading.Event(), threading.Event()
    wrong = []

    def body(index):
        if index == 3000:
            under_way.set()
        if index % 5 == 0:
            raise ValueError if index % 2 else shoal.Cancelled

    def sample():
        samples, before = 0, (0, 0, 0, 0)
        while not stop.is_set():
            counts = instances.counts
            terminal = tuple(counts[2:])
            if sum(counts) != total or min(counts) < 0 or any(a < b for a, b in zip(terminal, before, strict=True)):
                wrong.append((before, counts))
            samples, before = samples + 1, terminal
        return samples

    instances = shoal.spawn(body, count=total, on_failure="continue", chunk=7, engine=engine)
    sampler = in_thread(sample)
    assert under_way.wait(LIMIT)
    if ending != "nothing":
        getattr(instances, ending)()
    instances.drain(timeout=LIMIT)
    stop.set()
    assert sampler.join_result() > 0
    assert wrong == []
    assert sum(instances.counts) == total


def test_state_bytes_are_written_when_a_range_settles_then_the_counters(engine):
    """State bytes are written when a range settles, then the counters: what the counts say has ended is seen to have
    ended.
    """
    total = 2000
    terminal = {"completed", "failed", "cancelled"}
    stop = threading.Event()
    wrong = []

    def body(index):
        if index % 3 == 0:
            raise ValueError(index)

    def sample(instances):
        samples = 0
        while not stop.is_set():
            counts = instances.counts
            ended = counts.completed + counts.failed + counts.cancelled
            seen = sum(instances.status(i) in terminal for i in range(total))
            if seen < ended:
                wrong.append((seen, counts))
            samples += 1
        return samples

    for round_number in range(5):
        stop.clear()
        instances = shoal.spawn(body, count=total, on_failure="continue", chunk=5, engine=engine)
        sampler = in_thread(lambda instances=instances: sample(instances))
        if round_number % 2:
            instances.cancel()
        instances.drain(timeout=LIMIT)
        stop.set()
        assert sampler.join_result() > 0
    assert wrong == []


@pytest.mark.parametrize("call", ["map", "map in a thread", "spawn"])
def test_what_a_body_sets_in_a_context_variable_no_sibling_sees(make_engine, call):
    """`contextvars` are copied in: what it sets no sibling sees, also one of the same chunk."""
    engine = make_engine(workers=1)
    variable = contextvars.ContextVar("variable", default="default")

    def body(index):
        seen = variable.get()
        variable.set(index)
        return seen

    def mapped():
        variable.set("the caller's")
        values = shoal.map(body, range(50), chunk=50, engine=engine)
        return values, variable.get()

    def spawned():
        variable.set("the caller's")
        return shoal.spawn(body, range(50), chunk=50, engine=engine).result(timeout=LIMIT), variable.get()

    if call == "map in a thread":
        values, after = in_thread(mapped).join_result()
    else:
        values, after = contextvars.copy_context().run(mapped if call == "map" else spawned)
    assert values == ["the caller's"] * 50
    assert after == "the caller's"


@pytest.mark.parametrize(
    "items",
    [range(5, 0, -2), range(2**63 - 3, 2**63 + 2), range(0, 2**64, 2**62), range(-(2**63), -(2**63) - 3, -1)],
    ids=repr,
)
def test_with_a_range_a_body_gets_what_the_range_holds(engine, items):
    """With `items=` the item."""
    assert shoal.spawn(lambda item: item, items, engine=engine).result(timeout=LIMIT) == list(items)
    assert shoal.map(lambda batch: batch, items, batch=2, engine=engine) == list(items)


def test_an_item_that_cannot_be_had_fails_its_instance(engine):
    """A body that raises is `failed`; the others are not."""

    class Items(Sequence):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            if index == 2:
                raise LookupError("no such item")
            return index

    instances = shoal.spawn(lambda item: item, Items(), on_failure="continue", engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.values == {0: 0, 1: 1, 3: 3}
    assert [type(e) for e in instances.errors.values()] == [LookupError]
