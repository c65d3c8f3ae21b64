import asyncio

from cometmq.remoting.alarm import Alarm


async def test_an_alarm_rings_not_before_its_time() -> None:
    loop = asyncio.get_running_loop()
    for microseconds in (0, 100, 400, 600, 1_100, 1_900):
        rung = asyncio.Event()
        at = loop.time() + microseconds / 1e6

        Alarm(loop).set(at, rung.set)
        await rung.wait()

        assert loop.time() >= at


async def test_the_earliest_time_counts() -> None:
    loop = asyncio.get_running_loop()
    rung: asyncio.Future[str] = loop.create_future()
    alarm = Alarm(loop)
    now = loop.time()

    alarm.set(now + 60, lambda: rung.set_result("late"))
    alarm.set(now + 0.005, lambda: rung.set_result("early"))
    alarm.set(now + 30, lambda: rung.set_result("between"))

    assert await rung == "early"


async def test_an_alarm_rings_once_and_can_be_set_again() -> None:
    loop = asyncio.get_running_loop()
    times: list[int] = []
    done = asyncio.Event()
    alarm = Alarm(loop)

    def ring() -> None:
        times.append(len(times))
        if len(times) < 3:
            alarm.set(loop.time(), ring)
        else:
            done.set()

    alarm.set(loop.time(), ring)
    await done.wait()

    assert times == [0, 1, 2]


async def test_an_alarm_that_was_cancelled_does_not_ring() -> None:
    loop = asyncio.get_running_loop()
    rung: list[str] = []
    cancelled, other = Alarm(loop), Alarm(loop)
    done = asyncio.Event()

    cancelled.set(loop.time(), lambda: rung.append("cancelled"))
    cancelled.cancel()
    cancelled.cancel()
    other.set(loop.time() + 0.005, done.set)
    await done.wait()

    assert rung == []
