//! Card links: facts that an adapter learns when it opens a card and that no register contains, and what went through
//! the ports of cards that have ports in software. They are shown to operators and decide nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use snic_api::convert::name;
use snic_api::v1;
use snic_domain::CardId;
use snic_ports::generator::TrafficGenerator;
use snic_ports::packets::{FlowTableUse, NtDrops, PacketWindow, PortTraffic};
use snic_telemetry::metrics::{Metric, Reading};

/// Interval between reads of the ports' traffic.
const PORTS_INTERVAL: Duration = Duration::from_secs(1);

/// Connection of a card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardLink {
    /// Driver, such as `simulated` or `XRT 2.13.0`.
    pub driver: String,
    /// Attachment, such as `card 0 through XRT`.
    pub link: String,
    /// UUID of the loaded shell or role; empty if there is none.
    pub shell: String,
}

/// The links of all cards, as of their last opening. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct CardLinks(Arc<Mutex<BTreeMap<CardId, CardFacts>>>);

/// The known facts of a card.
#[derive(Default)]
struct CardFacts {
    link: CardLink,
    window: Option<Arc<dyn PacketWindow>>,
    generator: Option<Arc<dyn TrafficGenerator>>,
    /// As of the last reading; empty where the card did not answer.
    ports: Vec<PortTraffic>,
    /// Drops by the UID of their DAG. A tenant has no more configured NTs than its quota, so this is bounded as well.
    nt_drops: BTreeMap<u32, Vec<NtDrops>>,
    /// Use of the card's flow table by the UID of the DAG, for as many as the card has rows.
    flows: BTreeMap<u32, FlowTableUse>,
    /// Frames that were too slow for the machine at the last reading and the one before.
    too_slow: [u64; 2],
}

impl CardFacts {
    /// Replaces what went through the ports; returns how many frames were lost since the last time, where some
    /// were and none before.
    fn set_ports(&mut self, ports: Vec<PortTraffic>) -> Option<u64> {
        let sum = ports.iter().map(|port| port.too_slow).sum();
        self.ports = ports;
        let [last, before] = self.too_slow;
        self.too_slow = [sum, last];
        // A card that was switched on again counts from zero.
        let begins = sum > last && last <= before;
        begins.then_some(sum.saturating_sub(last))
    }
}

impl fmt::Debug for CardFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.link.fmt(f)
    }
}

impl CardLinks {
    /// Sets a card's link.
    pub fn set(&self, card: CardId, link: CardLink) {
        self.0.lock().entry(card).or_default().link = link;
    }

    /// Sets the source from which a card's packets can be watched.
    pub fn set_window(&self, card: CardId, window: Arc<dyn PacketWindow>) {
        self.0.lock().entry(card).or_default().window = Some(window);
    }

    /// The source from which a card's packets can be watched, if there is one.
    pub(crate) fn window(&self, card: &CardId) -> Option<Arc<dyn PacketWindow>> {
        self.0.lock().get(card)?.window.clone()
    }

    /// Sets what makes a card's packets.
    pub fn set_generator(&self, card: CardId, generator: Arc<dyn TrafficGenerator>) {
        self.0.lock().entry(card).or_default().generator = Some(generator);
    }

    /// Generator of a card's packets, if there is one.
    pub(crate) fn generator(&self, card: &CardId) -> Option<Arc<dyn TrafficGenerator>> {
        self.0.lock().get(card)?.generator.clone()
    }

    /// Adds a card's link and ports to its message.
    pub(crate) fn fill(&self, card: &mut v1::Card) {
        let Some(id) = card.name.strip_prefix("cards/").and_then(|id| CardId::new(id).ok()) else {
            return;
        };
        if let Some(known) = self.0.lock().get(&id) {
            let link = known.link.clone();
            (card.driver, card.link, card.shell_uuid) = (link.driver, link.link, link.shell);
            card.ports = known.ports.iter().map(port).collect();
        }
    }

    /// Adds to a binding's message what the ports of its functions refused.
    pub(crate) fn fill_binding(&self, binding: &mut v1::VmBinding) {
        let known = self.0.lock();
        for function in &mut binding.functions {
            let id = function.card.strip_prefix("cards/").and_then(|id| CardId::new(id).ok());
            let known = id.and_then(|id| known.get(&id));
            let is_its = |port: &&PortTraffic| {
                port.function.map(u32::from) == Some(function.virtual_function)
            };
            let port = known.and_then(|known| known.ports.iter().find(is_its));
            function.refused_frames = port.map(|port| v1::RefusedFrames {
                control: port.control,
                wrong_source: port.wrong_source,
                wrong_vlan: port.wrong_vlan,
                over_broadcast_rate: port.over_group_rate,
            });
        }
    }

    /// Why NTs dropped a DAG's packets, on all cards.
    pub(crate) fn nt_drops(&self, uid: u32) -> Vec<v1::NtDrops> {
        let known = self.0.lock();
        let drops = known.values().filter_map(|known| known.nt_drops.get(&uid)).flatten();
        let drops = drops.map(|drops| v1::NtDrops {
            nt_type: name::of_nt_type(&drops.nt_type),
            reason: drops.reason.clone(),
            packets: drops.packets,
        });
        drops.collect()
    }

