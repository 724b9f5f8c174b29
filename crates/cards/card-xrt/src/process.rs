//! The worker's process, as the daemon holds it: started in its own process group, called with a
//! deadline, killed with its whole group when it misses one.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use snic_ports::remote::Deadlined;

use crate::protocol::{
    ExamineStep, IDENTIFY_WORDS, TracedRequest, WorkerReply, WorkerRequest, receive, send,
};

/// Times after which the worker counts as stuck in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallDeadlines {
    /// Opening the card and loading its role, without any access to registers. 120 s: a role of 100 MB goes through the
    /// configuration port in under a second, but the driver then trains the memories and waits for
    /// each.
    pub open: Duration,
    /// Any access to registers, besides [`CallDeadlines::word`]. 2 s: a read over PCIe that is not
    /// answered ends by itself within 50 ms to some hundred, by the root complex.
    pub access: Duration,
    /// For each word of an access. 1 ms: the emulation takes under 0.1 ms.
    pub word: Duration,
    /// Staging and releasing a buffer of at most 16 MiB, and taking the register map for a process. 10 s.
    pub buffer: Duration,
}

impl Default for CallDeadlines {
    fn default() -> Self {
        Self {
            open: Duration::from_secs(120),
            access: Duration::from_secs(2),
            word: Duration::from_millis(1),
            buffer: Duration::from_secs(10),
        }
    }
}

impl CallDeadlines {
    pub(crate) fn of(&self, request: &WorkerRequest) -> Duration {
        match request {
            WorkerRequest::Open { .. }
            | WorkerRequest::Examine {
                step:
                    ExamineStep::LoadXrt
                    | ExamineStep::ReadRole
                    | ExamineStep::OpenCard
                    | ExamineStep::LoadRole,
                ..
            }
            | WorkerRequest::Reset { .. } => self.open,
            WorkerRequest::Read { runs } | WorkerRequest::Write { runs } => {
                let words: u32 = runs.iter().map(|run| run.words).sum();
                self.access + self.word * words
            }
            WorkerRequest::Identify => self.access + self.word * IDENTIFY_WORDS,
            WorkerRequest::Examine { step: ExamineStep::FindMap, .. } => {
                self.access + self.word * IDENTIFY_WORDS
            }
            WorkerRequest::Examine { step: ExamineStep::ReadRegister, .. } => self.access,
            WorkerRequest::Take { .. }
            | WorkerRequest::Examine { .. }
            | WorkerRequest::ReserveBulk
            | WorkerRequest::Stage
            | WorkerRequest::Release { .. } => self.buffer,
            WorkerRequest::ReadDevice { .. }
            | WorkerRequest::Errors
            | WorkerRequest::Tell { .. }
            | WorkerRequest::Close => self.access,
        }
    }
}

/// Longest wait for a killed worker to end before it is left behind: one that is stuck in the driver
/// cannot be killed.
const REAP_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait for a worker that closed its socket to end.
const END_LIMIT: Duration = Duration::from_millis(200);
/// Interval of the check whether it has ended.
const REAP_INTERVAL: Duration = Duration::from_millis(5);

/// The worker's process.
pub(crate) struct WorkerProcess {
    child: Option<Child>,
    reader: BufReader<Deadlined>,
}

