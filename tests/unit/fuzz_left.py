"""Random turns of several checkpoints on one journal, with crashes at any step."""
import random, sys, logging, traceback
from collections import Counter
from dataclasses import replace
import sqs_fifo_spark.source.driver as D, sqs_fifo_spark.source.partition as P, sqs_fifo_spark.aws.client as C, sqs_fifo_spark.source.planning as PL
from sqs_fifo_spark.errors import DataLossError, SqsFifoError
from tests.unit.by_hand import HandHeartbeat, World
from tests.simulation.hub import Crash
from greenlet import greenlet, getcurrent
from tests.simulation.spark import Query as Q0, read, ConcurrentUpdateError, ContradictionError
from tests.simulation.world import LAPSE_S, Checkpoint
logging.disable(logging.CRITICAL)
D.Heartbeat = HandHeartbeat; P.Heartbeat = HandHeartbeat; PL.MESSAGES_PER_PARTITION = 4

class Left:
    def __init__(self, rng): self.rng, self.live = rng, []
    def spawn(self, world, plan):
        def run():
            try: read(world, plan)
            except (SqsFifoError, Crash) as e: world.note(f"leftover: {type(e).__name__}")
        g = greenlet(run); self.live.append(g); self.go(g)
    def go(self, g):
        g.parent = getcurrent(); g.switch()
        if g.dead: self.live.remove(g)
    def step(self, event):
        """True if the step was a leftover's"""
        cur = getcurrent()
        if cur in self.live:
            if self.rng.random() < .25: cur.parent.switch()
            return True
        if self.live and self.rng.random() < .04: self.go(self.rng.choice(self.live))
        return False
LEFT = None
class Query(Q0):
    def read(self, plan):
        if LEFT.on and LEFT.rng.random() < .35: LEFT.spawn(self.world, plan)
        return super().read(plan)

