//! A domain's XML: its UUID, and the binding that it asks for in a metadata element of our own
//! namespace.
//!
//! ```xml
//! <metadata>
//!   <snic:vm xmlns:snic="urn:snic:libvirt:vm:1" tenant="acme" functions="2" lease="60">
//!     <snic:dag name="web"/>
//!     <snic:dag name="mail"/>
//!   </snic:vm>
//! </metadata>
//! ```
//!
//! Instead of DAGs, `<snic:template dag="web"/>` asks for a private copy of `web`. `functions` and
//! `lease` (seconds) are optional, and so is `<snic:mac address="52:54:00:00:00:01"/>`, once for each address of
//! the domain; without it, the addresses are those of its interfaces of the kinds in [`INTERFACES`]. Unknown elements and attributes are errors, so that a misspelt
//! request is never half granted; the parser rejects entities and DTDs.

use roxmltree::{Document, Node};
use uuid::Uuid;

/// The namespace, without its version.
const NAMESPACE: &str = "urn:snic:libvirt:vm:";
/// The version that this program reads.
const VERSION: &str = "1";

/// Kinds of interfaces that can be a function of a card. Others, such as `bridge`, are none.
const INTERFACES: [&str; 3] = ["hostdev", "vdpa", "vhostuser"];

/// The binding that a domain asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedBinding {
    /// The tenant that owns the domain.
    pub tenant: String,
    /// The DAGs that process its packets.
    pub chains: Chains,
    /// Number of virtual functions; 0 stands for one per DAG.
    pub functions: u32,
    /// Time that the binding outlives its last heartbeat, in seconds.
    pub lease_seconds: Option<i64>,
    /// Ethernet addresses of the domain, in the order of its functions. Without any, each function has its own.
    pub mac_addresses: Vec<String>,
}

/// The DAGs of a domain, by ids within its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chains {
    Dags(Vec<String>),
    /// A private copy of this DAG.
    Template(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    pub uuid: Uuid,
    /// The binding it asks for; `None` where it has no element of our namespace.
    pub binding: Option<Result<RequestedBinding, InvalidDomain>>,
}

/// Why a domain's XML cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDomain {
    /// Not well-formed, or with a DTD.
    #[error("the domain's XML cannot be read: {0}")]
    Xml(String),
    #[error("the XML has no <domain> with a <uuid>")]
    NoDomain,
    /// The UUID is malformed.
    #[error(
        "domain uuid {0:?} is not a valid UUID (expected e.g. 123e4567-e89b-42d3-a456-426614174000)"
    )]
    Uuid(String),
    /// A later version, or none.
    #[error("unsupported metadata version {0:?} of namespace {NAMESPACE} (supported: {VERSION})")]
    Version(String),
    /// Several elements of our namespace.
    #[error("the domain's metadata has {0} snic elements; exactly one is allowed")]
    Duplicate(usize),
    /// An element or attribute is invalid.
    #[error("metadata element snic:vm: {0}")]
    Element(String),
}

fn invalid(text: impl Into<String>) -> InvalidDomain {
    InvalidDomain::Element(text.into())
}

/// Reads a domain's XML, or the status file in which libvirt keeps it.
///
/// # Errors
/// [`InvalidDomain`] where not even the UUID can be read; errors in the requested binding are in
/// [`Domain::binding`].
pub fn read(xml: &str) -> Result<Domain, InvalidDomain> {
    let document = Document::parse(xml).map_err(|error| InvalidDomain::Xml(error.to_string()))?;
    let is_domain = |node: &Node<'_, '_>| node.has_tag_name("domain");
    let root = document.root_element();
    let domain = Some(root).filter(is_domain).or_else(|| root.children().find(is_domain));
    let child = |name: &'static str| {
        move |node: Node<'_, '_>| {
            node.has_tag_name(name)
                .then_some(node.text())
                .flatten()
                .map(str::trim)
                .map(str::to_owned)
        }
    };
    let domain = domain.ok_or(InvalidDomain::NoDomain)?;
    let uuid = domain.children().find_map(child("uuid")).filter(|uuid| !uuid.is_empty());
    let uuid = uuid.ok_or(InvalidDomain::NoDomain)?;
    let malformed = || InvalidDomain::Uuid(uuid.chars().take(40).collect());
    let uuid = Uuid::try_parse(&uuid).map_err(|_| malformed())?;
    Ok(Domain { uuid, binding: binding(domain) })
}

fn binding(domain: Node<'_, '_>) -> Option<Result<RequestedBinding, InvalidDomain>> {
    let metadata = domain.children().filter(|node| node.has_tag_name("metadata"));
    let ours: Vec<(Node<'_, '_>, &str)> = metadata
        .flat_map(|metadata| metadata.children())
        .filter_map(|node| Some((node, node.tag_name().namespace()?.strip_prefix(NAMESPACE)?)))
        .collect();
    match ours[..] {
        [] => None,
        [(_, version)] if version != VERSION => {
            Some(Err(InvalidDomain::Version(version.chars().take(40).collect())))
        }
        [(element, _)] => Some(binding_spec(element).map(|spec| spec.with_macs_of(domain))),
        _ => Some(Err(InvalidDomain::Duplicate(ours.len()))),
    }
}