impl WorkerProcess {
    /// Starts `command` with its end of a socket as standard input, and its output in `log`.
    pub(crate) fn start(command: &mut Command, log: &File) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .process_group(0)
            .spawn()?;
        let socket = Deadlined::new(ours);
        Ok(Self { child: Some(child), reader: BufReader::new(socket) })
    }

    /// One request, for a trace where it is for one, one reply. After an error the worker is killed: what it is doing is not known.
    pub(crate) fn call(
        &mut self,
        asked: &TracedRequest,
        payload: &[u8],
        limit: Duration,
    ) -> Result<(WorkerReply, Vec<u8>), String> {
        let socket = self.reader.get_mut();
        socket.allow(limit);
        let sent = send(socket, asked, payload);
        let result = sent.and_then(|()| receive(&mut self.reader));
        result.map_err(|error| {
            let how = match error.kind() {
                io::ErrorKind::TimedOut => format!("did not answer within {limit:?}"),
                io::ErrorKind::InvalidData => format!("answered garbage ({error})"),
                _ => "ended".to_owned(),
            };
            let is_closed =
                !matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::InvalidData);
            let status = if is_closed { self.ended() } else { String::new() };
            format!("the XRT worker {how}{status}{}", self.kill())
        })
    }

    /// Whether the process is still there.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Its process id.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// End of a process that has closed its socket; it may close it a moment before it ends.
    fn ended(&mut self) -> String {
        let until = Instant::now() + END_LIMIT;
        while let Some(Ok(None)) = self.child.as_mut().map(Child::try_wait)
            && Instant::now() < until
        {
            std::thread::sleep(REAP_INTERVAL);
        }
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) => format!(" with {status}; its last words are in worker.log"),
            _ => String::new(),
        }
    }

    /// Kills the process group. Logs a group that cannot be killed.
    fn kill(&mut self) -> String {
        let Some(mut child) = self.child.take() else { return String::new() };
        // The group has the process's id, and is gone where that is.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let until = Instant::now() + REAP_LIMIT;
        while Instant::now() < until {
            if !matches!(child.try_wait(), Ok(None)) {
                return String::new();
            }
            std::thread::sleep(REAP_INTERVAL);
        }
        // Waits for as long as the driver holds it. Without a thread it stays as it is until the
        // daemon ends.
        let reaper = std::thread::Builder::new().name("xrt-reaper".into());
        let _ = reaper.spawn(move || child.wait());
        " and cannot be killed: the driver holds it".to_owned()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Run;

    fn worker(script: &str) -> WorkerProcess {
        let log = tempfile::tempfile().expect("a file");
        let mut command = Command::new("sh");
        WorkerProcess::start(command.arg("-c").arg(script), &log).expect("a shell")
    }

    fn call(worker: &mut WorkerProcess) -> String {
        let asked = TracedRequest { parent: None, request: WorkerRequest::Stage };
        worker.call(&asked, &[], Duration::from_millis(200)).expect_err("no worker")
    }

    #[test]
    fn a_worker_that_hangs_is_killed_with_its_children() {
        let mut worker = worker("sleep 1000 & sleep 1000");
        let pid = worker.id().expect("it runs");
        assert!(call(&mut worker).contains("did not answer within 200ms"));
        assert!(!worker.is_alive());
        let group = Pid::from_raw(pid.cast_signed()).expect("an id");
        // Its children end as soon as the system has delivered the signal.
        let gone = (0..400).any(|_| {
            std::thread::sleep(REAP_INTERVAL);
            rustix::process::test_kill_process_group(group).is_err()
        });
        assert!(gone, "the group {pid} is still there");
    }

    #[test]
    fn a_worker_that_ends_says_how() {
        let mut worker = worker("exit 3");
        assert!(call(&mut worker).contains("exit status: 3"));
    }

    #[test]
    fn garbage_is_not_taken_for_an_answer() {
        let mut worker =
            worker("exec 3>&0; head -c 4096 /dev/zero | tr '\\0' '\\377' >&3; sleep 1000");
        assert!(call(&mut worker).contains("garbage"));
    }

    #[test]
    fn half_an_answer_is_late() {
        let mut worker = worker("printf '\\001\\000\\000\\000\\000\\000\\000' >&0; sleep 1000");
        assert!(call(&mut worker).contains("did not answer"));
    }

    #[test]
    fn a_call_that_moves_more_words_may_take_longer() {
        let deadlines = CallDeadlines::default();
        let runs = |words: u32| vec![Run { at: 0, words: words / 2 }; 2];
        let read = |words| deadlines.of(&WorkerRequest::Read { runs: runs(words) });
        assert_eq!(read(1_000) - read(0), Duration::from_secs(1));
        assert!(deadlines.of(&WorkerRequest::Close) < deadlines.open);
    }

    #[test]
    fn no_step_of_opening_that_reads_registers_may_take_as_long_as_loading_a_role() {
        let deadlines = CallDeadlines::default();
        assert_eq!(
            deadlines.of(&WorkerRequest::Identify) - deadlines.access,
            IDENTIFY_WORDS * deadlines.word
        );
        let take = WorkerRequest::Take { control: String::new() };
        assert_eq!(deadlines.of(&take), deadlines.buffer);
        assert_eq!(deadlines.of(&WorkerRequest::ReserveBulk), deadlines.buffer);
    }
}