def play(seed, verbose=False):
    global LEFT
    rng = random.Random(seed)
    HandHeartbeat.live = []
    LEFT = Left(rng); LEFT.on = True
    base = rng.choice(["commit", "journal", "mixed", "journal"])
    world = World(seed, any_order=rng.random() < .5, numPartitions=str(rng.choice([1,1,2,3])), deleteAfter="journal", waitTimeSeconds="1",
                  maxMessagesPerTrigger=str(rng.choice([2,5,30,10000])))
    C.sqs_client = lambda config, wait_time_s=0: world.client
    number = Counter()
    def send(n):
        for _ in range(n):
            g = rng.choice("abc"[:rng.choice([1,2,3])])
            number[g] += 1
            world.send(f"{g}{number[g]}")
    checkpoints = [Checkpoint()]
    class Skips(dict):
        def __missing__(self, k):
            self[k] = rng.randrange(6); return self[k]
    skips = Skips()
    retired = set()
    n_check = rng.choice([1, 2, 2, 3])
    def one_turn(checkpoint, last):
        mode = base if base != "mixed" else rng.choice(["commit", "journal"])
        world.options = replace(world.options, delete_after=mode, num_partitions=rng.choice([1,2,3]),
             max_messages_per_trigger=rng.choice([2,5,30,10000]))
        left = -1 if last else rng.choice([rng.randrange(1, 40), rng.randrange(1, 200), rng.randrange(1, 400)])
        style = rng.random()
        deny = rng.random() < .15
        world.fault = (lambda a: rng.choice(["", "", "refused", "lost"]) if a == "DeleteMessageBatch" else "") if deny and not last else (lambda a: "")
        share = rng.random() < .3
        def on_step(event):
            nonlocal left
            if LEFT.step(event): return
            left -= 1
            if left == 0:
                raise Crash(event)
            if event.startswith("after") and rng.random() < .01 and not last: send(1)
            if event.startswith("before") and rng.random() < .02 and not last:
                world.clock.advance(rng.choice([1, 11, 35]))
        world.on_step = on_step
        kw = {}
        if style < .3: kw = dict(tells_start=False, is_wrapped=rng.random() < .5)
        elif style < .4: kw = dict(available_now=True)
        odd = skips[id(checkpoint)]
        def reads(b, c):
            if odd not in (0, 1) : return range(c)
            r = random.Random(f"{seed}/{checkpoints.index(checkpoint)}/{b}").random()
            return range(c) if r < .7 or (last and b >= len(checkpoint.offsets) and False) else None if r < .85 else range(min(1, c))
        kw["reads"] = reads
        if verbose: world.note(f"=== turn of {checkpoints.index(checkpoint)} {mode} {kw}")
        try:
            q = Query(world, checkpoint=checkpoint, **kw).resume()
            for _ in range(rng.randrange(1, 5) if not last else 60):
                if not last: send(rng.randrange(0, 6))
                if not q.trigger() and kw.get("available_now"): break
                if kw.get("is_wrapped"): break
                if last and world.depth() == (0, 0) and not world.journal().ledger().carried and not q.trigger():
                    break
            world.note("=== end of turn")
        except Crash: world.note("=== crash")
        except DataLossError as e:
            world.note(f"=== {e}")
            retired.add(id(checkpoint))
            return "refused"
        except SqsFifoError as e:
            world.note(f"=== {type(e).__name__} {e}")
            if last: raise
        finally:
            world.on_step = lambda e: None
            HandHeartbeat.live.clear()
            world.fault = lambda a: ""
        return ""
    send(rng.randrange(1, 12))
    skipping = Counter()
    for turn in range(rng.randrange(2, 12)):
        live = [c for c in checkpoints if id(c) not in retired]
        if len(checkpoints) < n_check and rng.random() < .3 or not live:
            checkpoints.append(Checkpoint()); live = [checkpoints[-1]]
        c = rng.choice(live)
        one_turn(c, False)
        if rng.random() < .6: world.clock.advance(LAPSE_S)
        else: world.clock.advance(rng.choice([0, 5, 20]))
    world.clock.advance(LAPSE_S)
    live = [c for c in checkpoints if id(c) not in retired]
    if not live: checkpoints.append(Checkpoint()); live = [checkpoints[-1]]
    c = rng.choice(live)
    LEFT.on = False
    for i in range(8):
        if i == 3: LEFT.live.clear()
        if one_turn(c, True) == "refused":
            live = [x for x in checkpoints if id(x) not in retired]
            if not live: checkpoints.append(Checkpoint()); live = [checkpoints[-1]]
            c = rng.choice(live)
        world.clock.advance(LAPSE_S)
    problems = []
    seen = Counter()
    for i, ck in enumerate(checkpoints):
        counts = Counter(r.message_id for rows in ck.rows() for r in rows)
        seen.update(counts.keys())
        doubles = [r.body for r in world.sent if counts[r.message_id] > 1]
        if doubles: problems.append(f"doubles in {i}: {doubles}")
        before = {}
        for b in sorted(ck.sink):
            after = dict(before)
            for rows in ck.sink[b].values():
                last = dict(before)
                for r in rows:
                    if r.sequence <= last.get(r.group, 0) and not doubles: problems.append(f"order in {i}: {r.body} batch {b}")
                    last[r.group] = r.sequence
                    after[r.group] = max(after.get(r.group, 0), r.sequence)
            before = after
    lost = [r.body for r in world.sent if not seen[r.message_id]]
    if lost: problems.append(f"lost {lost}")
    if world.depth() != (0, 0): problems.append(f"left {world.depth()}")
    if world.journal().ledger().carried: problems.append("carried left")
    return problems, len(checkpoints), len(retired), world

if __name__ == "__main__":
    first, n = int(sys.argv[1]), int(sys.argv[2])
    bad = 0; multi = Counter()
    for seed in range(first, first + n):
        try:
            problems, k, r, world = play(seed, n == 1)
        except Exception as e:
            problems, k, r = [traceback.format_exc().splitlines()[-1]], 0, 0
            if n == 1: traceback.print_exc()
        multi[k, r] += 1
        if problems:
            bad += 1
            print(seed, k, r, problems[:3], flush=True)
            if n == 1: print("\n".join(world.told()))
    print("bad", bad, "of", n, dict(multi))
