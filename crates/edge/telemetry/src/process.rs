//! Usage of the machine by this process, and its build.

use std::sync::OnceLock;
use std::time::Instant;

use crate::metrics::{Metric, Reading};

/// Ticks of processor time in a second, as the kernel tells them to programs: the same on every machine that the
/// daemon is built for.
const TICKS: f64 = 100.0;
/// Fields of `/proc/self/stat` behind the name of the program, which may contain anything, that come before `utime`.
const BEFORE_UTIME: usize = 11;

/// Version, commit, and when the process began to run.
static BUILD: OnceLock<(&'static str, &'static str, Instant)> = OnceLock::new();

/// Says which build this is; the first call counts.
pub(crate) fn set_build(version: &'static str, commit: &'static str) {
    BUILD.get_or_init(|| (version, commit, Instant::now()));
}

/// Usage by the process, and its build where that was said. What the system does not tell is left out.
pub fn process_readings() -> Vec<Reading> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).ok();
    let mut all = Vec::new();
    let mut put = |of, value: Option<f64>| {
        all.extend(value.map(|value| Reading::new(of, value, [])));
    };
    put(Metric::ProcessCpu, read("stat").and_then(|stat| cpu_seconds(&stat)));
    put(Metric::ProcessMemory, read("status").and_then(|status| resident_bytes(&status)));
    let files = std::fs::read_dir("/proc/self/fd").ok().map(|all| all.count() as f64);
    put(Metric::ProcessFiles, files);
    if let Some((version, commit, since)) = BUILD.get() {
        put(Metric::ProcessUptime, Some(since.elapsed().as_secs_f64()));
        let of = [("version", (*version).to_owned()), ("commit", (*commit).to_owned())];
        all.push(Reading::new(Metric::BuildInfo, 1.0, of));
    }
    all
}

/// `utime` and `stime` of `/proc/self/stat`.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_ascii_whitespace().skip(BEFORE_UTIME);
    let (user, system): (u64, u64) = (ticks.next()?.parse().ok()?, ticks.next()?.parse().ok()?);
    Some((user + system) as f64 / TICKS)
}

/// `VmRSS` of `/proc/self/status`, which is in KiB.
fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some((kib * 1_024) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_files_are_read() {
        // As `man 5 proc` has it; the name of a program may contain spaces and brackets.
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 300 1000 20";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (a) S 1"), None);
        assert_eq!(resident_bytes("Name:\tsnicd\nVmRSS:\t    2048 kB\n"), Some(2_097_152.0));
        assert_eq!(resident_bytes("Name:\tsnicd\n"), None);
    }

    #[test]
    fn this_process_takes_something() {
        let all = process_readings();
        let of = |measured| all.iter().find(|reading| reading.of == measured).map(|of| of.value);
        // A test program with its libraries is larger than a mebibyte and smaller than a gibibyte.
        let bytes = of(Metric::ProcessMemory).expect("it is there");
        assert!((1e6..1e9).contains(&bytes), "{bytes}");
        assert!(of(Metric::ProcessFiles).is_some_and(|files| files >= 3.0));
        assert!(of(Metric::ProcessCpu).is_some());
    }
}
