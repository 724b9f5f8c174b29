//! The hosts that are linked to this replica, while it leads.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use snic_api::error::ApiError;
use snic_api::fleet_v1::LinkResponse;
use snic_api::v1::ErrorReason;
use snic_fleet::HostId;
use snic_fleet::protocol::HostOrder;
use snic_front::error::RETRY_SOON;
use tokio::sync::mpsc;
use tonic::Status;

/// Orders that wait for a host to read them. One that lets more pile up is unlinked: after it has linked itself again,
/// both sides compare what it is to serve.
const ORDERS_MAX: usize = 1_024;

/// Orders that a host reads.
pub(crate) type Orders = mpsc::Receiver<Result<LinkResponse, Status>>;

#[derive(Debug)]
struct HostLink {
    number: u64,
    orders: mpsc::Sender<Result<LinkResponse, Status>>,
}

/// The links, by host: one each.
#[derive(Debug, Default)]
pub(crate) struct HostLinks(Mutex<(u64, BTreeMap<HostId, HostLink>)>);

impl HostLinks {
    /// Links a host, and ends its earlier link. Returns the link's number, and what the host is to read.
    pub fn begin(&self, host: &HostId) -> (u64, Orders) {
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        let mut links = self.0.lock();
        links.0 += 1;
        let link = HostLink { number: links.0, orders: sender };
        if let Some(earlier) = links.1.insert(host.clone(), link) {
            end(&earlier, ErrorReason::Superseded, "the host has linked itself again");
        }
        (links.0, orders)
    }

    /// Whether this is the host's link.
    pub fn is_current(&self, host: &HostId, number: u64) -> bool {
        self.0.lock().1.get(host).is_some_and(|link| link.number == number)
    }

    /// The host ended this link.
    pub fn end(&self, host: &HostId, number: u64) {
        let mut links = self.0.lock();
        if links.1.get(host).is_some_and(|link| link.number == number) {
            links.1.remove(host);
        }
    }

    /// Sends an order. A host that is not linked learns it when it is.
    pub fn send(&self, host: &HostId, order: &HostOrder) {
        let Ok(order) = serde_json::to_vec(order) else {
            tracing::error!(%host, "an order cannot be written as JSON");
            return;
        };
        let mut links = self.0.lock();
        let Some(link) = links.1.get(host) else { return };
        if link.orders.try_send(Ok(LinkResponse { order, call: 0 })).is_err() {
            tracing::warn!(%host, "the host does not read its orders; its link ends");
            links.1.remove(host);
        }
    }

    /// Tells a host the number of a call that waits for its answer.
    ///
    /// # Errors
    /// The host is not linked here, or does not read.
    pub fn offer(&self, host: &HostId, call: u64) -> Result<(), ApiError> {
        let away = |text: String| {
            ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
        };
        let links = self.0.lock();
        let Some(link) = links.1.get(host) else {
            let text = format!(
                "host {host} is not linked to the fleet at the moment; see `snicctl fleet host get {host}`"
            );
            return Err(away(text));
        };
        let offered = link.orders.try_send(Ok(LinkResponse { order: Vec::new(), call }));
        offered.map_err(|_| away(format!("host {host} does not read its link at the moment")))
    }

    /// Ends all links: this replica leads no more.
    pub fn end_all(&self) {
        for (_, link) in std::mem::take(&mut self.0.lock().1) {
            end(&link, ErrorReason::StoreUnavailable, "this replica no longer leads");
        }
    }
}

/// Tells why the link ends, if there is room to; then it ends without a word.
fn end(link: &HostLink, reason: ErrorReason, text: &str) {
    let _ = link.orders.try_send(Err(ApiError::new(reason, text).into()));
}

#[cfg(test)]
mod tests {
    use snic_fleet::protocol::{Epoch, OrderKind};

    use super::*;

    fn host() -> HostId {
        HostId::new("h1").expect("a name")
    }

    fn order(sequence: u64) -> HostOrder {
        HostOrder { epoch: Epoch(1), sequence, what: OrderKind::Greet }
    }

    #[test]
    fn a_second_link_ends_the_first_and_has_all_later_orders() {
        let links = HostLinks::default();
        let (first, mut old) = links.begin(&host());
        let (second, mut new) = links.begin(&host());
        links.send(&host(), &order(1));
        let told = old.try_recv().expect("why it ended").expect_err("it ended");
        assert!(told.message().contains("linked itself again"), "{}", told.message());
        assert!(old.try_recv().is_err(), "nothing more");
        let sent = new.try_recv().expect("the order").expect("the order");
        assert!(String::from_utf8(sent.order).expect("JSON").contains("\"sequence\":1"));
        assert!(links.is_current(&host(), second) && !links.is_current(&host(), first));
        // The end of the first one is late, and ends nothing else.
        links.end(&host(), first);
        assert!(links.is_current(&host(), second));
    }

    #[test]
    fn a_host_that_reads_nothing_is_unlinked() {
        let links = HostLinks::default();
        let (number, mut orders) = links.begin(&host());
        for sequence in 0..=ORDERS_MAX as u64 {
            links.send(&host(), &order(sequence));
        }
        assert!(!links.is_current(&host(), number));
        let mut read = 0;
        while orders.try_recv().is_ok() {
            read += 1;
        }
        assert_eq!(read, ORDERS_MAX);
    }
}
