//! Connections to replicas, one at a time: the next replica when one fails or does not lead.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use snic_api::connect::LOST_EPOCH_HEADER;
use snic_api::fleet_v1::host_link_service_client::HostLinkServiceClient;
use snic_api::fleet_v1::{FetchImageRequest, LinkRequest, LinkResponse};
use snic_domain::{Digest, RegionImage};
use snic_fleet::protocol::{Epoch, HostOrder, HostReport};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::host::LinkedHost;
use crate::tls::LinkTls;

/// Longest time to connect and to begin a link.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a replica may be silent before it is asked whether it lives; without that, a link that was cut off would
/// never end.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// First pause before a replica is tried again, and the longest one; jitter makes each up to twice as long. A host that
/// has tried in vain since a leader was lost is with the next one well before its lease of (by default) 10 s is over.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(1_500));
/// Reports that wait to be sent. One that finds no room is dropped: reports may be lost.
const REPORTS_MAX: usize = 256;
/// Largest order or report.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Longest silence of a replica that sends an image.
const IMAGE_SILENCE: Duration = Duration::from_secs(10);

/// The replicas, and which one is next.
#[derive(Debug)]
pub(crate) struct Replicas {
    endpoints: Vec<String>,
    next: usize,
    pauses: ExponentialBackoff,
}

/// Each time longer, up to a limit, with jitter so that many hosts do not come at once.
fn pauses() -> ExponentialBackoff {
    let builder = ExponentialBuilder::default().with_min_delay(PAUSES.0).with_max_delay(PAUSES.1);
    builder.without_max_times().with_jitter().build()
}

impl Replicas {
    pub fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints, next: 0, pauses: pauses() }
    }

    /// The next replica, and how long to wait before it is tried: not at all until each was tried once.
    pub fn next(&mut self) -> (String, Duration) {
        let count = self.endpoints.len().max(1);
        let pause = match self.next < count {
            true => Duration::ZERO,
            false => self.pauses.next().unwrap_or(PAUSES.1),
        };
        let endpoint = self.endpoints.get(self.next % count).cloned().unwrap_or_default();
        self.next += 1;
        (endpoint, pause)
    }

    /// The replica that was given last sends orders: it leads, and is tried first when the link ends.
    pub fn leads(&mut self) {
        let count = self.endpoints.len().max(1);
        self.next = self.next.saturating_sub(1) % count;
        // It is tried once more, and then the others, before there is a pause.
        self.pauses = pauses();
    }
}

/// Message of a replica over a link.
#[derive(Debug)]
pub(crate) enum ReplicaMessage {
    Order(Box<HostOrder>),
    /// The number of a call that waits for an answer.
    Call(u64),
}

/// A link that is open.
pub(crate) struct OpenLink {
    pub endpoint: String,
    pub channel: Channel,
    reports: mpsc::Sender<LinkRequest>,
    orders: Streaming<LinkResponse>,
}

