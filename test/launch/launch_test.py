#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts real processes with tools/launch, and looks at what they say, how they end, and what is left of them."""
import concurrent.futures
import contextlib
import glob
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

LAUNCH = pathlib.Path("tools/launch").resolve()
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def expect(holds, *what):
    if not holds:
        raise AssertionError(" ".join(str(one) for one in what))


class Started:
    """A launcher that is running; its tasks run a script of Bash. After `with` nothing of it is left."""

    def __init__(self, options, script, **more):
        env = {**os.environ, "TF_CONFIG": "{}", **more.pop("env", {})}
        self.process = subprocess.Popen([sys.executable, LAUNCH, *options, "--", "bash", "-c", script, "bash",
                                         *more.pop("args", [])], env=env, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def line(self):
        return self.process.stdout.readline().rstrip("\n")

    def lines(self, n):
        return sorted(self.line() for _ in range(n))

    def end(self, seconds=60):
        """(exit code, its output, what it complains about)"""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


def launched(options, script, **more):
    with Started(options, script, **more) as it:
        return it.end()


def expect_gone(pids, seconds=20):
    """Waits until these processes, which are nobody's children here, have ended."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([fd], [], [], seconds)
        os.close(fd)
        expect(ready, f"process {pid} lives on")


# A task that lives until somebody ends it, and ends at once on SIGTERM.
STAY = "exec sleep 1000"


@test
def tasks_are_told_who_they_are():
    script = 'echo "$CHORALE_TASK|$CHORALE_CLUSTER|$CHORALE_JOB|$CHORALE_INCARNATION|${TF_CONFIG-none}"'
    code, out, err = launched(["-n", "2", "--ps", "1", "--evaluator"], script)
    expect(code == 0 and err == "", code, err)
    told = {line.partition(" ")[0]: line.partition(" ")[2].split("|") for line in out.splitlines()}
    expect({label: fields[0] for label, fields in told.items()} ==
           {"[w0]": "worker:0", "[w1]": "worker:1", "[ps0]": "ps:0", "[e0]": "evaluator:0"}, out)
    rest = {tuple(fields[1:]) for fields in told.values()}
    expect(len(rest) == 1, "tasks are told different things", out)
    cluster, job, incarnation, tf_config = rest.pop()
    cluster = json.loads(cluster)
    expect({role: len(all_) for role, all_ in cluster.items()} == {"worker": 2, "ps": 1, "evaluator": 1}, cluster)
    ports = [address for all_ in cluster.values() for address in all_]
    expect(len(set(ports)) == 4 and all(re.fullmatch(r"127\.0\.0\.1:\d+", port) for port in ports), ports)
    expect(job.startswith("launch-") and incarnation == "0" and tf_config == "none", out)


@test
def a_chief_and_ports_can_be_asked_for():
    code, out, _ = launched(["-n", "2", "--chief", "--port", "4400"], 'echo "$CHORALE_TASK $CHORALE_CLUSTER"')
    cluster = json.dumps({"chief": ["127.0.0.1:4400"], "worker": ["127.0.0.1:4401"]})
    expect(code == 0 and sorted(out.splitlines()) == [f"[chief] chief:0 {cluster}", f"[w0] worker:0 {cluster}"], out)


@test
def tasks_share_a_secret_that_nobody_else_may_read_and_that_is_gone_afterwards():
    code, out, _ = launched(["-n", "2"], 'echo "$CHORALE_SECRET_FILE $(stat -c %a "$CHORALE_SECRET_FILE")" '
                                         '$(cat "$CHORALE_SECRET_FILE") "${CHORALE_SECRET-none}"',
                            env={"CHORALE_SECRET": "of another job"})
    told = {line.partition(" ")[2] for line in out.splitlines()}
    expect(code == 0 and len(told) == 1, out)
    path, mode, secret, other = told.pop().split()
    expect(mode == "600" and re.fullmatch("[0-9a-f]{64}", secret) and other == "none", out)
    expect(not os.path.exists(path) and not os.path.exists(os.path.dirname(path)), path, "is left")


@test
def environment_and_arguments_arrive_as_they_are():
    code, out, _ = launched(["-n", "1"], 'echo "$OMP_NUM_THREADS|$1|$2"', args=["a b", "--"],
                            env={"OMP_NUM_THREADS": "3", "CHORALE_JOB": "lenet"})
    expect(code == 0 and out == "[w0] 3|a b|--\n", out)
    code, out, _ = launched(["-np", "1"], 'echo "${OMP_NUM_THREADS-none} $CHORALE_JOB"',
                            env={"CHORALE_JOB": "lenet", "OMP_NUM_THREADS": ""})
    expect(code == 0 and out == "[w0]  lenet\n", out)


@test
def each_line_of_output_has_a_prefix_and_stays_whole():
    code, out, err = launched(["-n", "4"], 'for i in {1..300}; do echo "line $i $CHORALE_TASK end"; done; '
                                           'echo "to stderr" >&2; printf "without a break"')
    expect(code == 0, code, err)
    lines = out.splitlines()
    for i in range(4):
        mine = [line for line in lines if line.startswith(f"[w{i}] ")]
        expect(mine == [f"[w{i}] line {n} worker:{i} end" for n in range(1, 301)] + [f"[w{i}] without a break"], mine)
    expect(len(lines) == 4 * 301, len(lines))
    expect(sorted(err.splitlines()) == [f"[w{i}] to stderr" for i in range(4)], err)


@test
def output_also_goes_to_a_file_for_each_task():
    with tempfile.TemporaryDirectory() as folder:
        options = ["-n", "2", "--ps", "1", "--log-dir", f"{folder}/logs"]
        code, _, _ = launched(options, 'echo "$CHORALE_TASK"; echo e >&2')
        logs = {path.name: path.read_text() for path in pathlib.Path(folder, "logs").iterdir()}
        expect(code == 0 and sorted(logs) == ["ps0.0.log", "w0.0.log", "w1.0.log"], logs)
        expect(sorted(logs["w1.0.log"].splitlines()) == ["e", "worker:1"], logs)


@test
def the_first_failure_is_named_and_ends_the_others():
    with tempfile.TemporaryDirectory() as begun:                             # worker 1 fails when the others have begun
        fail = f"until [ $(ls {begun} | wc -l) = 3 ]; do sleep 0.02; done; exit 7"
        script = f"echo $$; if [ $CHORALE_TASK = worker:1 ]; then {fail}; fi; touch {begun}/$CHORALE_TASK; {STAY}"
        with Started(["-n", "3", "--ps", "1"], script) as it:
            pids = [int(line.split()[1]) for line in it.lines(4)]
            code, _, err = it.end()
    expect(code == 7, code, err)
    sentence = r"^chorale: worker 1 was the first to fail: exit code 7, \d+\.\d s after the start$"
    expect(re.search(sentence, err, re.MULTILINE), err)
    expect_gone(pids)


@test
def a_failing_server_ends_the_job_too():
    code, _, err = launched(["-n", "1", "--ps", "2"], f"if [ $CHORALE_TASK = ps:1 ]; then exit 3; fi; {STAY}")
    expect(code == 3 and "ps 1 was the first to fail: exit code 3" in err, code, err)


@test
def a_signal_is_named_and_becomes_128_and_its_number():
    code, _, err = launched(["-n", "2"], f"if [ $CHORALE_TASK = worker:0 ]; then kill -SEGV $$; fi; {STAY}")
    expect(code == 128 + signal.SIGSEGV and "worker 0 was the first to fail: signal 11 (SIGSEGV)" in err, code, err)
    expect("memory" not in err, err)


@test
def who_only_lost_a_peer_is_not_the_cause_when_another_failed():
    with tempfile.TemporaryDirectory() as folder:                     # worker 1 fails when worker 0 is gone altogether
        os.mkfifo(f"{folder}/told")
        code, _, err = launched(["-n", "2"], f"""
            if [ $CHORALE_TASK = worker:0 ]; then echo $$ > {folder}/told; exit 138; fi
            read pid < {folder}/told
            while kill -0 $pid 2> /dev/null; do :; done
            exit 5""")
        expect(code == 5 and "worker 1 was the first to fail: exit code 5" in err, code, err)
    code, _, err = launched(["-n", "2"], f"if [ $CHORALE_TASK = worker:0 ]; then exit 138; fi; {STAY}")
    expect(code == 138 and "worker 0 was the first to fail: exit code 138" in err, code, err)


@test
def a_death_by_sigusr1_is_no_lost_peer():
    script = 'if [ $CHORALE_TASK = worker:0 ]; then echo $$ > "$1"; kill -USR1 $$; fi; ' \
             'read pid < "$1"; while kill -0 $pid 2> /dev/null; do :; done; exit 5'
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/ready")
        code, _, err = launched(["-n", "2"], script, args=[f"{folder}/ready"])
        expect(code == 138 and "worker 0 was the first to fail: signal 10 (SIGUSR1), " in err, code, err)


@test
def who_ends_because_it_was_asked_to_gives_the_others_time():
    script = 'trap "echo ended early; exit 1" TERM; if [ $CHORALE_TASK = worker:1 ]; then echo > "$1"; exit 143; fi; ' \
             'read line < "$1"; for i in {1..20}; do sleep 0.1; done; echo saved; exit 143'
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/ready")
        code, out, err = launched(["-n", "2"], script, args=[f"{folder}/ready"])
        expect(code == 143 and out == "[w0] saved\n", code, out, err)
        expect("worker 1 was the first to fail: exit code 143" in err, err)


@test
def who_left_first_is_named_when_the_others_lose_it():
    with tempfile.TemporaryDirectory() as folder:                     # worker 0 fails when worker 1 is gone altogether
        os.mkfifo(f"{folder}/told")
        code, _, err = launched(["-n", "2"], f"""
            if [ $CHORALE_TASK = worker:1 ]; then echo $$ > {folder}/told; exit 0; fi
            read pid < {folder}/told
            while kill -0 $pid 2> /dev/null; do :; done
            exit 138""")
        said = r"^chorale: worker 1 was the first to leave: exit code 0, \d+\.\d s after the start, while others still " \
               r"worked\nchorale: worker 0 was the first to fail: exit code 138, "
        expect(code == 138 and re.search(said, err, re.MULTILINE), code, err)
        os.mkfifo(f"{folder}/lost")                                   # its connections close before its process ends
        code, _, err = launched(["-n", "2"], f"""
            if [ $CHORALE_TASK = worker:0 ]; then echo $$ > {folder}/lost; exit 138; fi
            read pid < {folder}/lost
            while kill -0 $pid 2> /dev/null; do :; done
            exit 0""")
        expect(code == 138 and "worker 1 was the first to leave" in err, code, err)
    code, _, err = launched(["-n", "2"], f"if [ $CHORALE_TASK = worker:0 ]; then exit 138; fi; trap 'exit 0' TERM; "
                                         f"sleep 1000 & wait")
    expect(code == 138 and "leave" not in err, "who was told to end is blamed", code, err)


@test
def shared_memory_of_a_job_is_removed_with_it():
    # An empty file is of a dead job, and removed by any other job.
    script = 'echo x > "/dev/shm/chorale-$CHORALE_JOB-$(grep -o "127[^\\"]*" <<< "$CHORALE_CLUSTER" | head -1)"; ' \
             'echo x > "/dev/shm/chorale-$CHORALE_JOB"; echo "$CHORALE_JOB"; '
    for ending in ("exit 0", "exit 5", "kill -KILL $$"):
        _, out, err = launched(["-n", "1", "--max-restarts", "1"], script + ending)
        jobs = {line.split()[1] for line in out.splitlines()}
        expect(len(jobs) == 1, out, err)
        found = glob.glob(f"/dev/shm/chorale-{jobs.pop()}*")
        expect(not found, ending, found)
    with Started(["-n", "1"], script + STAY) as it:
        job = it.line().split()[1]
        expect(len(glob.glob(f"/dev/shm/chorale-{job}*")) == 2, "the test makes no file")
        it.process.send_signal(signal.SIGTERM)
        it.end()
        expect(not glob.glob(f"/dev/shm/chorale-{job}*"), job)
    name = f"test-launch-{os.getpid()}"                               # a name that others may have: only what is surely its
    code, out, err = launched(["-n", "1"], script, env={"CHORALE_JOB": name})
    left = glob.glob(f"/dev/shm/chorale-{name}*")
    for path in left:
        os.unlink(path)
    expect(code == 0 and left == [f"/dev/shm/chorale-{name}"], left, out, err)


@test
def a_failure_that_may_pass_is_started_again_with_another_incarnation():
    script = 'echo "$CHORALE_INCARNATION $CHORALE_JOB"; if [ $CHORALE_INCARNATION$CHORALE_TASK != 2worker:0 ]; then ' \
             '[ $CHORALE_INCARNATION = 2 ] || exit 143; fi'
    with tempfile.TemporaryDirectory() as folder:
        code, out, err = launched(["-n", "2", "--max-restarts", "3", "--log-dir", folder], script)
        expect(code == 0, code, err)
        told = [line.split()[1:] for line in out.splitlines()]
        expect({incarnation for incarnation, _ in told} == {"0", "1", "2"} and len({job for _, job in told}) == 1, out)
        expect(err.count("was the first to fail: exit code 143") == 2, err)
        expect("starts all tasks again, incarnation 2 of at most 3" in err, err)
        expect(len(os.listdir(folder)) == 6, os.listdir(folder))


@test
def restarts_have_an_end_and_mistakes_are_not_repeated():
    code, out, err = launched(["-n", "1", "--max-restarts", "2"], "echo again; kill -KILL $$")
    expect(code == 137 and out == "[w0] again\n" * 3, code, out, err)
    code, out, err = launched(["-n", "1", "--max-restarts", "2"], "echo once; exit 3")
    expect(code == 3 and out == "[w0] once\n", code, out, err)


@test
def servers_are_ended_when_the_workers_are_done():
    begin = time.monotonic()
    code, _, err = launched(["-n", "2", "--ps", "1", "--evaluator", "--grace", "1.5"],
                            f"case $CHORALE_TASK in worker*) exit 0;; esac; {STAY}")
    expect(code == 0 and err == "", code, err)
    expect(1.5 <= time.monotonic() - begin < 9, "the grace is not 1.5 s")


@test
def a_server_that_ends_after_the_workers_does_not_fail_the_job():
    code, _, err = launched(["-n", "1", "--ps", "1", "--evaluator"],
                            "[ $CHORALE_TASK = worker:0 ] || exec timeout --signal=USR1 1 sleep 1000; exit 0")
    expect(code == 0 and err == "", code, err)


@test
def signals_are_passed_on():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        script = 'sleep 1000 & trap "echo told; exit 143" INT TERM USR1 USR2; echo ready; wait'   # sleep knows of no trap
        with Started(["-n", "2", "--max-restarts", "5"], script) as it:
            expect(it.lines(2) == ["[w0] ready", "[w1] ready"])
            it.process.send_signal(number)
            code, out, err = it.end()
            told = set(out.splitlines())                              # and again, who is ended because the other has
            expect(code == 143 and told == {"[w0] told", "[w1] told"}, code, out, err)
            expect(f"{number.name} was passed on" in err and "again" not in err, err)


@test
def a_signal_that_kills_tells_how_to_catch_it():
    with Started(["-n", "2"], f"echo ready; {STAY}") as it:
        it.lines(2)
        it.process.send_signal(signal.SIGUSR1)
        code, _, err = it.end()
        expect(code == 138 and "signal 10 (SIGUSR1)" in err, code, err)
        expect("SIGUSR1 was passed on. Try: EndOnSignal{SIGTERM, SIGUSR1}" in err, err)


@test
def a_second_signal_ends_who_does_not_listen():
    script = 'trap "echo told" TERM; echo ready $$; while :; do read -t 1000 < <(sleep 1000); done'
    with Started(["-n", "2"], script) as it:
        pids = [int(line.split()[2]) for line in it.lines(2)]
        it.process.send_signal(signal.SIGTERM)
        it.lines(2)
        begin = time.monotonic()
        for seconds in (0, 2.2):                                      # the first one comes too soon to count
            time.sleep(seconds)
            it.process.send_signal(signal.SIGTERM)
        it.process.wait(60)
        expect(time.monotonic() - begin >= 7, "it was killed too soon")
        code, _, err = it.end()
        expect(code == 137 and "signal 9 (SIGKILL)" in err, code, err)
        expect_gone(pids)


@test
def who_ignores_the_end_of_the_others_is_killed():
    script = 'if [ $CHORALE_TASK = worker:0 ]; then read line < "$1"; exit 4; fi; ' \
             'trap "" TERM; echo > "$1"; while :; do sleep 1000; done'
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/ready")
        begin = time.monotonic()
        code, _, err = launched(["-n", "2"], script, args=[f"{folder}/ready"])
        expect(code == 4 and "worker 0 was the first to fail: exit code 4" in err, code, err)
        expect(time.monotonic() - begin >= 5, "it was killed at once")


@test
def no_task_outlives_the_launcher():
    with Started(["-n", "2", "--ps", "1"], f"echo $$; {STAY}") as it:
        pids = [int(line.split()[1]) for line in it.lines(3)]
        it.process.kill()
        expect_gone(pids)


@test
def what_a_task_started_ends_with_it():
    with Started(["-n", "2"], "sleep 1000 & echo $!") as it:
        pids = [int(line.split()[1]) for line in it.lines(2)]
        code, _, err = it.end()
        expect(code == 0, code, err)
        expect_gone(pids)


@test
def output_that_a_process_of_another_session_holds_open_is_not_waited_for():
    script = 'setsid sleep 1000 & echo $!; printf "without a break"'
    begin = time.monotonic()
    with Started(["-n", "6"], script) as it:
        pids = []
        try:
            code, out, err = it.end()
            pids = [int(pid) for pid in re.findall(r"\] (\d+)$", out, re.MULTILINE)]
            expect(code == 0 and len(pids) == 6 and out.count("without a break\n") == 6, code, out, err)
            expect(time.monotonic() - begin < 10, "it waited for", time.monotonic() - begin, "s")
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)


@test
def a_reader_that_goes_away_ends_no_task():
    script = 'read line < "$1/go"; for i in {1..2000}; do echo more; done; touch "$1/done"'
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/go")
        with Started(["-n", "1"], script, args=[folder]) as it:
            it.process.stdout.close()
            pathlib.Path(folder, "go").write_text("\n")
            expect(it.process.wait(60) == 0, it.process.returncode)
        expect(os.path.exists(f"{folder}/done"), "the task has ended early")


@test
def free_ports_are_free_and_given_to_no_connection():
    connections = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    _, out, _ = launched(["-n", "8"], "echo $CHORALE_CLUSTER")
    for address in json.loads(out.splitlines()[0].partition(" ")[2])["worker"]:
        with contextlib.closing(socket.socket()) as one:
            host, port = address.split(":")
            one.bind((host, int(port)))                               # an error here is a port that is taken
        expect(int(port) < connections or connections <= 10_000, port, connections)


@test
def mistakes_are_told_in_one_sentence():
    def told(*arguments, limit=None):
        run = subprocess.run([sys.executable, LAUNCH, *arguments], capture_output=True, text=True, timeout=60,
                             check=False, preexec_fn=limit and (lambda: resource.setrlimit(limit[0], (limit[1],) * 2)))
        expect(run.returncode == 2 and run.stdout == "" and "Traceback" not in run.stderr, arguments, run)
        return run.stderr.splitlines()[-1]

    expect(told("-n", "1", "--", "/no/such") == "chorale: /no/such: cannot be started: No such file or directory.")
    expect(told("-n", "0", "--", "true").endswith("-n 0: it must be at least 1"))
    expect(told("-n", "1", "--ps", "-1", "--", "true").endswith("--ps -1: it must be at least 0"))
    expect(told("-n", "9", "--port", "65530", "--", "true").endswith("ports from there on must be from 1 to 65535"))
    expect("PROGRAM is missing" in told("-n", "1"))
    expect(told("-n", "1", "--grace", "nan", "--", "true").endswith("--grace nan: it must be at least 0"))
    expect(told("-n", "1", "--grace", "inf", "--", "true").endswith("it must be at most 31536000, a year"))
    for many in (["-n", "70000"], ["-n", "99999999999"], ["-n", "1", "--ps", "99999999999"]):
        expect(told(*many, "--", "true").endswith("tasks need as many ports, and a host has 65535. Try: a smaller -n."))
    expect(re.fullmatch(r"chorale: 90 tasks need (\d+) descriptors, and this process may have 64\. Try: a smaller -n, or "
                        r"ulimit -n \1\.", told("-n", "90", "--", "true", limit=(resource.RLIMIT_NOFILE, 64))))
    expect("required: -n" in told("--", "true"))
    expect(told("-n", "1", "--log-dir", "/dev/null/x", "--", "true") ==
           "chorale: --log-dir /dev/null/x: Not a directory.")


@test
def a_kill_for_memory_is_said_to_be_one():
    loader = importlib.machinery.SourceFileLoader("launch", str(LAUNCH))
    sys.dont_write_bytecode = True
    launch = importlib.util.module_from_spec(importlib.util.spec_from_loader("launch", loader))
    loader.exec_module(launch)
    kills = launch.oom_kills()
    expect(kills is None or kills >= 0, kills)

    class Killed:
        text, code, process = "worker 2", 137, type("Process", (), {"returncode": -9})

    job = launch.Job(launch.arguments(["-n", "3", "--", "true"]))
    before = "worker 2 was the first to fail: signal 9 (SIGKILL)"
    after = ", 1.2 s after the start"
    expect(job._sentence(1.23, Killed, 4, 5) == f"{before}, possibly out of memory{after}")
    expect(job._sentence(1.23, Killed, 4, 4) == before + after)
    expect(job._sentence(1.23, Killed, None, None) == before + after)


def outcome(one):
    begin = time.monotonic()
    try:
        one()
        return f"PASSED: {one.__name__.replace('_', ' ')} ({time.monotonic() - begin:.1f} s)"
    except Exception as error:                                        # also of Python: a test that breaks has failed
        return f"FAILED: {one.__name__.replace('_', ' ')}: {type(error).__name__}: {error}"


def main():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:            # some wait for the seconds that a launcher waits
        outcomes = list(pool.map(outcome, TESTS))
    print("\n".join(outcomes))
    return 1 if any(one.startswith("FAILED") for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
