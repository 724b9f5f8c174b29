//! Settings of the server: its front, the page, and what the daemon plugs in.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use snic_api::v1;
use snic_front::access::CONTROL;
use snic_front::call_counts::CallCounts;
use snic_front::gate::PassedCalls;
use snic_front::identity::TrustDomain;
use snic_front::settings::FrontSettings;
use snic_front::uploads::UploadCheck;
use snic_web::PageKey;

use crate::links::CardLinks;

/// Settings of the server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Listeners, identities, limits, policies.
    pub front: FrontSettings,
    /// The page for browsers; not served if `None`.
    pub web: Option<WebSettings>,
    /// Check that every uploaded image has to pass.
    pub upload_check: UploadCheck,
    /// Connections of cards.
    pub card_links: CardLinks,
    /// The server's part of support bundles.
    pub diagnostics: DiagnosticsSource,
    /// Where calls come from that a fleet passes on.
    pub passed_calls: PassedCalls,
}

impl ServerSettings {
    /// Default settings without listeners.
    pub fn new(trust_domain: TrustDomain, upload_check: UploadCheck) -> Self {
        Self {
            front: FrontSettings {
                calls: Some(CallCounts::default()),
                ..FrontSettings::new(trust_domain, CONTROL)
            },
            web: None,
            upload_check,
            card_links: CardLinks::default(),
            diagnostics: DiagnosticsSource::default(),
            passed_calls: PassedCalls::default(),
        }
    }
}

/// Settings of the page for browsers.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// The address to listen on; port 0 picks a free port.
    pub address: SocketAddr,
    /// Plain text on a loopback address, for browsers with this key; a weak one is rejected. `None` means
    /// TLS with the server's certificates; browsers need an operator's client certificate.
    pub plain_text: Option<PageKey>,
}

/// Function of a [`DiagnosticsSource`].
type Diagnose = dyn Fn() -> v1::Diagnostics + Send + Sync;

/// Collects the server's part of support bundles: the daemon knows its settings and log. Empty by
/// default.
#[derive(Clone, Default)]
pub struct DiagnosticsSource(Option<Arc<Diagnose>>);

impl DiagnosticsSource {
    /// From a function, which must not block for long and must not reveal secrets.
    pub fn new(collect: impl Fn() -> v1::Diagnostics + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(collect)))
    }

    pub(crate) fn collect(&self) -> v1::Diagnostics {
        self.0.as_ref().map_or_else(v1::Diagnostics::default, |collect| collect())
    }
}

impl fmt::Debug for DiagnosticsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiagnosticsSource")
    }
}
