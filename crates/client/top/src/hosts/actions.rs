//! Changes of a host by keys.

use snic_api::fleet_v1::{
    CordonHostRequest, DrainHostRequest, GetHostRequest, Host, UncordonHostRequest,
    UndrainHostRequest,
};
use snic_client::output::{Style, fleet_views as views, text};
use snic_client::{Client, Failure, call};

/// Action on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostVerb {
    /// Nothing new is placed there.
    Cordon,
    /// New DAGs may be placed there again.
    Uncordon,
    /// DAGs leave, too.
    Drain,
    /// DAGs leave no more, and new ones may be placed there again.
    Undrain,
    /// Show all that the fleet knows of it.
    Describe,
}

impl HostVerb {
    /// The question before a change of a host; `None` for what changes nothing.
    pub fn question(self, name: &str) -> Option<String> {
        let host = text::id(name);
        match self {
            Self::Cordon => Some(format!("cordon host {host}: nothing new is placed there")),
            Self::Uncordon => Some(format!("uncordon host {host}: it takes new DAGs again")),
            Self::Drain => {
                Some(format!("drain host {host}: DAGs leave whose machines are not there"))
            }
            Self::Undrain => Some(format!("end the drain of host {host}: it takes new DAGs again")),
            Self::Describe => None,
        }
    }

    /// Has the fleet do it; what to show of it.
    ///
    /// # Errors
    /// [`Failure`]: the fleet's.
    pub async fn carry_out(
        self,
        client: &Client,
        name: String,
        style: Style,
    ) -> Result<String, Failure> {
        let host = match self {
            Self::Cordon => call!(client, fleet.cordon_host => host, CordonHostRequest { name })?,
            Self::Uncordon => {
                call!(client, fleet.uncordon_host => host, UncordonHostRequest { name })?
            }
            Self::Drain => call!(client, fleet.drain_host => host, DrainHostRequest { name })?,
            Self::Undrain => {
                call!(client, fleet.undrain_host => host, UndrainHostRequest { name })?
            }
            Self::Describe => {
                let host = call!(client, fleet.get_host => host, GetHostRequest { name })?;
                return Ok(views::host(&host, style));
            }
        };
        Ok(changed(&host))
    }
}

/// State of a host after a change: the drain of its rack may go on when its own has ended.
fn changed(host: &Host) -> String {
    let how = match views::use_word(host) {
        "" => "takes new DAGs again",
        "cordoned" => "is cordoned",
        _ => "is being drained",
    };
    format!("host {} {how}", text::id(&host.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_asked_for_and_what_is_said_afterwards_is_how_the_host_is() {
        let asked = HostVerb::Drain.question("hosts/h1").expect("it changes something");
        assert!(asked.starts_with("drain host h1:"), "{asked}");
        assert_eq!(HostVerb::Describe.question("hosts/h1"), None);
        let host = Host { name: "hosts/h1".into(), ..Host::default() };
        assert_eq!(changed(&host), "host h1 takes new DAGs again");
        let still = Host { draining: true, ..host };
        assert_eq!(changed(&still), "host h1 is being drained");
    }
}
