//! Elections on real etcd: a leader that is stopped is followed, and what it writes late is refused.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use snic_etcd::election::{ElectionSettings, Term};
use snic_etcd::{Answer, Failed, Operation, Request, Transaction};
use snic_store_etcd::{Campaign, EtcdConnection, EtcdSettings};

use super::cluster::{Cluster, PATIENCE, in_time, read, runtime};

/// Variable by which a program that this test started learns where etcd is.
const URLS: &str = "SNIC_TEST_ETCD_URLS";

fn settings(name: &str) -> ElectionSettings {
    let (prefix, name) = ("election/".to_owned(), name.to_owned());
    ElectionSettings { prefix, name, lease_seconds: 5 }
}

/// Goes on until the candidate leads.
async fn lead(campaign: &mut Campaign) -> Term {
    in_time(async {
        loop {
            if let Some(term) = campaign.term() {
                return term;
            }
            campaign.next().await;
        }
    })
    .await
}

async fn try_write(
    connection: &EtcdConnection,
    term: &Term,
    value: &str,
) -> Result<Answer, Failed> {
    let put = Operation::Put { key: "log".to_owned(), value: value.into(), lease: None };
    let write = Transaction { compares: vec![term.guard()], operations: vec![put] };
    connection.ask(&Request::Commit(write)).await
}

async fn write(connection: &EtcdConnection, term: &Term, value: &str) -> Answer {
    try_write(connection, term, value).await.unwrap()
}

#[test]
fn a_leader_that_resigns_is_followed_at_once() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(async {
        let connection = cluster.connect().await;
        let mut first = Campaign::new(connection.clone(), settings("first"));
        let earlier = lead(&mut first).await;
        let mut second = Campaign::new(connection.clone(), settings("second"));
        while second.leader().is_none() {
            in_time(second.next()).await;
        }
        assert_eq!(second.leader().unwrap().name, "first");
        assert_eq!(second.term(), None);
        assert!(matches!(write(&connection, &earlier, "first").await, Answer::Committed(_)));
        first.resign().await;
        let later = lead(&mut second).await;
        assert!(later.since > earlier.since);
        assert!(matches!(write(&connection, &later, "second").await, Answer::Committed(_)));
        assert!(matches!(write(&connection, &earlier, "late").await, Answer::Refused(_)));
        assert_eq!(read(&connection, "log").await.unwrap()[0].value, b"second");
    });
}

/// A leader in a process of its own. It ends with its test.
struct Other {
    child: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(urls: &[String]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "election::the_other_process", "--ignored", "--nocapture"])
            .env(URLS, urls.join(","))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, says }
    }

    /// Reads what it says until a line ends with this.
    fn until(&mut self, end: &str) {
        let said = self.says.by_ref().map_while(Result::ok).find(|line| line.ends_with(end));
        assert!(said.is_some(), "it ended before it said {end:?}");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Leads, and writes as the leader it was, whatever it learns meanwhile, until that is refused.
#[test]
#[ignore = "part: a process that another test starts"]
fn the_other_process() {
    let Ok(urls) = std::env::var(URLS) else { return };
    runtime().block_on(async {
        let urls = urls.split(',').map(str::to_owned).collect();
        let connection = EtcdConnection::new(EtcdSettings::plain(urls)).await.unwrap();
        let mut campaign = Campaign::new(connection.clone(), settings("other"));
        let term = lead(&mut campaign).await;
        tokio::spawn(async move {
            loop {
                campaign.next().await;
            }
        });
        let begin = Instant::now();
        let mut has_said = false;
        loop {
            match try_write(&connection, &term, "other").await {
                Ok(Answer::Refused(_)) => break println!("\nrefused"),
                Ok(_) if !has_said => {
                    println!("\nleads");
                    has_said = true;
                }
                // What was under way when it was stopped may have no answer in time.
                Ok(_) | Err(Failed::Unknown(_) | Failed::Unreachable(_)) => {}
                Err(failed) => panic!("{failed}"),
            }
            assert!(begin.elapsed() < PATIENCE, "nobody stopped it");
        }
    });
}

/// SIGSTOP in the middle of its writes, and SIGCONT after another leads: none of them is carried out any more.
#[test]
fn a_stopped_leader_that_goes_on_writes_nothing_more() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut other = Other::start(&cluster.urls());
    other.until("leads");
    runtime().block_on(async {
        let connection = cluster.connect().await;
        let mut campaign = Campaign::new(connection.clone(), settings("this"));
        while campaign.leader().is_none() {
            in_time(campaign.next()).await;
        }
        assert_eq!(campaign.leader().unwrap().name, "other");
        other.signal("STOP");
        let term = lead(&mut campaign).await;
        assert!(matches!(write(&connection, &term, "this").await, Answer::Committed(_)));
        other.signal("CONT");
        let said = tokio::task::spawn_blocking(move || {
            other.until("refused");
            other
        });
        tokio::pin!(said);
        let _other = loop {
            tokio::select! {
                other = &mut said => break other.unwrap(),
                () = campaign.next() => {}
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        };
        assert_eq!(read(&connection, "log").await.unwrap()[0].value, b"this");
        assert_eq!(campaign.leader().unwrap().name, "this");
    });
}
