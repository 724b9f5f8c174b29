//! A card that is lost under a running daemon, here the process that is a software card: what operators and
//! tenants are told while it is away, and once it is back.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use snic_api::replies::ItemOf as _;
use snic_api::v1::dag::State;
use snic_api::v1::{Card, Dag, GetCardRequest, GetDagRequest, card};
use snic_integration::{Home, TestClient, free_address, furnished, metrics_page, program};

/// Longest time of each step. Attempts to open a card are 1 to 30 s apart.
const PATIENCE: Duration = Duration::from_secs(120);

/// The lines of the metrics about whether cards answer.
fn cards_up(address: SocketAddr) -> String {
    metrics_page(address).lines().filter(|line| line.starts_with("snic_card_up{")).collect()
}

fn events(home: &Home) -> String {
    let snicctl = |words: &[&str]| {
        let mut command = Command::new(program("snicctl"));
        command.env("SNICCTL_CONFIG", home.path().join("contexts.toml")).args(words);
        let output = command.output().expect("snicctl starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let endpoint = format!("unix:{}", home.socket().display());
    snicctl(&["context", "set", "it", "--endpoint", &endpoint, "--identity", "operator/test"]);
    snicctl(&["context", "use", "it"]);
    snicctl(&["events"])
}

async fn card_of(client: &TestClient) -> Card {
    let request = GetCardRequest { name: "cards/card0".into() };
    client.cards().get_card(request).await.item().expect("it is known")
}

async fn dag_of(client: &TestClient) -> Dag {
    let request = GetDagRequest { name: "tenants/acme/dags/web".into() };
    client.dags().get_dag(request).await.item().expect("it is there")
}

/// Asks until it is so.
async fn until<T, F: Future<Output = T>>(ask: impl Fn() -> F, is_so: impl Fn(&T) -> bool) -> T
where
    T: std::fmt::Debug,
{
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = ask().await;
        if is_so(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "it stays so: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_is_told_that_a_card_is_lost_why_and_when_it_is_back() {
    let home = Home::new();
    let metrics = free_address();
    home.write_soft_settings(&format!("[telemetry]\nprometheus = \"{metrics}\""));
    let daemon = home.start().await;
    let client = furnished(&home, &["web"]).await;
    until(|| dag_of(&client), |dag| dag.state() == State::Ready).await;
    assert!(cards_up(metrics).ends_with(" 1"), "{}", cards_up(metrics));

    // A file in the place of its folder: the process cannot be started again.
    let (folder, aside) = (home.card_folder(), home.path().join("aside"));
    let pid = home.card_pid().expect("it runs");
    std::fs::rename(&folder, &aside).expect("it is there");
    std::fs::write(&folder, "").expect("a file");
    let process = rustix::process::Pid::from_raw(pid.cast_signed()).expect("it is no zero");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("it runs");
    let lost = until(|| card_of(&client), |card| card.open_attempts >= 2).await;
    assert_eq!(lost.health(), card::Health::Lost);
    assert!(lost.message.contains("cannot start"), "the newest reason: {lost:?}");
    assert!(lost.lost_since.is_some(), "{lost:?}");
    let dag = dag_of(&client).await;
    assert_ne!(dag.state(), State::Ready);
    let told = dag.conditions.iter().find(|condition| condition.reason == "CARD_LOST");
    assert!(told.is_some_and(|told| told.message.contains("cannot start")), "{dag:?}");
    assert!(cards_up(metrics).ends_with(" 0"), "{}", cards_up(metrics));
    let why = format!("card card0 is lost: the card's process {pid} is gone");
    assert_eq!(events(&home).matches(&why).count(), 1, "once: {}", events(&home));

    std::fs::remove_file(&folder).expect("it is a file");
    std::fs::rename(&aside, &folder).expect("it is free");
    until(|| dag_of(&client), |dag| dag.state() == State::Ready).await;
    let back = card_of(&client).await;
    assert_eq!((back.health(), back.open_attempts), (card::Health::Ok, 0), "{back:?}");
    assert_eq!(back.lost_since, None);
    assert!(cards_up(metrics).ends_with(" 1"), "{}", cards_up(metrics));
    assert!(events(&home).contains("card card0 answers again after"), "{}", events(&home));
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
    let errors: Vec<&str> =
        log.lines().filter(|line| line.contains("ERROR") && line.contains(&why)).collect();
    assert_eq!(errors.len(), 1, "{log}");
}