    /// Why NTs dropped packets on all cards, by the UID of their DAG.
    pub(crate) fn all_nt_drops(&self) -> BTreeMap<u32, Vec<NtDrops>> {
        let mut all = BTreeMap::<_, Vec<_>>::new();
        for (uid, drops) in self.0.lock().values().flat_map(|known| &known.nt_drops) {
            all.entry(*uid).or_default().extend(drops.iter().cloned());
        }
        all
    }

    /// The use that a DAG makes of flow tables, on all cards; `None` where it has none.
    fn flow_rules(&self, uid: u32) -> Option<v1::FlowRules> {
        let known = self.0.lock();
        let uses = known.values().filter_map(|known| known.flows.get(&uid));
        uses.fold(None, |sum: Option<v1::FlowRules>, flows| {
            let sum = sum.unwrap_or_default();
            Some(v1::FlowRules {
                flows: sum.flows + u64::from(flows.flows),
                fast_flows: sum.fast_flows + u64::from(flows.fast_flows),
                evicted_flows: sum.evicted_flows + flows.evicted,
            })
        })
    }

    /// Adds to a DAG's message why NTs dropped its packets, and its flows.
    pub(crate) fn fill_dag(&self, dag: &mut v1::Dag) {
        if let Some(rules) = self.flow_rules(dag.uid) {
            dag.traffic.get_or_insert_default().flow_rules = Some(rules);
        }
        let drops = self.nt_drops(dag.uid);
        if !drops.is_empty() {
            dag.traffic.get_or_insert_default().nt_drops = drops;
        }
    }

    /// Reads what went through the ports of all cards each second, for as long as the task lives.
    pub async fn keep_ports_fresh(self) {
        loop {
            tokio::time::sleep(PORTS_INTERVAL).await;
            let links = self.clone();
            if tokio::task::spawn_blocking(move || links.read_ports()).await.is_err() {
                return;
            }
        }
    }

    /// Reads what went through the ports of all cards. It waits for them.
    fn read_ports(&self) {
        let known = self.0.lock();
        let windows: Vec<_> =
            known.iter().filter_map(|(id, of)| Some((id.clone(), of.window.clone()?))).collect();
        drop(known);
        for (card, window) in windows {
            let counts = window.counts().unwrap_or_default();
            let mut nt_drops = BTreeMap::<_, Vec<_>>::new();
            for drops in counts.nt_drops {
                nt_drops.entry(drops.uid.raw()).or_default().push(drops);
            }
            let flows = counts.flows.into_iter().map(|flows| (flows.uid.raw(), flows)).collect();
            let mut known = self.0.lock();
            let Some(known) = known.get_mut(&card) else { continue };
            known.nt_drops = nt_drops;
            known.flows = flows;
            if let Some(frames) = known.set_ports(counts.ports) {
                tracing::warn!(%card, frames, "the machine is too slow for the card: frames were lost at its ports");
            }
        }
    }

    /// Frames that ports lost, for the metrics.
    pub(crate) fn readings(&self) -> Vec<Reading> {
        let known = self.0.lock();
        let all = known.iter().flat_map(|(card, known)| known.ports.iter().map(move |p| (card, p)));
        let readings = all.flat_map(|(card, port)| {
            let causes = [
                ("TOO_SLOW", port.too_slow),
                ("NOT_TAKEN", port.not_taken),
                ("TOO_LONG", port.too_long),
                ("CONTROL", port.control),
                ("WRONG_SOURCE", port.wrong_source),
                ("WRONG_VLAN", port.wrong_vlan),
                ("OVER_GROUP_RATE", port.over_group_rate),
            ];
            causes.map(|(cause, frames)| {
                let of = [
                    ("card", card.to_string()),
                    ("port", port.name.clone()),
                    ("cause", cause.to_owned()),
                ];
                Reading::new(Metric::PortLost, frames as f64, of)
            })
        });
        readings.collect()
    }
}