fn binding_spec(element: Node<'_, '_>) -> Result<RequestedBinding, InvalidDomain> {
    let name = element.tag_name().name();
    if name != "vm" {
        return Err(invalid(format!("unknown element {name:?} (expected \"vm\")")));
    }
    let known = ["tenant", "functions", "lease"];
    if let Some(other) = element.attributes().find(|a| !known.contains(&a.name())) {
        return Err(invalid(format!(
            "unknown attribute {:?} (allowed: {})",
            other.name(),
            known.join(", ")
        )));
    }
    let tenant = element.attribute("tenant").ok_or_else(|| invalid("missing attribute tenant"))?;
    let functions = match element.attribute("functions") {
        None => 0,
        Some(text) => text
            .parse()
            .ok()
            .filter(|count| *count > 0)
            .ok_or_else(|| invalid(format!("functions={text:?} is not a positive number")))?,
    };
    let lease = |text: &str| {
        let error = || invalid(format!("lease={text:?} is not a number of seconds"));
        text.parse::<u32>().map(i64::from).map_err(|_| error())
    };
    Ok(RequestedBinding {
        tenant: tenant.to_owned(),
        chains: chains(element)?,
        functions,
        lease_seconds: element.attribute("lease").map(lease).transpose()?,
        mac_addresses: macs(element)?,
    })
}

impl RequestedBinding {
    /// The same with the addresses of the domain's interfaces, where none are requested.
    fn with_macs_of(mut self, domain: Node<'_, '_>) -> Self {
        if self.mac_addresses.is_empty() {
            let devices = domain.children().filter(|node| node.has_tag_name("devices"));
            let interfaces = devices.flat_map(|devices| devices.children()).filter(|node| {
                let kind = node.attribute("type").unwrap_or_default();
                node.has_tag_name("interface") && INTERFACES.contains(&kind)
            });
            let mac = |interface: Node<'_, '_>| {
                let mac = interface.children().find(|node| node.has_tag_name("mac"))?;
                mac.attribute("address").map(str::to_owned)
            };
            self.mac_addresses = interfaces.filter_map(mac).collect();
        }
        self
    }
}

fn macs(element: Node<'_, '_>) -> Result<Vec<String>, InvalidDomain> {
    let macs = element.children().filter(|node| node.tag_name().name() == "mac");
    let address = |mac: Node<'_, '_>| {
        let address = mac.attribute("address").filter(|address| !address.is_empty());
        address.map(str::to_owned).ok_or_else(|| invalid("element \"mac\" lacks attribute address"))
    };
    macs.map(address).collect()
}

