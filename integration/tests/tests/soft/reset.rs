//! An operator resets a software card under a running daemon: its process ends, another one is started, and what its DAGs
//! need is loaded again. No root is needed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use snic_api::replies::ItemOf as _;
use snic_api::v1::{self, card::Health};
use snic_integration::{DaemonProcess, Home, TestClient, furnished};

use super::rig::{READY_MAX, card_log, dag, observe, ready, snicctl};

/// Longest time of a frame through the card.
const FRAME_MAX: Duration = Duration::from_millis(500);

/// A daemon, its card with sockets as ports, and one DAG that takes all packets of function 0.
struct Site {
    home: Home,
    daemon: DaemonProcess,
    client: TestClient,
}

impl Site {
    async fn new() -> Self {
        let home = Home::new();
        let [uplink, function] = Self::ports(&home);
        home.write_soft_settings(&format!("uplink = {uplink:?}\nfunctions = [{function:?}]"));
        let daemon = home.start().await;
        let client = furnished(&home, &["web"]).await;
        ready(&client).await;
        client.lead_function(0, &dag()).await.expect("the DAG is there");
        let endpoint = format!("unix:{}", home.socket().display());
        let site = Self { home, daemon, client };
        for line in [
            &*format!("context set it --endpoint {endpoint} --identity operator/test"),
            "context use it",
        ] {
            site.snicctl(line).expect("a context");
        }
        site
    }

    fn ports(home: &Home) -> [String; 2] {
        ["up.sock", "f0.sock"].map(|name| format!("unix:{}", home.path().join(name).display()))
    }

    /// Runs `snicctl`; an error is what it says.
    fn snicctl(&self, line: &str) -> Result<String, String> {
        let output = snicctl(&self.home, line).output().expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    fn pid(&self) -> u32 {
        self.home.card_pid().expect("it runs")
    }

    /// Until a packet of the function has come through the card to the network.
    async fn packets_pass(&self) {
        let until = Instant::now() + READY_MAX;
        while self.send().is_none() {
            assert!(Instant::now() < until, "no packet passes: {}", card_log(&self.home));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A frame from the host of the function, as it comes to the network.
    fn send(&self) -> Option<Vec<u8>> {
        let connect = |port: &String| {
            let path = port.strip_prefix("unix:").expect("a socket");
            let stream = UnixStream::connect(path).ok()?;
            stream.set_read_timeout(Some(FRAME_MAX)).expect("a time");
            Some(stream)
        };
        let [uplink, function] = Self::ports(&self.home);
        let (mut network, mut host) = (connect(&uplink)?, connect(&function)?);
        let frame = frame();
        let length = (frame.len() as u32).to_be_bytes();
        host.write_all(&[&length[..], &frame].concat()).ok()?;
        let mut length = [0; 4];
        network.read_exact(&mut length).ok()?;
        let mut received = vec![0; u32::from_be_bytes(length) as usize];
        network.read_exact(&mut received).ok()?;
        Some(received)
    }

    /// The card answers, its DAG is served by another process than before, and packets pass.
    async fn serves_again(&self, before: u32) {
        ready(&self.client).await;
        let request = v1::GetCardRequest { name: "cards/card0".into() };
        let card = self.client.cards().get_card(request).await.item().expect("it is known");
        assert_eq!(card.health(), Health::Ok, "{}", card.message);
        assert_ne!(self.pid(), before, "it is another process");
        let ports = Self::ports(&self.home);
        assert!(observe(&self.home, &ports).loads > 0, "the new one held nothing");
        self.packets_pass().await;
    }
}

/// UDP over IPv4, to a station that nobody has: it leaves by the uplink.
fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([3, 0xe8, 7, 0xd0, 0, 26, 0, 0]);
    frame.extend(0..18);
    frame
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_with_dags_is_reset_only_by_force_and_they_are_served_again() {
    let site = Site::new().await;
    site.packets_pass().await;
    let before = site.pid();
    let refused = site.snicctl("card reset card0 --wait").expect_err("a DAG is on it");
    assert!(refused.contains("DAGs are in 1 of its regions (0)"), "{refused}");
    assert!(refused.contains("reset it by force"), "{refused}");
    site.packets_pass().await;
    assert_eq!(site.pid(), before, "nothing has happened to it");

    site.snicctl("card reset card0 --force --wait").expect("by force");
    site.serves_again(before).await;

    // Without DAGs no force is needed.
    let before = site.pid();
    let gone = site.client.delete_dag(&dag()).await.expect("it is there");
    site.client.wait(&gone).await.expect("it goes");
    site.snicctl("card reset card0 --wait").expect("nothing uses it");
    assert_ne!(site.pid(), before);
    let (status, log) = site.daemon.stop();
    assert!(status.success(), "{log}");
}

/// Stopped by a signal, the process neither answers nor ends: that is when a reset is needed most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_that_does_not_answer_is_reset_by_force() {
    let site = Site::new().await;
    let before = site.pid();
    let process = Pid::from_raw(before.cast_signed()).expect("it is no zero");
    kill_process(process, Signal::STOP).expect("it runs");
    site.snicctl("card reset card0 --force --wait").expect("by force");
    site.serves_again(before).await;
    let (status, log) = site.daemon.stop();
    assert!(status.success(), "{log}");
}