fn port(of: &PortTraffic) -> v1::CardPort {
    v1::CardPort {
        port: of.name.clone(),
        method: of.method.clone(),
        frames_in: of.received,
        bytes_in: of.received_bytes,
        frames_out: of.sent,
        bytes_out: of.sent_bytes,
        frames_too_slow: of.too_slow,
        frames_not_taken: of.not_taken,
        frames_too_long: of.too_long,
        frames_control: of.control,
        frames_wrong_source: of.wrong_source,
        frames_wrong_vlan: of.wrong_vlan,
        frames_over_group_rate: of.over_group_rate,
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::DagUid;
    use snic_ports::packets::{PacketWatch, SoftCounts, WatchError};

    use super::*;

    #[test]
    fn only_an_opened_card_has_its_link() {
        let links = CardLinks::default();
        let link = CardLink { driver: "XRT 2.13.0".into(), ..CardLink::default() };
        links.clone().set("card1".parse().expect("a label"), link);
        let filled = |name: &str| {
            let mut card = v1::Card { name: name.into(), ..v1::Card::default() };
            links.fill(&mut card);
            card.driver
        };
        assert_eq!(filled("cards/card1"), "XRT 2.13.0");
        assert_eq!(filled("cards/card0"), "");
        assert_eq!(filled(""), "");
    }

    /// A card whose only port loses more each time that it is asked, as far as `lost` says.
    struct LosingCard {
        lost: Mutex<Vec<u64>>,
    }

    impl PacketWindow for LosingCard {
        fn counts(&self) -> Result<SoftCounts, WatchError> {
            let lost = self.lost.lock().pop().ok_or(WatchError::Ended)?;
            let port = PortTraffic {
                name: "tap:web".to_owned(),
                too_slow: lost,
                ..PortTraffic::default()
            };
            let drops = |row, reason: &str| NtDrops {
                uid: DagUid::new(row, 1).expect("it fits"),
                nt_type: "firewall".parse().expect("a label"),
                reason: reason.to_owned(),
                packets: lost,
            };
            let nt_drops = vec![drops(1, "rule"), drops(2, "malformed"), drops(1, "truncated")];
            let uid = DagUid::new(1, 1).expect("it fits");
            let evicted = lost;
            let flows = vec![FlowTableUse { uid, flows: 5, fast_flows: 2, evicted }];
            Ok(SoftCounts { ports: vec![port], nt_drops, flows })
        }

        fn watch(&self, _: DagUid, _: u32) -> Result<Box<dyn PacketWatch>, WatchError> {
            Err(WatchError::Ended)
        }
    }

    #[test]
    fn what_ports_lost_is_in_card_and_metrics_until_the_card_is_gone() {
        let (links, card) = (CardLinks::default(), CardId::new("card0").expect("a label"));
        links.set_window(card, Arc::new(LosingCard { lost: Mutex::new(vec![9, 7]) }));
        for lost in [Some(7), Some(9), None] {
            links.read_ports();
            let mut card = v1::Card { name: "cards/card0".into(), ..v1::Card::default() };
            links.fill(&mut card);
            assert_eq!(card.ports.first().map(|port| port.frames_too_slow), lost);
            let readings = links.readings();
            let slow = readings.iter().find(|reading| {
                reading.attributes.iter().any(|of| of.value.as_str() == "TOO_SLOW")
            });
            assert_eq!(slow.map(|reading| reading.value), lost.map(|lost| lost as f64));
        }
    }

    #[test]
    fn each_dag_has_its_flows_until_the_card_is_gone() {
        let (links, card) = (CardLinks::default(), CardId::new("card0").expect("a label"));
        links.set_window(card, Arc::new(LosingCard { lost: Mutex::new(vec![9]) }));
        let told = |row, incarnation| {
            let uid = DagUid::new(row, incarnation).expect("it fits").raw();
            let mut dag = v1::Dag { uid, ..v1::Dag::default() };
            links.fill_dag(&mut dag);
            dag.traffic.unwrap_or_default().flow_rules
        };
        assert_eq!(told(1, 1), None, "not read yet");
        links.read_ports();
        let rules = v1::FlowRules { flows: 5, fast_flows: 2, evicted_flows: 9 };
        assert_eq!((told(1, 1), told(1, 2), told(2, 1)), (Some(rules), None, None));
        links.read_ports();
        assert_eq!(told(1, 1), None, "the card does not answer");
    }

    #[test]
    fn each_dag_has_the_reasons_of_its_own_drops_until_the_card_is_gone() {
        let (links, card) = (CardLinks::default(), CardId::new("card0").expect("a label"));
        links.set_window(card, Arc::new(LosingCard { lost: Mutex::new(vec![9, 7]) }));
        let uid = |row, incarnation| DagUid::new(row, incarnation).expect("it fits").raw();
        let told = |uid| {
            let mut dag = v1::Dag { uid, ..v1::Dag::default() };
            links.fill_dag(&mut dag);
            let drops = dag.traffic.unwrap_or_default().nt_drops;
            let drops = drops.into_iter().map(|drops| (drops.reason, drops.packets));
            drops.collect::<Vec<_>>()
        };
        for packets in [7, 9] {
            links.read_ports();
            let expected = ["rule", "truncated"].map(|reason| (reason.to_owned(), packets));
            assert_eq!(told(uid(1, 1)), expected);
            assert_eq!(told(uid(2, 1)), [("malformed".to_owned(), packets)]);
            assert_eq!((told(uid(1, 2)), told(uid(3, 1))), (vec![], vec![]), "of another DAG");
        }
        links.read_ports();
        assert_eq!(told(uid(1, 1)), []);
    }

    #[test]
    fn losses_are_told_when_they_begin() {
        let mut known = CardFacts::default();
        let ports = |too_slow| vec![PortTraffic { too_slow, ..PortTraffic::default() }];
        let told = [0, 5, 8, 8, 9, 0, 2].map(|lost| known.set_ports(ports(lost)));
        assert_eq!(told, [None, Some(5), None, None, Some(1), None, Some(2)]);
    }
}