fn chains(element: Node<'_, '_>) -> Result<Chains, InvalidDomain> {
    let mut dags = Vec::new();
    let mut templates = Vec::new();
    for child in element.children().filter(Node::is_element) {
        let (name, key) = match child.tag_name().name() {
            "dag" => (&mut dags, "name"),
            "template" => (&mut templates, "dag"),
            "mac" => continue,
            other => {
                return Err(invalid(format!(
                    "unknown element {other:?} (expected dag, template or mac)"
                )));
            }
        };
        let value = child.attribute(key).filter(|value| !value.is_empty());
        let missing =
            || invalid(format!("element {:?} lacks attribute {key}", child.tag_name().name()));
        name.push(value.ok_or_else(missing)?.to_owned());
    }
    match (&dags[..], &templates[..]) {
        ([_, ..], []) => Ok(Chains::Dags(dags)),
        ([], [template]) => Ok(Chains::Template(template.clone())),
        _ => Err(invalid("specify at least one dag, or exactly one template")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";

    fn domain(metadata: &str) -> Domain {
        let xml = format!(
            "<domain type='qemu'><name>x</name><uuid>{UUID}</uuid>\
             <metadata>{metadata}</metadata></domain>"
        );
        read(&xml).expect("a domain")
    }

    fn vm(attributes: &str, children: &str) -> Domain {
        domain(&format!("<s:vm xmlns:s='urn:snic:libvirt:vm:1' {attributes}>{children}</s:vm>"))
    }

    fn problem(domain: Domain) -> String {
        domain.binding.expect("an element").expect_err("invalid").to_string()
    }

    #[test]
    fn a_binding_spec_is_read() {
        let found =
            vm("tenant='acme' functions='2' lease='60'", "<s:dag name='a'/><s:dag name='b'/>");
        let spec = RequestedBinding {
            tenant: "acme".into(),
            chains: Chains::Dags(vec!["a".into(), "b".into()]),
            functions: 2,
            lease_seconds: Some(60),
            mac_addresses: Vec::new(),
        };
        let uuid = Uuid::try_parse(UUID).expect("valid");
        assert_eq!(found, Domain { uuid, binding: Some(Ok(spec)) });
        let private = vm("tenant='acme'", "<s:template dag='a'/>").binding.expect("an element");
        assert_eq!(private.expect("valid").chains, Chains::Template("a".into()));
    }

    #[test]
    fn a_domain_sends_from_the_addresses_of_its_functions() {
        let devices = "<devices><interface type='bridge'><mac address='52:54:00:00:00:09'/></interface>\
             <interface type='vhostuser'><mac address='52:54:00:00:00:01'/></interface>\
             <interface type='hostdev' managed='yes'><mac address='52:54:00:00:00:02'/></interface>\
             <interface type='vdpa'/></devices>";
        let macs = |children: &str| {
            let xml = format!(
                "<domain><uuid>{UUID}</uuid>{devices}<metadata>\
                 <s:vm xmlns:s='urn:snic:libvirt:vm:1' tenant='a'><s:dag name='a'/>{children}</s:vm>\
                 </metadata></domain>"
            );
            let found = read(&xml).expect("a domain").binding.expect("an element");
            found.expect("valid").mac_addresses
        };
        assert_eq!(macs(""), ["52:54:00:00:00:01", "52:54:00:00:00:02"]);
        assert_eq!(macs("<s:mac address='52:54:00:00:00:07'/>"), ["52:54:00:00:00:07"]);
        assert!(problem(vm("tenant='a'", "<s:dag name='a'/><s:mac/>")).contains("address"));
    }

    #[test]
    fn metadata_of_other_namespaces_is_ignored() {
        let other = "<o:os xmlns:o='http://libosinfo.org/xmlns/libvirt/domain/1.0'/>";
        assert_eq!(domain(other).binding, None);
        assert_eq!(domain("").binding, None);
    }

    #[test]
    fn a_status_file_holds_a_domain() {
        let xml = format!("<domstatus><domain id='1'><uuid>{UUID}</uuid></domain></domstatus>");
        assert_eq!(read(&xml).expect("a domain").uuid.to_string(), UUID);
    }

    #[test]
    fn an_error_names_what_is_unknown() {
        assert!(problem(domain("<s:vm xmlns:s='urn:snic:libvirt:vm:2'/>")).contains("\"2\""));
        assert!(problem(domain("<s:nic xmlns:s='urn:snic:libvirt:vm:1'/>")).contains("nic"));
        let dag = "<s:dag name='a'/>";
        assert!(problem(vm("", dag)).contains("tenant"));
        assert!(problem(vm("tenant='a' vlan='3'", dag)).contains("vlan"));
        assert!(problem(vm("tenant='a' functions='0'", dag)).contains("functions"));
        assert!(problem(vm("tenant='a' lease='-1'", dag)).contains("lease"));
        assert!(problem(vm("tenant='a'", "")).contains("at least one"));
        assert!(problem(vm("tenant='a'", "<s:dag/>")).contains("name"));
        assert!(problem(vm("tenant='a'", "<s:net/>")).contains("net"));
        let both = format!("{dag}<s:template dag='a'/>");
        assert!(problem(vm("tenant='a'", &both)).contains("at least one"));
        let twice = "<s:vm xmlns:s='urn:snic:libvirt:vm:1'/>".repeat(2);
        assert!(problem(domain(&twice)).contains("2 snic elements"));
    }

    #[test]
    fn anything_but_a_domain_is_an_error() {
        let bomb = "<!DOCTYPE x [<!ENTITY a 'aa'>]><domain>&a;</domain>";
        for xml in ["", "hello", "<domain>", bomb] {
            assert!(matches!(read(xml), Err(InvalidDomain::Xml(_))), "{xml}");
        }
        for xml in ["<network/>", "<domain/>", "<domain><uuid> </uuid></domain>"] {
            assert_eq!(read(xml), Err(InvalidDomain::NoDomain), "{xml}");
        }
        let odd = read("<domain><uuid>../../x</uuid></domain>").expect_err("not a UUID");
        assert!(odd.to_string().contains("\"../../x\" is not a valid UUID"), "{odd}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(text in ".{0,200}", cut in 0usize..400) {
            let _ = read(&text);
            let xml = format!(
                "<domain><uuid>{UUID}</uuid><metadata><s:vm xmlns:s='urn:snic:libvirt:vm:1' \
                 tenant='a'>{text}<s:dag name='a'/></s:vm></metadata></domain>"
            );
            let end = xml.char_indices().map(|(at, _)| at).take_while(|at| *at <= cut).last();
            let _ = read(&xml[..end.unwrap_or(0)]);
        }
    }
}