impl OpenLink {
    /// Opens a link, after a pause. `lost`: the epoch of a leader that was just lost.
    ///
    /// # Errors
    /// Why it cannot be opened, in words.
    pub async fn open(
        endpoint: String,
        host: Arc<dyn LinkedHost>,
        pause: Duration,
        lost: Option<Epoch>,
    ) -> Result<Self, String> {
        tokio::time::sleep(pause).await;
        let failed = |what: &dyn std::fmt::Display| format!("{endpoint}: {what}");
        let LinkTls { authority, certificate, key } =
            host.tls().await.map_err(|error| failed(&error))?;
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority.text()))
            .identity(Identity::from_pem(certificate.text(), key.text()));
        let to = Endpoint::from_shared(endpoint.clone())
            .map_err(|error| failed(&error))?
            .connect_timeout(OPEN_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .tls_config(tls)
            .map_err(|error| failed(&error))?;
        let open = async {
            let channel = to.connect().await.map_err(|error| failed(&root_cause(&error)))?;
            let (reports, waiting) = mpsc::channel(REPORTS_MAX);
            let mut client = HostLinkServiceClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_BYTES_MAX + 64)
                .max_encoding_message_size(MESSAGE_BYTES_MAX + 64);
            let mut request = tonic::Request::new(ReceiverStream::new(waiting));
            if let Some(Epoch(epoch)) = lost {
                request.metadata_mut().insert(LOST_EPOCH_HEADER, epoch.into());
            }
            let linked = client.link(request).await;
            let orders = linked.map_err(|status| failed(&reason(&status)))?.into_inner();
            Ok(Self { endpoint: endpoint.clone(), channel, reports, orders })
        };
        let opened = tokio::time::timeout(OPEN_TIMEOUT * 2, open).await;
        opened.unwrap_or_else(|_| Err(failed(&"no answer")))
    }

    /// Sends a report, or drops it where too many wait.
    pub fn report(&self, report: &HostReport) {
        match serde_json::to_vec(report) {
            Ok(report) => drop(self.reports.try_send(LinkRequest { report })),
            Err(error) => tracing::error!(%error, "a report cannot be written as JSON"),
        }
    }

    /// Next message. Cancel safe.
    ///
    /// # Errors
    /// The link has ended, and why; or an order cannot be read.
    pub async fn next(&mut self) -> Result<ReplicaMessage, String> {
        match self.orders.message().await {
            Ok(Some(LinkResponse { call, .. })) if call != 0 => Ok(ReplicaMessage::Call(call)),
            Ok(Some(LinkResponse { order, .. })) => serde_json::from_slice(&order)
                .map(|order| ReplicaMessage::Order(Box::new(order)))
                .map_err(|error| format!("{}: an order cannot be read: {error}", self.endpoint)),
            Ok(None) => Err(format!("{}: it ended the link", self.endpoint)),
            Err(status) => Err(format!("{}: {}", self.endpoint, status.message())),
        }
    }
}

/// The reason for which a link was not begun. A status of the connection itself, rather than of the replica, has an error
/// below it: its innermost one says why, such as an alert of TLS by which the replica rejected the host's certificate.
fn reason(status: &tonic::Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), root_cause(source)),
        None => status.message().to_owned(),
    }
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let last = std::iter::successors(Some(error), |error| error.source()).last();
    last.map(ToString::to_string).unwrap_or_default()
}

/// Fetches an image and compares it with its digest.
///
/// # Errors
/// In words: the replica has no such image, sends another one, or falls silent.
pub(crate) async fn fetch(channel: Channel, of: &RegionImage) -> Result<Vec<u8>, String> {
    let size = usize::try_from(of.size.get()).unwrap_or(usize::MAX);
    let digest = of.digest;
    let mut client = HostLinkServiceClient::new(channel);
    let request = FetchImageRequest { digest: digest.to_string() };
    let silent = |_| "the replica that sends the image is silent".to_owned();
    let began = tokio::time::timeout(IMAGE_SILENCE, client.fetch_image(request)).await;
    let began = began.map_err(silent)?.map_err(|status| status.message().to_owned())?;
    let (mut pieces, mut image) = (began.into_inner(), Vec::new());
    loop {
        let piece = tokio::time::timeout(IMAGE_SILENCE, pieces.message()).await.map_err(silent)?;
        let Some(piece) = piece.map_err(|status| status.message().to_owned())? else { break };
        if piece.chunk.len() > size - image.len() {
            return Err(format!("the image is larger than the {size} bytes that it should have"));
        }
        image.extend_from_slice(&piece.chunk);
    }
    let checked = tokio::task::spawn_blocking(move || (Digest::of(&image), image)).await;
    let (actual, image) = checked.map_err(|error| error.to_string())?;
    if actual == digest && image.len() == size {
        return Ok(image);
    }
    Err(format!("{} bytes with digest {actual} arrived for {size} with {digest}", image.len()))
}
